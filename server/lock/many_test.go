package lock

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coordd/api/lockpb"
	"github.com/coordd/coordd/api/rpcpb"
)

// manyWaiters is how many wait in TestManyWaiters.
const manyWaiters = 10_000

// maxWaiterBytes is what one waiter may cost in memory: the goroutine of its call with its stack, its ticket, its place in the line, and
// what the member needs for its key. What gRPC needs for the call comes on top.
const maxWaiterBytes = 14 << 10

// With ten thousand waiters on one lock a release wakes one, and costs about what it costs with few.
func TestManyWaiters(t *testing.T) {
	m := one(t)
	n := manyWaiters
	if testing.Short() || raceEnabled {
		n /= 20
	}
	leases := make([]int64, n)
	var grants sync.WaitGroup
	granting := t.Context()
	for w := range 64 {
		grants.Go(func() {
			for i := w; i < n; i += 64 {
				r, err := m.node.LeaseGrant(granting, &rpcpb.LeaseGrantRequest{TTL: 6000})
				if err != nil {
					t.Error(err)
				}
				leases[i] = r.GetID()
			}
		})
	}
	grants.Wait()
	held := m.mustLock(ask1("l", m.lease(6000)))
	before := memory()
	ctx, cancel := context.WithCancel(context.Background())
	got := make(chan outcome, n)
	var calls sync.WaitGroup
	waiting := func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		if l := m.lines["l"]; l != nil {
			return min(len(l.tickets), len(l.queue.entries)-1)
		}
		return 0
	}
	for i, id := range leases {
		calls.Go(func() {
			r, err := m.Lock(ctx, Connection{}, ask1("l", id))
			got <- outcome{r, err}
		})
		if i%1000 == 999 || i == n-1 { // more at once would be too many requests
			until(t, "all to wait", func() bool { return waiting() == i+1 || len(got) > 0 })
		}
	}
	if len(got) > 0 {
		t.Fatalf("a waiter did not wait: %+v", <-got)
	}
	each := (memory() - before) / uint64(n)
	t.Logf("%d bytes for each waiter, with its key in the store", each)
	if !raceEnabled && n == manyWaiters && each > maxWaiterBytes {
		t.Errorf("a waiter takes %d bytes", each)
	}
	if h := m.node.Hub().Stats(); h.Streams != 1 || h.Watchers != 1 {
		t.Errorf("the hub has %d streams and %d watchers", h.Streams, h.Watchers)
	}
	for range 20 {
		begin := time.Now()
		if _, err := m.Unlock(bg(t), &lockpb.UnlockRequest{Key: held.Key}); err != nil {
			t.Fatal(err)
		}
		o := await(t, got)
		if o.err != nil {
			t.Fatal(o.err)
		}
		held = o.resp
		t.Logf("a hand-over took %v", time.Since(begin))
		if len(got) != 0 {
			t.Fatal("a release woke more than one")
		}
		m.mu.Lock()
		told := 0
		for _, tickets := range m.lines["l"].tickets {
			for _, tk := range tickets {
				told += len(tk.news)
			}
		}
		m.mu.Unlock()
		if told != 0 {
			t.Fatalf("%d others were told something", told)
		}
	}
	cancel()
	calls.Wait()
}

// memory is the bytes of heap and stacks in use.
func memory() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapInuse + s.StackInuse
}
