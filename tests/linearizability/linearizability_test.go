package linearizability

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/coordd/coordd/tests/cluster"
	"github.com/coordd/coordd/tests/history"
	"github.com/coordd/coordd/tests/load"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var (
	durationFlag = flag.Duration("duration", 0, "how long requests are made; default 1m, or COORDD_TEST_DURATION, or 10s with -short")
	seedFlag     = flag.Uint64("seed", 0, "seed of the run; default random, or COORDD_TEST_SEED")
)

// smallHistory is the number of requests up to which a group must be decided; above it, running out of time is only noted.
const smallHistory = 20_000

const (
	groups          = 6
	writersPerGroup = 3
	readersPerGroup = 3                     // one for each member, which has a read under way there when something happens to it
	meanPause       = 15 * time.Millisecond // between the calls of one client
)

const checkLimit = 45 * time.Second // for each group; it takes far below one second

func TestMain(m *testing.M) { cluster.Main(m) }

func settings(t *testing.T) (time.Duration, uint64) {
	t.Helper()
	duration, seed := *durationFlag, *seedFlag
	var err error
	if text := os.Getenv("COORDD_TEST_DURATION"); text != "" && duration == 0 {
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	if text := os.Getenv("COORDD_TEST_SEED"); text != "" && seed == 0 {
		if seed, err = strconv.ParseUint(text, 0, 64); err != nil {
			t.Fatal(err)
		}
	}
	switch {
	case duration > 0:
	case testing.Short():
		duration = 10 * time.Second
	default:
		duration = time.Minute
	}
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("go test ./linearizability -duration %v -seed %d", duration, seed)
	return duration, seed
}

func TestLinearizable(t *testing.T) {
	duration, seed := settings(t)
	c := cluster.New(t, 3, "--snapshot-count", "300", "--snapshot-catchup-entries", "100", "--heartbeat-interval", "50", "--election-timeout", "500")
	f := &faults{cluster: c, rng: rand.New(rand.NewPCG(seed, 0)), begin: time.Now()}
	ops, live := run(t, f, duration, seed)
	t.Logf("%d requests, faults: %v", len(ops), f.count)

	c.Start(t)
	last := c.SameHash(t, 30*time.Second)
	events := live(last)
	replays(t, c, events, last)
	if err := history.CheckEvents(ops, events, 2, last); err != nil {
		t.Errorf("the watch: %v", err)
	}
	settled, err := history.Resolve(ops, events)
	if err != nil {
		t.Fatal(err)
	}
	describe(t, ops, settled, last)
	verdicts := history.Check(settled, checkLimit)
	if len(verdicts) != groups {
		t.Errorf("%d groups were checked", len(verdicts))
	}
	judge(t, verdicts, f.done)
}

// run makes requests and faults for a while. It gives all requests, and a function that gives the events of a watch that went
// on all the time, up to a revision.
func run(t *testing.T, f *faults, duration time.Duration, seed uint64) ([]porcupine.Operation, func(last int64) []history.Event) {
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	live := follow(t, f.cluster.Etcd(t))
	var values atomic.Int64
	var workers []*load.Worker
	var busy sync.WaitGroup
	for i := range groups * (writersPerGroup + readersPerGroup) {
		reader := i >= groups*writersPerGroup
		w := &load.Worker{
			ID: i, Group: i % groups, Reader: reader, KV: f.cluster.Etcd(t, endpoints(i/groups, i%groups, reader)...), Begin: f.begin, Values: &values,
			Rand: rand.New(rand.NewPCG(seed, uint64(i+1))), Pause: meanPause,
		}
		workers = append(workers, w)
		busy.Go(func() { w.Run(ctx) })
	}
	busy.Go(func() {
		if err := f.run(ctx); err != nil {
			t.Error(err)
			cancel()
		}
	})
	busy.Wait()
	var ops []porcupine.Operation
	for _, w := range workers {
		ops = append(ops, w.Ops...)
	}
	return ops, live
}

// endpoints are the members that client n of a group knows: readers one each, and writers one or, one in four of them, all.
func endpoints(n, group int, reader bool) []int {
	if reader {
		return []int{n % readersPerGroup}
	}
	if m := (n + group) % 4; m < 3 {
		return []int{m}
	}
	return nil
}

// follow starts to watch. The function it gives waits until the watch has come to a revision.
func follow(t *testing.T, c clientv3.Watcher) func(last int64) []history.Event {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var events []history.Event
	var err error
	last, done := make(chan int64, 1), make(chan struct{})
	go func() { // ends with ctx at the latest
		events, err = watch(ctx, c, last)
		close(done)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return func(rev int64) []history.Event {
		t.Helper()
		last <- rev
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			cancel()
			<-done
		}
		if err != nil {
			t.Fatal(err)
		}
		return events
	}
}

// replays watches from the first revision on at each member, after the end: all must tell the same.
func replays(t *testing.T, c *cluster.Cluster, want []history.Event, last int64) {
	t.Helper()
	for i, m := range c.Members {
		got := follow(t, c.Etcd(t, i))(last)
		if !slices.Equal(got, want) {
			n := 0
			for n < min(len(got), len(want)) && got[n] == want[n] {
				n++
			}
			t.Errorf("a watch at %s tells %d events, the one during the run %d; they differ from event %d on: %v and %v", m.Name,
				len(got), len(want), n, got[n:min(n+3, len(got))], want[n:min(n+3, len(want))])
		}
	}
}

// describe logs how much was tested, and fails if that is next to nothing.
func describe(t *testing.T, all, settled []porcupine.Operation, last int64) {
	t.Helper()
	answered, applied, open := 0, 0, 0
	for _, op := range settled {
		switch out := op.Output.(history.Output); {
		case out.Known:
			answered++
		case out.Revision > 0:
			applied++
		default:
			open++
		}
	}
	t.Logf("%d requests were answered, %d had no answer: %d of these were applied, %d not, %d may have been; %d revisions",
		answered, len(all)-answered, applied, len(all)-len(settled), open, last)
	if answered < 100 {
		t.Errorf("only %d requests were answered", answered)
	}
}

// judge reports each group that is not known to be linearizable, with a page that shows it.
func judge(t *testing.T, verdicts []history.Verdict, done []porcupine.Annotation) {
	t.Helper()
	for _, v := range verdicts {
		t.Logf("group %d: %s, %d requests, checked in %v", v.Group, v.Result, v.Size, v.Took.Round(time.Millisecond))
		switch {
		case v.Result == porcupine.Ok:
			continue
		case v.Result == porcupine.Unknown && v.Size > smallHistory:
			t.Logf("group %d has too many requests to be decided within %v", v.Group, checkLimit)
			continue
		}
		v.Info.AddAnnotations(done)
		page := filepath.Join(cluster.Artifacts(t), fmt.Sprintf("group%d.html", v.Group))
		if err := porcupine.VisualizePath(history.Model(), v.Info, page); err != nil {
			t.Error(err)
		}
		t.Errorf("group %d is not linearizable (%s); see %s", v.Group, v.Result, page)
	}
}
