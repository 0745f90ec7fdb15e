package lock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/lockpb"
)

func ask1(name string, lease int64) *lockpb.LockRequest {
	return &lockpb.LockRequest{Name: []byte(name), Lease: lease}
}

func TestLockReply(t *testing.T) {
	m := one(t)
	id := m.lease(600)
	r := m.mustLock(ask1("a/b", id))
	kvs := m.keys("a/b")
	if len(kvs) != 1 || string(r.Key) != fmt.Sprintf("a/b/%x", uint64(id)) || string(kvs[0].GetKey()) != string(r.Key) || len(kvs[0].GetValue()) != 0 || kvs[0].GetLease() != id {
		t.Fatalf("%v in queue %v", r, kvs)
	}
	if !r.Acquired || r.Lease != id || r.FencingToken != kvs[0].GetCreateRevision() || r.RemainingTtlMs < 300_000 || r.RemainingTtlMs > 600_000 {
		t.Errorf("%v", r)
	}
	again := m.mustLock(ask1("a/b", id))
	if string(again.Key) != string(r.Key) || again.FencingToken != r.FencingToken {
		t.Errorf("a second lock with the lease: %v, first %v", again, r)
	}
	m.mustUnlock(r)
	next := m.mustLock(ask1("a/b", m.lease(600)))
	if next.FencingToken <= r.FencingToken {
		t.Errorf("token %d after %d", next.FencingToken, r.FencingToken)
	}
}

// Waiters on all members get the lock in the order in which they came, one per release, and one hand-over costs two log entries at most.
func TestFIFOOverMembers(t *testing.T) {
	ms := cluster(t, 3)
	held := ms[0].mustLock(ask1("l", ms[0].lease(600)))
	var waits []<-chan outcome
	for i := range 9 {
		m := ms[i%3]
		waits = append(waits, m.later(bg(t), ask1("l", m.lease(600))))
		ms[0].untilQueue("l", i+2)
	}
	for i, c := range waits {
		silent(t, ms[i%3], c)
		for _, later := range waits[i:] {
			if len(later) != 0 {
				t.Fatalf("turn %d: somebody came too early", i)
			}
		}
		before := ms[0].applied()
		ms[(i+1)%3].mustUnlock(held)
		o := await(t, c)
		if o.err != nil {
			t.Fatal(o.err)
		}
		if o.resp.FencingToken <= held.FencingToken {
			t.Errorf("token %d after %d", o.resp.FencingToken, held.FencingToken)
		}
		ms[0].settle()
		if n := ms[0].applied() - before; n > 2 {
			t.Errorf("a hand-over took %d log entries", n)
		}
		held = o.resp
	}
}

func TestWaiterLosesItsLease(t *testing.T) {
	m := one(t)
	m.mustLock(ask1("l", m.lease(600)))
	id := m.lease(600)
	c := m.later(bg(t), ask1("l", id))
	m.untilQueue("l", 2)
	m.revoke(id)
	if o := await(t, c); !errors.Is(o.err, errs.ErrSessionExpired) {
		t.Errorf("%+v", o)
	}
	if _, err := m.Lock(bg(t), Connection{}, ask1("l", 12345)); !errors.Is(err, errs.ErrLeaseNotFound) {
		t.Errorf("with an unknown lease: %v", err)
	}
	if n := len(m.keys("l")); n != 1 {
		t.Errorf("%d keys", n)
	}
}

func TestCanceledWaiterLeavesNoKey(t *testing.T) {
	m := one(t)
	held := m.mustLock(ask1("l", m.lease(600)))
	ctx, cancel := context.WithCancel(context.Background())
	quitter := m.later(ctx, ask1("l", m.lease(600)))
	m.untilQueue("l", 2)
	last := m.later(bg(t), ask1("l", m.lease(600)))
	m.untilQueue("l", 3)
	cancel()
	if o := await(t, quitter); !errors.Is(o.err, context.Canceled) {
		t.Errorf("%+v", o)
	}
	if n := len(m.keys("l")); n != 2 {
		t.Errorf("%d keys after the call has returned", n)
	}
	silent(t, m, last)
	m.mustUnlock(held)
	if o := await(t, last); o.err != nil {
		t.Error(o.err)
	}
}

