package sim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
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
	atOnce    = flag.Int("sim.parallel", runtime.GOMAXPROCS(0), "seeds that run at once")
)

// series hands out seeds and adds up what came of them.
type series struct {
	first uint64
	begin time.Time

	mu     sync.Mutex // guards all below
	given  int
	failed bool
	sum    Stats
}

// next is a seed to run; ok is false when there is none, or no time left for one.
func (s *series) next() (seed uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.given >= *seeds || *budget > 0 && time.Since(s.begin) >= *budget || s.failed && !*goOn {
		return 0, false
	}
	s.given++
	return s.first + uint64(s.given-1), true
}

func (s *series) add(r *Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Add(r.Stats)
	s.failed = s.failed || len(r.Violations) > 0
}

// TestSeeds runs clusters under faults. A failure prints the seed, the faults that are left after
// shrinking, and what happened; the history goes to a file whose name is printed.
func TestSeeds(t *testing.T) {
	s := &series{first: *firstSeed, begin: time.Now()}
	if s.first == 0 {
		s.first = uint64(time.Now().UnixNano() / 1e6)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // what lives is little
	t.Run("all", func(t *testing.T) {
		for i := range *atOnce {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for seed, ok := s.next(); ok; seed, ok = s.next() {
					t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { s.run(t, seed) })
				}
			})
		}
	})
	if s.given == 0 {
		t.Error("no seed was run")
	}
	t.Logf("seeds %d to %d in %.0fs: %+v", s.first, s.first+uint64(s.given)-1, time.Since(s.begin).Seconds(), s.sum)
}

func (s *series) run(t *testing.T, seed uint64) {
	r := runSeed(t, Options{Seed: seed, Length: *length, Members: *size})
	s.add(r)
	if len(r.Violations) > 0 {
		fail(t, seed, r)
	}
	if r.Unsure {
		t.Logf("seed %d: porcupine gave up; the ledger holds", seed)
	}
}

// runSeed runs one seed in a bubble of virtual time.
func runSeed(t *testing.T, o Options) (r *Result) {
	t.Helper()
	dir, remove, err := TempDir()
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	o.Dir = dir
	synctest.Test(t, func(*testing.T) { r, err = Run(o) })
	if err != nil {
		t.Fatal(err)
	}
	r.Linearize(10 * time.Second)
	return r
}

// fail reports a broken run, with as few faults as it takes.
func fail(t *testing.T, seed uint64, r *Result) {
	t.Errorf("%s\nrun it again: make sim SEED=%d N=1", r.Report, seed)
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
	small, runs := shrink(r.Plan, *shrinks, func(plan []Fault) bool {
		return len(runSeed(t, Options{Seed: seed, Length: *length, Members: *size, Plan: plan}).Violations) > 0
	})
	t.Logf("%d of %d faults break it, found in %d runs:\n%s", len(small), len(r.Plan), runs, describe(small))
}
