package concurrency_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/concurrency"
	"github.com/coordd/coordd/internal/testnode"
)

func TestRWMutex(t *testing.T) {
	c := testnode.Start(t).Client()
	ctx := within(t)
	r1, r2, w := concurrency.NewRWMutex(session(t, c), "m"), concurrency.NewRWMutex(session(t, c), "m"), concurrency.NewRWMutex(session(t, c), "m")
	plain := concurrency.NewMutex(session(t, c), "m")
	must(t, r1.RLock(ctx))
	must(t, r2.RLock(ctx)) // together
	wantIs(t, "write beside readers", w.TryLock(ctx), concurrency.ErrLocked)
	wantIs(t, "mutex beside readers", plain.TryLock(ctx), concurrency.ErrLocked)
	wantIs(t, "write while reading", r1.Lock(ctx), concurrency.ErrInUse)
	locked := make(chan error, 1)
	go func() { locked <- w.Lock(ctx) }()
	count(t, c, "m/", 3)
	late := concurrency.NewRWMutex(session(t, c), "m")
	wantIs(t, "reader behind a writer", late.TryRLock(ctx), concurrency.ErrLocked) // or writers would starve
	must(t, r1.RUnlock(ctx))
	must(t, r2.RUnlock(ctx))
	must(t, <-locked)
	wantIs(t, "read while writing", w.RLock(ctx), concurrency.ErrInUse)
	read := make(chan error, 1)
	go func() { read <- late.RLock(ctx) }()
	count(t, c, "m/", 2)
	must(t, w.Unlock(ctx))
	must(t, <-read)
	if late.Reader().FencingToken() == 0 || late.Writer().FencingToken() != 0 {
		t.Error("tokens do not tell who reads")
	}
	must(t, late.RUnlock(ctx))

	must(t, plain.Lock(ctx))
	wantIs(t, "reader beside a mutex", late.TryRLock(ctx), concurrency.ErrLocked)
	must(t, plain.Unlock(ctx))
	must(t, late.TryRLock(ctx))
	must(t, late.RUnlock(ctx))
	must(t, late.TryLock(ctx))
	must(t, late.Unlock(ctx))
	count(t, c, "m", 0)
}

// Readers and writers come and go; a writer is always alone.
func TestRWMutexExcludes(t *testing.T) {
	n := testnode.Start(t)
	ctx := within(t)
	var reading, writing atomic.Int32
	var wg sync.WaitGroup
	check := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	for i := range 6 {
		m := concurrency.NewRWMutex(session(t, n.Client()), "m")
		wg.Go(func() {
			for j := range 15 {
				if (i+j)%3 == 0 {
					check(m.Lock(ctx))
					if writing.Add(1) != 1 || reading.Load() != 0 {
						t.Error("a writer is not alone")
					}
					writing.Add(-1)
					check(m.Unlock(ctx))
					continue
				}
				check(m.RLock(ctx))
				reading.Add(1)
				if writing.Load() != 0 {
					t.Error("a reader reads while one writes")
				}
				reading.Add(-1)
				check(m.RUnlock(ctx))
			}
		})
	}
	wg.Wait()
}

// A place that a lost reply left in the queue to read does not become one to write: others may have passed it.
func TestReaderLeftBehind(t *testing.T) {
	n := testnode.Start(t)
	ctx := within(t)
	f, c := over(t, n)
	s := session(t, c)
	m := concurrency.NewRWMutex(s, "m")
	_, err := c.Put(ctx, m.Reader().Key(), "\x00coordd-lock shared", client.WithLease(s.Lease()))
	must(t, err)
	other := concurrency.NewRWMutex(session(t, n.Client()), "m")
	must(t, other.RLock(ctx)) // passes it

	heir := concurrency.NewRWMutex(session(t, c, concurrency.WithLease(s.Lease())), "m")
	f.mu.Lock()
	f.lose = []string{txnMethod, txnMethod}
	f.mu.Unlock()
	wantIs(t, "try", heir.TryLock(ctx), concurrency.ErrLocked)
	locked := make(chan error, 1)
	go func() { locked <- heir.Lock(ctx) }()
	count(t, c, "m/", 2)
	must(t, other.RUnlock(ctx))
	must(t, <-locked)
	must(t, heir.Unlock(ctx))
}

// More readers than fit a page wait for the writer before them, and not for each other.
func TestManyReaders(t *testing.T) {
	n := testnode.Start(t)
	ctx := within(t)
	c := n.Client()
	w := concurrency.NewMutex(session(t, c), "m")
	must(t, w.Lock(ctx))
	const many = 130
	var wg sync.WaitGroup
	for range many {
		m := concurrency.NewRWMutex(session(t, c), "m")
		wg.Go(func() {
			if err := m.RLock(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	count(t, c, "m/", many+1)
	wantIs(t, "try", w.Lock(ctx), concurrency.ErrInUse)
	must(t, w.Unlock(ctx))
	wg.Wait()
	count(t, c, "m/", many)
	must(t, concurrency.NewRWMutex(session(t, c), "m").TryRLock(ctx))
}