// Two calls with one lease share a place; one that gives up does not take it from the other.
func TestCanceledTwin(t *testing.T) {
	m := one(t)
	held := m.mustLock(ask1("l", m.lease(600)))
	id := m.lease(600)
	stays := m.later(bg(t), ask1("l", id))
	m.untilQueue("l", 2)
	ctx, cancel := context.WithCancel(context.Background())
	quits := m.later(ctx, ask1("l", id))
	until(t, "both to wait", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		l := m.lines["l"]
		return l != nil && l.refs == 2 && len(l.tickets[string(keyOf([]byte("l"), id))]) == 2
	})
	cancel()
	await(t, quits)
	m.mustUnlock(held)
	if o := await(t, stays); o.err != nil {
		t.Error(o.err)
	}
}

// A session made for lease 0 is renewed while the connection lives, ends with it, and ends with the unlock.
func TestSessionOfConnection(t *testing.T) {
	m := one(t)
	conn, hangUp := context.WithCancel(context.Background())
	defer hangUp()
	r, err := m.Lock(bg(t), Connection{Alive: conn}, &lockpb.LockRequest{Name: []byte("l"), Ttl: 3})
	if err != nil {
		t.Fatal(err)
	}
	if r.Lease == 0 || r.RemainingTtlMs <= 0 || r.RemainingTtlMs > 3000 {
		t.Errorf("%v", r)
	}
	long, err := m.Lock(bg(t), Connection{Alive: conn}, &lockpb.LockRequest{Name: []byte("long"), Ttl: 600})
	if err != nil {
		t.Fatal(err)
	}
	throughout(t, 4*time.Second, "held", func() bool { return len(m.keys("l")) == 1 })
	next := m.later(bg(t), &lockpb.LockRequest{Name: []byte("long")})
	m.untilQueue("long", 2)
	hangUp()
	o := await(t, next) // long before the time to live of the holder is over
	if o.err != nil {
		t.Fatal(o.err)
	}
	if o.resp.FencingToken <= long.FencingToken {
		t.Errorf("token %d after %d", o.resp.FencingToken, long.FencingToken)
	}
	m.mustUnlock(o.resp)
	until(t, "the sessions to end", func() bool {
		l, err := m.node.LeaseLeases(bg(t))
		return err == nil && len(l.GetLeases()) == 0
	})
}

// A session whose lock was given back at another member ends, too.
func TestSessionUnlockedElsewhere(t *testing.T) {
	ms := cluster(t, 3)
	r := ms[0].mustLock(&lockpb.LockRequest{Name: []byte("l"), Ttl: 1})
	ms[1].mustUnlock(r)
	until(t, "the session to end", func() bool {
		l, err := ms[0].node.LeaseLeases(bg(t))
		return err == nil && len(l.GetLeases()) == 0
	})
}

// A late or repeated unlock does nothing to a later holder, and nothing but locks is deleted.
func TestUnlockOnlyWhatIsMeant(t *testing.T) {
	m := one(t)
	id := m.lease(600)
	old := m.mustLock(ask1("l", id))
	m.mustUnlock(old)
	now := m.mustLock(ask1("l", id)) // the same key with another token
	m.mustUnlock(old)
	if n := len(m.keys("l")); n != 1 {
		t.Fatal("a late unlock released a later lock")
	}
	if _, err := m.Unlock(bg(t), &lockpb.UnlockRequest{Key: now.Key, Lease: id + 1}); err != nil || len(m.keys("l")) != 1 {
		t.Fatalf("an unlock with another lease: %v", err)
	}
	for _, key := range []string{"data", "data/12ab", "data/zz", "data/"} {
		m.put(key, "v")
		if _, err := m.Unlock(bg(t), &lockpb.UnlockRequest{Key: []byte(key)}); !errors.Is(err, errs.ErrNotLock) {
			t.Errorf("unlock of %s: %v", key, err)
		}
		if kv, _, err := m.get(bg(t), []byte(key), false); err != nil || kv == nil {
			t.Errorf("%s was deleted: %v", key, err)
		}
	}
	for _, key := range []string{"none", "none/12ab"} {
		if _, err := m.Unlock(bg(t), &lockpb.UnlockRequest{Key: []byte(key)}); err != nil {
			t.Errorf("unlock of nothing: %v", err)
		}
	}
	other := m.lease(600)
	m.put(string(keyOf([]byte("taken"), other)), "data")
	if _, err := m.Lock(bg(t), Connection{}, ask1("taken", other)); !errors.Is(err, errs.ErrNotLock) {
		t.Errorf("lock where data is: %v", err)
	}
}

