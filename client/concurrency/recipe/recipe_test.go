package recipe_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/concurrency"
	"github.com/coordd/coordd/client/concurrency/recipe"
	"github.com/coordd/coordd/internal/testnode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) (context.Context, *client.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx, testnode.Start(t).Client()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantIs(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: %v, want %v", what, err, target)
	}
}

func session(t *testing.T, ctx context.Context, c *client.Client) *concurrency.Session {
	t.Helper()
	s, err := concurrency.NewSession(ctx, c)
	must(t, err)
	t.Cleanup(s.Orphan)
	return s
}

func TestBarrier(t *testing.T) {
	ctx, c := start(t)
	b := recipe.NewBarrier(c, "b")
	must(t, b.Wait(ctx)) // open
	must(t, b.Open(ctx))
	must(t, b.Close(ctx))
	wantIs(t, "second close", recipe.NewBarrier(c, "b").Close(ctx), recipe.ErrClosed)
	var opened atomic.Bool
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := recipe.NewBarrier(c, "b").Wait(ctx); err != nil || !opened.Load() {
				t.Errorf("went on while closed, or %v", err)
			}
		})
	}
	short, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- b.Wait(short) }()
	cancel()
	wantIs(t, "wait", <-ended, context.Canceled)
	opened.Store(true)
	must(t, b.Open(ctx))
	wg.Wait()

	s := session(t, ctx, c)
	must(t, b.Close(ctx, client.WithLease(s.Lease())))
	must(t, s.Close())
	must(t, b.Wait(ctx))
}

// Parties go through several rounds; nobody is a round ahead of another inside.
func TestDoubleBarrier(t *testing.T) {
	ctx, c := start(t)
	const parties, rounds = 4, 5
	var inside, left [rounds]atomic.Int32
	var wg sync.WaitGroup
	for range parties {
		b := recipe.NewDoubleBarrier(session(t, ctx, c), "d", parties)
		wg.Go(func() {
			for r := range rounds {
				if r > 0 && left[r-1].Load() == 0 {
					t.Errorf("round %d began before the one before ended", r)
				}
				inside[r].Add(1) // announced before, so all are there after Enter
				if err := b.Enter(ctx); err != nil {
					t.Error(err)
					return
				}
				if n := inside[r].Load(); n != parties {
					t.Errorf("round %d began with %d", r, n)
				}
				left[r].Add(1)
				if err := b.Leave(ctx); err != nil {
					t.Error(err)
					return
				}
				if n := left[r].Load(); n != parties {
					t.Errorf("round %d ended with %d", r, n)
				}
			}
		})
	}
	wg.Wait()
	r, err := c.Get(ctx, "d", client.WithPrefix())
	must(t, err)
	if r.Count != 0 {
		t.Errorf("keys are left: %v", r.Kvs)
	}
}

func TestDoubleBarrierParties(t *testing.T) {
	ctx, c := start(t)
	a, b, late := session(t, ctx, c), session(t, ctx, c), session(t, ctx, c)
	da, db := recipe.NewDoubleBarrier(a, "d", 2), recipe.NewDoubleBarrier(b, "d", 2)
	wantIs(t, "leave from outside", da.Leave(ctx), recipe.ErrOutside)

	// One who gives up is out, and one whose session ends does not wait on.
	short, cancel := context.WithCancel(ctx)
	cancel()
	wantIs(t, "enter", da.Enter(short), context.Canceled)
	dead := session(t, ctx, c)
	failed := make(chan error)
	go func() { failed <- recipe.NewDoubleBarrier(dead, "d", 2).Enter(ctx) }()
	w := c.Watch(ctx, "d/", client.WithPrefix(), client.WithRev(1))
	_, err := w.Next(ctx)
	must(t, err)
	w.Close()
	must(t, dead.Close())
	if err := <-failed; !errors.Is(err, concurrency.ErrSessionClosed) {
		t.Errorf("enter with a session that ended: %v", err)
	}

	entered := make(chan error, 2)
	go func() { entered <- da.Enter(ctx) }()
	go func() { entered <- db.Enter(ctx) }()
	must(t, <-entered)
	must(t, <-entered)
	// The one who comes late waits for the next round, which it has to itself; those inside die without leaving.
	go func() { entered <- recipe.NewDoubleBarrier(late, "d", 1).Enter(ctx) }()
	must(t, a.Close())
	left := make(chan error)
	go func() { left <- db.Leave(ctx) }()
	must(t, <-left)
	must(t, <-entered)
}

// A round whose parties have all died does not keep others out.
func TestDoubleBarrierAbandoned(t *testing.T) {
	ctx, c := start(t)
	s := session(t, ctx, c)
	must(t, recipe.NewDoubleBarrier(s, "d", 1).Enter(ctx))
	must(t, s.Close())
	must(t, recipe.NewDoubleBarrier(session(t, ctx, c), "d", 1).Enter(ctx))
}

