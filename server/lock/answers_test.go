package lock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/coordd/coordd/api/coorddpb"
	"github.com/coordd/coordd/api/electionpb"
	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/lockpb"
	"github.com/coordd/coordd/api/rpcpb"
)

// answering is a store that answers for leases as the test says.
type answering struct {
	Store
	timeToLive func(*rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error)
}

func (a *answering) LeaseTimeToLive(_ context.Context, r *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error) {
	return a.timeToLive(r)
}

// with puts the service of a member that nobody has used yet on a store.
func (m *member) with(s Store) { m.Service = New(Options{Store: s, Hub: m.node.Hub()}) }

// A call with a lock delay that fails in the end, the guard's goroutine being there already, leaves neither key nor guard.
func TestFailedCallTakesItsGuardAlong(t *testing.T) {
	m := one(t)
	m.with(&answering{m.node, func(r *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error) {
		return &rpcpb.LeaseTimeToLiveResponse{ID: r.ID, TTL: -1}, nil
	}})
	id := m.lease(600)
	for range 20 {
		r := ask1("l", id)
		r.LockDelayMs = 60_000
		if _, err := m.Lock(bg(t), Connection{}, r); !errors.Is(err, errs.ErrSessionExpired) {
			t.Fatal(err)
		}
	}
	until(t, "keys and guards to go", func() bool { return len(m.keys("l")) == 0 })
}

// deaf is a store that answers no transaction while it is off, as a member does that has lost the leader.
type deaf struct {
	Store
	off atomic.Bool
}

func (d *deaf) Txn(ctx context.Context, r *rpcpb.TxnRequest) (*rpcpb.TxnResponse, error) {
	if d.off.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return d.Store.Txn(ctx, r)
}

// A waiter whose lease has ended is told so at once, also by a member that can write nothing at the time: its key has gone with the lease.
func TestLeaseEndedWithoutALeader(t *testing.T) {
	m := one(t)
	d := &deaf{Store: m.node}
	m.with(d)
	m.mustLock(ask1("l", m.lease(600)))
	for name, wait := range map[string]func(id int64) <-chan error{
		"lock": func(id int64) <-chan error {
			got := make(chan error, 1)
			go func() { _, err := m.Lock(bg(t), Connection{}, ask1("l", id)); got <- err }()
			return got
		},
		"campaign": func(id int64) <-chan error {
			got := make(chan error, 1)
			go func() {
				_, err := m.Campaign(bg(t), Connection{}, &electionpb.CampaignRequest{Name: []byte("l"), Lease: id})
				got <- err
			}()
			return got
		},
	} {
		id := m.lease(600)
		got := wait(id)
		m.untilQueue("l", 2)
		d.off.Store(true)
		m.revoke(id)
		if err := await(t, got); !errors.Is(err, errs.ErrSessionExpired) {
			t.Errorf("%s: %v", name, err)
		}
		d.off.Store(false)
	}
}

// A lease that has a place in a queue cannot be told that it holds the lock in another way than that place does: two with a shared lock
// would hold it, one of them believing that it is alone.
func TestAgainInAnotherMode(t *testing.T) {
	m := one(t)
	a, b := m.lease(600), m.lease(600)
	shared := func(id int64) *lockpb.LockRequest {
		r := ask1("l", id)
		r.Shared = true
		return r
	}
	first := m.mustLock(shared(a))
	m.mustLock(shared(b))
	for _, try := range []bool{false, true} {
		r := ask1("l", a)
		r.Try = try
		if _, err := m.Lock(bg(t), Connection{}, r); !errors.Is(err, errs.ErrOtherMode) {
			t.Errorf("try %t: %v", try, err)
		}
	}
	if again := m.mustLock(shared(a)); again.FencingToken != first.FencingToken {
		t.Errorf("asked again for the same: token %d after %d", again.FencingToken, first.FencingToken)
	}
}