func TestTry(t *testing.T) {
	m := one(t)
	try := func(lease int64) *lockpb.LockResponse {
		t.Helper()
		return m.mustLock(&lockpb.LockRequest{Name: []byte("l"), Lease: lease, Try: true})
	}
	id := m.lease(600)
	r := try(id)
	if !r.Acquired {
		t.Fatalf("%v", r)
	}
	if again := try(id); !again.Acquired || again.FencingToken != r.FencingToken {
		t.Errorf("again: %v", again)
	}
	other := m.lease(600)
	before := m.applied()
	if b := try(other); b.Acquired || len(b.Key) != 0 {
		t.Errorf("busy: %v", b)
	}
	if b := try(0); b.Acquired {
		t.Errorf("busy, with a session: %v", b)
	}
	if m.applied() != before {
		t.Error("trying a busy lock wrote to the log")
	}
	m.mustUnlock(r)
	if r := try(other); !r.Acquired || len(m.keys("l")) != 1 {
		t.Errorf("%v", r)
	}
}

func TestSharedAndExclusive(t *testing.T) {
	m := one(t)
	reader := func() *lockpb.LockRequest {
		return &lockpb.LockRequest{Name: []byte("l"), Lease: m.lease(600), Shared: true}
	}
	r1, r2 := m.mustLock(reader()), m.mustLock(reader())
	writer := m.later(bg(t), ask1("l", m.lease(600)))
	m.untilQueue("l", 3)
	late := m.later(bg(t), reader())
	m.untilQueue("l", 4)
	m.mustUnlock(r1)
	silent(t, m, writer)
	silent(t, m, late)
	if b := m.mustLock(&lockpb.LockRequest{Name: []byte("l"), Lease: m.lease(600), Shared: true, Try: true}); b.Acquired {
		t.Error("a reader overtook a writer")
	}
	m.mustUnlock(r2)
	w := await(t, writer)
	silent(t, m, late)
	m.mustUnlock(w.resp)
	if o := await(t, late); o.err != nil {
		t.Error(o.err)
	}
}