func TestQueue(t *testing.T) {
	ctx, c := start(t)
	q := recipe.NewQueue(c, "q")
	for i := range 20 {
		must(t, q.Enqueue(ctx, fmt.Sprint(i)))
	}
	_, err := c.Put(ctx, "qq", "beside")
	must(t, err)
	for i := range 20 {
		v, err := q.Dequeue(ctx)
		if err != nil || v != fmt.Sprint(i) {
			t.Fatalf("%q %v in place %d", v, err, i)
		}
	}
	short, cancel := context.WithCancel(ctx)
	done := make(chan error)
	go func() { _, err := q.Dequeue(short); done <- err }()
	cancel()
	wantIs(t, "dequeue", <-done, context.Canceled)
}

// Each value goes to one who dequeues, and the values of each who enqueues stay in order.
func TestQueueShared(t *testing.T) {
	ctx, c := start(t)
	const writers, readers, each = 3, 4, 20
	q, p := recipe.NewQueue(c, "q"), recipe.NewPriorityQueue(c, "p")
	for name, k := range map[string]struct {
		put  func(string) error
		take func() (string, error)
	}{
		"queue":    {func(v string) error { return q.Enqueue(ctx, v) }, func() (string, error) { return q.Dequeue(ctx) }},
		"priority": {func(v string) error { return p.Enqueue(ctx, v, 7) }, func() (string, error) { return p.Dequeue(ctx) }},
	} {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var got []string
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					if err := k.put(fmt.Sprintf("%d-%02d", w, i)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range readers {
			wg.Go(func() {
				for range writers * each / readers {
					v, err := k.take()
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					got = append(got, v)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		slices.Sort(got)
		if got = slices.Compact(got); len(got) != writers*each {
			t.Errorf("%s: %d different values came out of %d", name, len(got), writers*each)
		}
	}
}

func TestPriorityQueue(t *testing.T) {
	ctx, c := start(t)
	q := recipe.NewPriorityQueue(c, "p")
	for i := range 5 {
		for _, priority := range []uint16{300, 5, 65535, 40} {
			must(t, q.Enqueue(ctx, fmt.Sprintf("%d-%d", priority, i), priority))
		}
	}
	for _, priority := range []int{5, 40, 300, 65535} {
		for i := range 5 {
			v, err := q.Dequeue(ctx)
			if want := fmt.Sprintf("%d-%d", priority, i); err != nil || v != want {
				t.Fatalf("%q %v, want %q", v, err, want)
			}
		}
	}
	_, err := c.Put(ctx, "p/00001/x", "")
	must(t, err)
	if err := q.Enqueue(ctx, "v", 1); err == nil {
		t.Error("a key that is none of the queue was accepted")
	}
}

// All wait until the gate opens.
func ExampleBarrier() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client()
	ctx := context.Background()
	b := recipe.NewBarrier(c, "maintenance")
	if err := b.Close(ctx); err != nil {
		log.Fatal(err)
	}
	if err := b.Open(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(b.Wait(ctx))
	// Output: <nil>
}

// Two parties begin and end together.
func ExampleDoubleBarrier() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client()
	ctx := context.Background()
	var wg sync.WaitGroup
	for range 2 {
		s, err := concurrency.NewSession(ctx, c)
		if err != nil {
			log.Fatal(err)
		}
		defer s.Close()
		b := recipe.NewDoubleBarrier(s, "phase", 2)
		wg.Go(func() {
			if err := b.Enter(ctx); err != nil {
				log.Fatal(err)
			}
			if err := b.Leave(ctx); err != nil {
				log.Fatal(err)
			}
		})
	}
	wg.Wait()
	fmt.Println("both are through")
	// Output: both are through
}

// First in, first out.
func ExampleQueue() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client()
	ctx := context.Background()
	q := recipe.NewQueue(c, "jobs")
	for _, job := range []string{"wash", "dry"} {
		if err := q.Enqueue(ctx, job); err != nil {
			log.Fatal(err)
		}
	}
	job, err := q.Dequeue(ctx)
	fmt.Println(job, err)
	// Output: wash <nil>
}

// The smallest number first.
func ExamplePriorityQueue() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client()
	ctx := context.Background()
	q := recipe.NewPriorityQueue(c, "jobs")
	if err := q.Enqueue(ctx, "sweep", 20); err != nil {
		log.Fatal(err)
	}
	if err := q.Enqueue(ctx, "put out the fire", 1); err != nil {
		log.Fatal(err)
	}
	job, err := q.Dequeue(ctx)
	fmt.Println(job, err)
	// Output: put out the fire <nil>
}