// What a lease has left is told in whole seconds; in its last one the lock is still held.
func TestHoldThroughTheLastSecond(t *testing.T) {
	m := one(t)
	var asked atomic.Int32
	m.with(&answering{m.node, func(r *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error) {
		resp := &rpcpb.LeaseTimeToLiveResponse{ID: r.ID, GrantedTTL: 600}
		if asked.Add(1) > 4 {
			resp.TTL = -1
		}
		return resp, nil
	}})
	s := m.hold(&coorddpb.HoldRequest{Name: []byte("l"), Lease: m.lease(600)})
	s.want(t, held, none)
	s.want(t, lost, coorddpb.HoldReason_HOLD_REASON_LEASE_ENDED)
	if n := asked.Load(); n < 5 {
		t.Errorf("lost after %d answers, in the first four of which the lease lived", n)
	}
}

// Who has gone before it is told that it holds a lock does not keep it.
func TestGoneBeforeTheAnswer(t *testing.T) {
	m := one(t)
	ctx, leave := context.WithCancel(bg(t))
	m.with(&answering{m.node, func(r *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error) {
		leave() // the last thing the call asks
		return &rpcpb.LeaseTimeToLiveResponse{ID: r.ID, TTL: 600, GrantedTTL: 600}, nil
	}})
	if _, err := m.Lock(ctx, Connection{}, &lockpb.LockRequest{Name: []byte("l"), Lease: m.lease(600)}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	until(t, "the key to go", func() bool { return len(m.keys("l")) == 0 })
}

// A call that gives up leaves the key to another call with the same lease, whichever of them wrote it first.
func TestGivingUpLeavesOthersTheKey(t *testing.T) {
	m := one(t)
	id := m.lease(600)
	key := keyOf([]byte("l"), id)
	holder := m.mustLock(ask1("l", m.lease(600)))
	tickets := func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		if l := m.lines["l"]; l != nil {
			return len(l.tickets[string(key)])
		}
		return 0
	}
	stand := func() (<-chan outcome, context.CancelFunc) {
		before := tickets()
		c, leave := stand1(m, id)
		until(t, "the call to stand", func() bool { return tickets() == before+1 })
		return c, leave
	}
	quit := func(c <-chan outcome, leave context.CancelFunc) {
		t.Helper()
		leave()
		if o := await(t, c); !errors.Is(o.err, context.Canceled) {
			t.Fatal(o.err)
		}
	}
	made, leaveMade := stand()
	second, _ := stand()
	third, leaveThird := stand()
	quit(made, leaveMade)
	quit(third, leaveThird)
	m.mustUnlock(holder)
	o := await(t, second)
	if o.err != nil {
		t.Fatal(o.err)
	}
	late, leaveLate := stand1(m, id) // it was made before, and comes after
	leaveLate()
	await(t, late)
	m.settle()
	if kvs := m.keys("l"); len(kvs) != 1 || kvs[0].GetCreateRevision() != o.resp.GetFencingToken() {
		t.Errorf("%v, want the key of the holder", kvs)
	}
	if n := len(m.asking); n != 0 {
		t.Errorf("%d keys for which calls are under way", n)
	}
}

// stand1 asks for a lock with a context that the caller ends.
func stand1(m *member, id int64) (<-chan outcome, context.CancelFunc) {
	ctx, leave := context.WithCancel(bg(m.t))
	return m.later(ctx, ask1("l", id)), leave
}

// Who gives up alone takes its key along.
func TestGivingUpTakesTheKeyAlong(t *testing.T) {
	m := one(t)
	m.mustLock(ask1("l", m.lease(600)))
	ctx, leave := context.WithCancel(bg(t))
	c := m.later(ctx, ask1("l", m.lease(600)))
	m.untilQueue("l", 2)
	leave()
	if o := await(t, c); !errors.Is(o.err, context.Canceled) {
		t.Fatal(o.err)
	}
	if n := len(m.keys("l")); n != 1 {
		t.Errorf("%d keys, want the holder's alone", n)
	}
}

// A member that ends in order leaves the guards of locks to their leases.
func TestStopLeavesGuards(t *testing.T) {
	m := one(t)
	r := ask1("l", m.lease(600))
	r.LockDelayMs = 60_000
	m.mustLock(r)
	m.Stop()
	m.Close()
	other := New(Options{Store: m.node, Hub: m.node.Hub()})
	m.Service = other
	if n := len(m.keys("l")); n != 2 {
		t.Errorf("%d keys, want the lock's and its guard's", n)
	}
}