func TestSemaphore(t *testing.T) {
	m := one(t)
	sem := func(limit int64) *lockpb.LockRequest {
		return &lockpb.LockRequest{Name: []byte("l"), Lease: m.lease(600), Limit: limit}
	}
	var held []*lockpb.LockResponse
	for range 3 {
		held = append(held, m.mustLock(sem(3)))
	}
	fourth := m.later(bg(t), sem(3))
	m.untilQueue("l", 4)
	silent(t, m, fourth)
	for _, limit := range []int64{2, 0, 1} {
		if _, err := m.Lock(bg(t), Connection{}, sem(limit)); !errors.Is(err, errs.ErrMixedLimits) {
			t.Errorf("limit %d beside 3: %v", limit, err)
		}
	}
	if n := len(m.keys("l")); n != 4 {
		t.Errorf("%d keys", n)
	}
	m.mustUnlock(held[1])
	if o := await(t, fourth); o.err != nil {
		t.Error(o.err)
	}
	for _, bad := range []*lockpb.LockRequest{{Limit: -1}, {Ttl: -1}, {LockDelayMs: -1}, {Shared: true, Limit: 2}} {
		if _, err := m.Lock(bg(t), Connection{}, bad); !errors.Is(err, errs.ErrLockRequest) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// A lock lost by its lease is kept from others for the delay, whoever asks; one given back is not.
func TestLockDelay(t *testing.T) {
	m := one(t)
	careful := func(id int64, delay time.Duration) *lockpb.LockRequest {
		return &lockpb.LockRequest{Name: []byte("l"), Lease: id, LockDelayMs: delay.Milliseconds()}
	}
	r := m.mustLock(careful(m.lease(600), 10*patience))
	next := m.later(bg(t), ask1("l", m.lease(600)))
	m.untilQueue("l", 3)
	m.mustUnlock(r)
	o := await(t, next) // long before the delay is over
	if o.err != nil {
		t.Fatalf("after an unlock: %v", o.err)
	}
	m.mustUnlock(o.resp)
	id := m.lease(600)
	const delay = time.Second
	m.mustLock(careful(id, delay))
	next = m.later(bg(t), ask1("l", m.lease(600)))
	m.untilQueue("l", 3)
	begin := time.Now()
	m.revoke(id)
	if b := m.mustLock(&lockpb.LockRequest{Name: []byte("l"), Lease: m.lease(600), Try: true}); b.Acquired {
		t.Error("somebody else got the lock within the delay")
	}
	o = await(t, next)
	if d := time.Since(begin); o.err != nil || d < delay {
		t.Fatalf("after a loss: %v, %v", d, o.err)
	}
	until(t, "the guards to end", func() bool { return len(m.keys("l")) == 1 })
}

// The lock goes on to the next when the cluster loses its leader while they wait.
func TestWaitSurvivesLeader(t *testing.T) {
	leader, rest := leading(t, cluster(t, 3))
	held := rest[0].mustLock(ask1("l", rest[0].lease(600)))
	c := rest[1].later(bg(t), ask1("l", rest[1].lease(600)))
	rest[0].untilQueue("l", 2)
	onLeader := leader.later(bg(t), ask1("l", leader.lease(600)))
	rest[0].untilQueue("l", 3)
	if err := leader.node.Close(); err != nil {
		t.Error(err)
	}
	if o := await(t, onLeader); !errors.Is(o.err, errs.ErrStopped) {
		t.Errorf("who waited on the member that has ended got %v", o.err)
	}
	until(t, "an unlock", func() bool {
		_, err := rest[0].Unlock(bg(t), &lockpb.UnlockRequest{Key: held.Key})
		return err == nil
	})
	if o := await(t, c); o.err != nil {
		t.Error(o.err)
	}
}

func TestStopFailsWaiters(t *testing.T) {
	m := one(t)
	m.mustLock(ask1("l", m.lease(600)))
	c := m.later(bg(t), ask1("l", m.lease(600)))
	m.untilQueue("l", 2)
	m.Stop()
	if o := await(t, c); !errors.Is(o.err, errs.ErrStopped) {
		t.Errorf("%+v", o)
	}
	if n := len(m.keys("l")); n != 1 {
		t.Errorf("%d keys", n)
	}
	if _, err := m.Lock(bg(t), Connection{}, ask1("x", 0)); !errors.Is(err, errs.ErrStopped) {
		t.Errorf("after Stop: %v", err)
	}
}

// A line goes on when a compaction has taken events that its watcher was still to get.
func TestReread(t *testing.T) {
	m := one(t)
	held := m.mustLock(ask1("l", m.lease(600)))
	first := m.later(bg(t), ask1("l", m.lease(600)))
	m.untilQueue("l", 2)
	second := m.later(bg(t), ask1("l", m.lease(600)))
	m.untilQueue("l", 3)
	m.settle()
	m.mu.Lock()
	l, d := m.lines["l"], m.dispatcher
	// As after a swap of stores: the watcher is gone and its line is behind.
	delete(d.lines, l.id)
	d.stream.Cancel(l.id)
	m.mu.Unlock()
	m.mustUnlock(held)
	m.mu.Lock()
	d.lines[l.id] = l
	m.mu.Unlock()
	m.reread(d, l.id)
	o := await(t, first)
	if o.err != nil {
		t.Fatal(o.err)
	}
	silent(t, m, second)
	m.mustUnlock(o.resp)
	if o := await(t, second); o.err != nil {
		t.Error(o.err)
	}
}

// When nobody waits any more, nothing is left in memory.
func TestNothingStays(t *testing.T) {
	m := one(t)
	r := m.mustLock(ask1("l", m.lease(600)))
	ctx, cancel := context.WithCancel(context.Background())
	c := m.later(ctx, ask1("l", m.lease(600)))
	m.untilQueue("l", 2)
	cancel()
	await(t, c)
	m.mustUnlock(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.lines) != 0 || m.dispatcher != nil || len(m.sessions) != 0 {
		t.Errorf("%d lines, dispatcher %v, %d sessions", len(m.lines), m.dispatcher, len(m.sessions))
	}
	if s := m.node.Hub().Stats(); s.Streams != 0 || s.Watchers != 0 {
		t.Errorf("hub: %+v", s)
	}
}
