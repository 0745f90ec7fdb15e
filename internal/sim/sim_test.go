package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// The defaults are for make test, which has a few seeds only; make sim sets them all.
var (
	firstSeed = flag.Uint64("sim.seed", 1, "the first seed of TestSeeds; 0 = by the clock")
	seeds     = flag.Int("sim.n", 8, "how many seeds TestSeeds runs at most")
	length    = flag.Duration("sim.length", 30*time.Second, "virtual time with faults, of each seed")
	size      = flag.Int("sim.members", 0, "members of the cluster; 0 = 3 or 5, by the seed")
	budget    = flag.Duration("sim.budget", 10*time.Second, "begin no further seed after this much real time; 0 = no limit")
	goOn      = flag.Bool("sim.goon", false, "run further seeds after one that failed")
	shrinks   = flag.Int("sim.shrink", 30, "runs that a failure may take to find fewer faults which break it too")
	atOnce    = flag.Int("sim.parallel", runtime.GOMAXPROCS(0), "seeds that run at once, each in a process of its own")
	limit     = flag.Duration("sim.limit", 5*time.Minute, "real time that one seed may take, with what follows a failure")
	inFolder  = flag.String("sim.in", "", "run the first seed alone, in this process, with its files in this folder, and leave a file there with what was counted")
	spoil     = flag.String("sim.spoil", "", "with -sim.in, for the tests of series: break the run, die or hang")
)

// linearizeFor is the real time that porcupine gets for each history. One in fifty takes much longer, and would cost more than its whole run;
// the ledger decides it all the same.
const linearizeFor = 3 * time.Second

// TestSeeds runs clusters under faults, each seed in a process of its own (see series). A failure prints the seed, the faults
// that are left after shrinking, and what happened; the history goes to a file whose name is printed.
func TestSeeds(t *testing.T) {
	if *inFolder != "" {
		alone(t, *firstSeed, *inFolder)
		return
	}
	// After an interrupt the sum of what was done is still printed.
	ctx, release := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer release()
	s := &series{first: *firstSeed, count: *seeds, budget: *budget, goOn: *goOn, atOnce: *atOnce, limit: *limit, process: process, out: t.Output()}
	if s.first == 0 {
		s.first = uint64(time.Now().UnixMilli())
	}
	if !s.run(ctx) {
		t.Fail()
	}
}

// process is a process for one seed. It has a single P: with more, the runtime wakes a thread for each goroutine that becomes
// ready, which costs as much again as the seed itself, as hardly ever more than one goroutine is ready at once.
func process(seed uint64, dir string) *exec.Cmd {
	arg := func(name string, value any) string { return fmt.Sprintf("-%s=%v", name, value) }
	cmd := exec.Command(os.Args[0], arg("test.run", "^TestSeeds$"), arg("test.v", true), arg("test.timeout", *limit),
		arg("sim.seed", seed), arg("sim.length", *length), arg("sim.members", *size), arg("sim.shrink", *shrinks),
		arg("sim.limit", *limit), arg("sim.in", dir))
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	return cmd
}

// alone runs one seed and leaves what it counted in a file, before it begins to look into a failure.
func alone(t *testing.T, seed uint64, dir string) {
	signal.Ignore(os.Interrupt, syscall.SIGTERM) // they reach all processes of a terminal; TestSeeds of the other process acts on them
	debug.SetGCPercent(400)                      // what lives is little
	begin := time.Now()
	r := runSeed(t, dir, Options{Seed: seed, Length: *length, Members: *size})
	took := time.Since(begin)
	data, err := json.Marshal(counted{r.Stats, len(r.Violations) > 0, r.Unsure})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, countedName), data, 0o600)
	}
	if err != nil {
		t.Error(err)
	}
	if len(r.Violations) > 0 {
		// Half of the limit is left for what a slower run or the pages take.
		fail(t, seed, dir, r, min(*shrinks, int(*limit/2/max(took, time.Millisecond))))
	}
}

// runSeed runs one seed in a bubble of virtual time.
func runSeed(t *testing.T, parent string, o Options) (r *Result) {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "run-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // else it goes with its parent
	o.Dir = dir
	switch *spoil {
	case "die":
		panic("spoilt")
	case "hang":
		select {}
	}
	synctest.Test(t, func(*testing.T) { r, err = Run(o) })
	if err != nil {
		t.Fatal(err)
	}
	r.Linearize(linearizeFor)
	if *spoil == "break" {
		r.add(Violation{0, "spoilt"})
	}
	return r
}

// fail reports a broken run, with as few faults as can be found in so many runs.
func fail(t *testing.T, seed uint64, dir string, r *Result, tries int) {
	t.Error(r.Report)
	if dir, err := os.MkdirTemp("", "coordd-sim-history-"); err == nil {
		run := filepath.Join(dir, fmt.Sprintf("seed-%d-run.html", seed))
		if err := r.WritePage(run); err != nil {
			t.Error(err)
		}
		t.Logf("the run as a page: %s", run)
		page := filepath.Join(dir, fmt.Sprintf("seed-%d.html", seed))
		if r.WriteHTML(page) == nil {
			t.Logf("the history of the registers: %s", page)
		}
	}
	small, runs := shrink(r.Plan, tries, func(plan []Fault) bool {
		return len(runSeed(t, dir, Options{Seed: seed, Length: *length, Members: *size, Plan: plan}).Violations) > 0
	})
	t.Logf("%d of %d faults break it, found in %d runs:\n%s", len(small), len(r.Plan), runs, describe(small))
}
