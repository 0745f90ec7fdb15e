package schedule

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// blocker is a job that says when it begins and returns when told to or when it is cancelled.
type blocker struct{ begun, release chan struct{} }

func newBlocker() blocker { return blocker{make(chan struct{}), make(chan struct{})} }

func (b blocker) do(ctx context.Context) {
	close(b.begun)
	select {
	case <-b.release:
	case <-ctx.Done():
	}
}

func TestOrder(t *testing.T) {
	f := New(3)
	defer f.Stop()
	var got []int // written by the worker only
	const n = 500
	for i := range n {
		if err := f.Schedule(t.Context(), Job{Name: "append", Do: func(context.Context) { got = append(got, i) }}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.WaitFinish(n); err != nil {
		t.Fatal(err)
	}
	if len(got) != n || !slices.IsSorted(got) {
		t.Errorf("jobs ran in the order %v", got)
	}
	if f.Finished() != n || f.Pending() != 0 {
		t.Errorf("%d finished, %d pending", f.Finished(), f.Pending())
	}
}

func TestBoundAndCounts(t *testing.T) {
	f := New(2)
	defer f.Stop()
	b := newBlocker()
	nothing := func(context.Context) {}
	schedule := func(name string, do func(context.Context)) {
		t.Helper()
		if err := f.Schedule(t.Context(), Job{name, do}); err != nil {
			t.Fatal(err)
		}
	}
	schedule("block", b.do)
	<-b.begun
	schedule("a", nothing)
	schedule("b", nothing)
	if f.Pending() != 3 || f.Finished() != 0 || f.Running() != "block" {
		t.Errorf("%d pending, %d finished, running %q", f.Pending(), f.Finished(), f.Running())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := f.Schedule(ctx, Job{"late", nothing})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `"late"`) || !strings.Contains(err.Error(), `"block"`) {
		t.Errorf("a full queue answered %v", err)
	}
	accepted := make(chan error)
	go func() { accepted <- f.Schedule(t.Context(), Job{"patient", nothing}) }()
	close(b.release)
	if err := <-accepted; err != nil {
		t.Errorf("room came but Schedule said %v", err)
	}
	if err := f.WaitFinish(4); err != nil {
		t.Error(err)
	}
}

func TestStop(t *testing.T) {
	f := New(1)
	b := newBlocker()
	ran := false
	for _, j := range []Job{{"block", b.do}, {"never", func(context.Context) { ran = true }}} {
		if err := f.Schedule(t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}
	<-b.begun
	var wg sync.WaitGroup
	full := make(chan error, 1)
	wg.Go(func() { full <- f.Schedule(t.Context(), Job{"third", func(context.Context) { ran = true }}) })
	one, two := make(chan error, 1), make(chan error, 1)
	wg.Go(func() { one <- f.WaitFinish(1) })
	wg.Go(func() { two <- f.WaitFinish(2) })
	wg.Go(f.Stop) // twice at once
	f.Stop()
	wg.Wait()
	if ran {
		t.Error("a job that had not begun was run")
	}
	if err := <-full; !errors.Is(err, ErrStopped) {
		t.Errorf("the producer at the full queue got %v", err)
	}
	if err := <-one; err != nil {
		t.Errorf("the running job returned, but its waiter got %v", err)
	}
	if err := <-two; !errors.Is(err, ErrStopped) {
		t.Errorf("the waiter of a dropped job got %v", err)
	}
	if f.Finished() != 1 || f.Pending() != 0 {
		t.Errorf("%d finished, %d pending", f.Finished(), f.Pending())
	}
	if err := f.Schedule(t.Context(), Job{"after", func(context.Context) {}}); !errors.Is(err, ErrStopped) {
		t.Errorf("scheduling after the end got %v", err)
	}
}

// TestStopWaitsForTheJob uses a job that does not heed its context.
func TestStopWaitsForTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(1)
		release := make(chan struct{})
		if err := f.Schedule(t.Context(), Job{"stubborn", func(context.Context) { <-release }}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the job has begun
		stopped := false
		go func() { f.Stop(); stopped = true }()
		synctest.Wait()
		if stopped {
			t.Error("Stop returned while a job was running")
		}
		close(release)
		synctest.Wait()
		if !stopped {
			t.Error("Stop did not return after the job")
		}
	})
}

// TestPanicEndsTheProcess runs itself once more as a process in which a job panics.
func TestPanicEndsTheProcess(t *testing.T) {
	const child = "SCHEDULE_TEST_PANIC"
	if os.Getenv(child) != "" {
		f := New(1)
		if err := f.Schedule(t.Context(), Job{"bad", func(context.Context) { panic("job went wrong") }}); err != nil {
			t.Fatal(err)
		}
		if err := f.WaitFinish(1); err != nil {
			t.Fatal(err)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestPanicEndsTheProcess$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "panic: job went wrong") {
		t.Errorf("the process ended with %v and said:\n%s", err, out)
	}
}

func BenchmarkSchedule(b *testing.B) {
	b.ReportAllocs()
	f := New(1024)
	defer f.Stop()
	nothing := func(context.Context) {}
	n := 0
	for b.Loop() {
		n++
		if err := f.Schedule(b.Context(), Job{"nothing", nothing}); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.WaitFinish(n); err != nil {
		b.Fatal(err)
	}
}
