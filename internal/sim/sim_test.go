package sim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

var (
	firstSeed = flag.Uint64("sim.seed", 1, "the first seed of TestSeeds; 0 = by the clock")
	seeds     = flag.Int("sim.n", 0, "how many seeds TestSeeds runs")
	length    = flag.Duration("sim.length", 30*time.Second, "virtual time with faults, of each seed")
	size      = flag.Int("sim.members", 0, "members of the cluster; 0 = 3 or 5, by the seed")
	budget    = flag.Duration("sim.budget", 0, "begin no further seed after this much real time; 0 = no limit")
	goOn      = flag.Bool("sim.goon", false, "run further seeds after one that failed")
	shrinks   = flag.Int("sim.shrink", 30, "runs that a failure may take to find fewer faults which break it too")
)

// TestSeeds runs clusters under faults. A failure prints the seed, the faults that are left after
// shrinking, and what happened; the history goes to a file whose name is printed.
func TestSeeds(t *testing.T) {
	if *seeds == 0 {
		t.Skip("takes seconds a seed and is not yet part of make test: run make sim")
	}
	first := *firstSeed
	if first == 0 {
		first = uint64(time.Now().UnixNano() / 1e6)
	}
	var sum Stats
	begin, n := time.Now(), 0
	for ; n < *seeds && (*budget == 0 || time.Since(begin) < *budget) && (*goOn || !t.Failed()); n++ {
		seed := first + uint64(n)
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			r := runSeed(t, Options{Seed: seed, Length: *length, Members: *size})
			sum.Add(r.Stats)
			if len(r.Violations) > 0 {
				fail(t, seed, r)
			}
			if r.Unsure {
				t.Logf("seed %d: porcupine gave up; the ledger holds", seed)
			}
		})
	}
	t.Logf("seeds %d to %d in %.0fs: %+v", first, first+uint64(n)-1, time.Since(begin).Seconds(), sum)
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
