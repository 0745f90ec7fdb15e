package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/concurrency"
	"github.com/coordd/coordd/internal/testnode"
)

const txnMethod = "/etcdserverpb.KV/Txn"

func wantIs(t testing.TB, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: %v, want %v", what, err, target)
	}
}

func TestMutex(t *testing.T) {
	c := testnode.Start(t).Client()
	ctx := within(t)
	a, b := concurrency.NewMutex(session(t, c), "m"), concurrency.NewMutex(session(t, c), "m")
	owns := func(m *concurrency.Mutex) bool {
		r, err := c.Txn(ctx).If(m.IsOwner()).Then(client.OpGet("x")).Commit()
		must(t, err)
		return r.Succeeded
	}
	if owns(a) || a.FencingToken() != 0 {
		t.Error("a lock that was never taken is held")
	}
	wantIs(t, "unlock before lock", a.Unlock(ctx), concurrency.ErrNotHeld)
	must(t, a.Lock(ctx))
	if !owns(a) || owns(b) {
		t.Error("IsOwner does not tell who holds the lock")
	}
	rev, err := c.Get(ctx, "m", client.WithPrefix())
	must(t, err)
	if rev.Count != 1 || string(rev.Kvs[0].Key) != a.Key() || rev.Kvs[0].CreateRevision != a.FencingToken() {
		t.Errorf("keys %v, want %s with token %d", rev.Kvs, a.Key(), a.FencingToken())
	}
	before := rev.Header.Revision
	wantIs(t, "try", b.TryLock(ctx), concurrency.ErrLocked)
	if r, _ := c.Get(ctx, "m"); r.Header.Revision != before {
		t.Error("a try in vain wrote something")
	}
	first := a.FencingToken()
	must(t, a.Unlock(ctx))
	if owns(a) || a.FencingToken() != 0 {
		t.Error("the lock is held after Unlock")
	}
	must(t, b.TryLock(ctx))
	if b.FencingToken() <= first {
		t.Errorf("token %d after %d", b.FencingToken(), first)
	}
	must(t, b.Unlock(ctx))
	wantIs(t, "second unlock", b.Unlock(ctx), concurrency.ErrNotHeld)
	count(t, c, "m", 0)
}

// A name is no prefix of another.
func TestNames(t *testing.T) {
	c := testnode.Start(t).Client()
	s := session(t, c)
	must(t, concurrency.NewMutex(s, "a").Lock(within(t)))
	must(t, concurrency.NewMutex(session(t, c), "ab").TryLock(within(t)))
	must(t, concurrency.NewMutex(session(t, c), "").TryLock(within(t)))
}

func TestOneSessionTwice(t *testing.T) {
	c := testnode.Start(t).Client()
	ctx := within(t)
	s := session(t, c)
	a, b := concurrency.NewMutex(s, "m"), concurrency.NewMutex(s, "m")
	must(t, a.Lock(ctx))
	wantIs(t, "the same again", a.Lock(ctx), concurrency.ErrInUse)
	wantIs(t, "another of the name", b.Lock(ctx), concurrency.ErrInUse)
	wantIs(t, "try", b.TryLock(ctx), concurrency.ErrInUse)
	wantIs(t, "election of the name", concurrency.NewElection(s, "m").Campaign(ctx, "x"), concurrency.ErrInUse)
	wantIs(t, "unlock of the other", b.Unlock(ctx), concurrency.ErrNotHeld)
	must(t, a.Unlock(ctx))
	must(t, b.Lock(ctx))

	// A key on our lease that we did not make belongs to somebody who was given the lease.
	_, err := c.Put(ctx, fmt.Sprintf("other/%x", int64(s.Lease())), "", client.WithLease(s.Lease()))
	must(t, err)
	wantIs(t, "lease used elsewhere", concurrency.NewMutex(s, "other").Lock(ctx), concurrency.ErrInUse)
}

func TestFirstComeFirstServed(t *testing.T) {
	c := testnode.Start(t).Client()
	ctx := within(t)
	first := concurrency.NewMutex(session(t, c), "m")
	must(t, first.Lock(ctx))
	const n = 12
	var wg sync.WaitGroup
	order := make(chan int, n)
	for i := range n {
		m := concurrency.NewMutex(session(t, c), "m")
		wg.Go(func() {
			if err := m.Lock(ctx); err != nil {
				t.Error(err)
				return
			}
			order <- i
			if err := m.Unlock(ctx); err != nil {
				t.Error(err)
			}
		})
		count(t, c, "m/", int64(i+2))
	}
	must(t, first.Unlock(ctx))
	wg.Wait()
	for want := range n {
		if got := <-order; got != want {
			t.Fatalf("number %d was served in place %d", got, want)
		}
	}
}

// A waiter whose lease ends, or whose context does, fails at once, while the holder still holds.
func TestWaiterFails(t *testing.T) {
	c := testnode.Start(t).Client()
	ctx := within(t)
	holder := concurrency.NewMutex(session(t, c), "m")
	must(t, holder.Lock(ctx))
	for _, kase := range []struct {
		name string
		end  func(s *concurrency.Session, cancel context.CancelCauseFunc)
		want error
	}{
		{"revoked", func(s *concurrency.Session, _ context.CancelCauseFunc) {
			_, err := c.Revoke(ctx, s.Lease())
			must(t, err)
		}, concurrency.ErrSessionExpired},
		{"deleted", func(s *concurrency.Session, _ context.CancelCauseFunc) {
			_, err := c.Delete(ctx, concurrency.NewMutex(s, "m").Key())
			must(t, err)
		}, concurrency.ErrLost},
		{"closed", func(s *concurrency.Session, _ context.CancelCauseFunc) { must(t, s.Close()) }, concurrency.ErrSessionClosed},
		{"orphaned", func(s *concurrency.Session, _ context.CancelCauseFunc) { s.Orphan() }, concurrency.ErrSessionClosed},
		{"cancelled", func(_ *concurrency.Session, cancel context.CancelCauseFunc) { cancel(nil) }, context.Canceled},
		{"cause", func(_ *concurrency.Session, cancel context.CancelCauseFunc) { cancel(errs.ErrStopped) }, errs.ErrStopped},
	} {
		t.Run(kase.name, func(t *testing.T) {
			s := session(t, c)
			wait, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			failed := make(chan error, 1)
			go func() { failed <- concurrency.NewMutex(s, "m").Lock(wait) }()
			count(t, c, "m/", 2)
			kase.end(s, cancel)
			wantIs(t, "lock", <-failed, kase.want)
			count(t, c, "m/", 1) // it leaves no key
		})
	}
	must(t, holder.Unlock(ctx))
}

// A waiter in the middle of the queue that gives up lets nobody pass the holder.
func TestMiddleOfQueueLeaves(t *testing.T) {
	c := testnode.Start(t).Client()
	ctx := within(t)
	a, b, d := session(t, c), session(t, c), session(t, c)
	ma, md := concurrency.NewMutex(a, "m"), concurrency.NewMutex(d, "m")
	must(t, ma.Lock(ctx))
	second, third := make(chan error, 1), make(chan error, 1)
	go func() { second <- concurrency.NewMutex(b, "m").Lock(ctx) }()
	count(t, c, "m/", 2)
	go func() { third <- md.Lock(ctx) }()
	count(t, c, "m/", 3)
	_, err := c.Revoke(ctx, b.Lease())
	must(t, err)
	wantIs(t, "second", <-second, concurrency.ErrSessionExpired)
	// The third looks again now; give the store one more revision, and it must still wait.
	r, err := c.Txn(ctx).If(ma.IsOwner()).Then(client.OpPut("x", "")).Commit()
	must(t, err)
	select {
	case err := <-third:
		t.Fatalf("the third passed the holder (%v) at revision %d", err, r.Header.Revision)
	default:
	}
	token := ma.FencingToken()
	must(t, ma.Unlock(ctx))
	must(t, <-third)
	if md.FencingToken() <= token {
		t.Errorf("token %d after %d", md.FencingToken(), token)
	}
}

// guarded is a resource outside of the store that checks tokens.
type guarded struct {
	mu       sync.Mutex
	largest  int64
	value    int
	accepted int
}

func (g *guarded) read(token int64) (int, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.largest = max(g.largest, token)
	return g.value, token == g.largest
}

func (g *guarded) write(token int64, v int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if token < g.largest {
		return false
	}
	g.largest, g.value = token, v
	g.accepted++
	return true
}

// Sessions are taken away from holders and waiters at random; the resource loses no update.
func TestTokensGuard(t *testing.T) {
	n := testnode.Start(t)
	admin := n.Client()
	ctx := within(t)
	var g guarded
	var wg sync.WaitGroup
	for i := range 8 {
		c := fresh(t, n.Conn())
		wg.Go(func() {
			for j := range 12 {
				s, err := concurrency.NewSession(ctx, c)
				if err != nil {
					t.Error(err)
					return
				}
				m := concurrency.NewMutex(s, "m")
				err = m.Lock(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				v, ok := g.read(m.FencingToken())
				if !ok {
					t.Error("a new holder has an old token")
				}
				if (i+j)%3 == 0 { // it is lost now, and another goes on
					if _, err := admin.Revoke(ctx, s.Lease()); err != nil {
						t.Error(err)
					}
				}
				g.write(m.FencingToken(), v+1)
				err = m.Unlock(ctx)
				if (i+j)%3 == 0 {
					wantIs(t, "unlock of a lost lock", err, concurrency.ErrNotHeld)
				} else if err != nil {
					t.Error(err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if g.value != g.accepted || g.accepted < 64 {
		t.Errorf("value %d after %d accepted updates of 96", g.value, g.accepted)
	}
}

func TestLocker(t *testing.T) {
	c := testnode.Start(t).Client()
	l := concurrency.NewLocker(session(t, c), "m")
	n := 0
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				l.Lock()
				n++ // the race detector tells if the lock is none
				l.Unlock()
			}
		})
	}
	wg.Wait()
	if n != 40 {
		t.Errorf("counted %d", n)
	}
	s := session(t, c)
	must(t, s.Close())
	defer func() {
		err, _ := recover().(error)
		wantIs(t, "panic", err, concurrency.ErrSessionClosed)
	}()
	concurrency.NewLocker(s, "m").Lock()
}

func TestWhileHeld(t *testing.T) {
	c := testnode.Start(t).Client()
	ctx := within(t)
	s := session(t, c)
	m := concurrency.NewMutex(s, "m")
	none, done := m.WhileHeld(ctx)
	wantIs(t, "not held", context.Cause(none), concurrency.ErrNotHeld)
	done()
	must(t, m.Lock(ctx))
	held, done := m.WhileHeld(ctx)
	defer done()
	must(t, held.Err())
	_, err := c.Delete(ctx, m.Key())
	must(t, err)
	<-held.Done()
	wantIs(t, "cause", context.Cause(held), concurrency.ErrLost)
	if s.Err() != nil {
		t.Error("the session ended with the lock")
	}
	wantIs(t, "lock before unlock", m.Lock(ctx), concurrency.ErrInUse)
	wantIs(t, "unlock", m.Unlock(ctx), concurrency.ErrNotHeld)
	must(t, m.Lock(ctx))
	given, done2 := m.WhileHeld(ctx)
	defer done2()
	must(t, m.Unlock(ctx))
	<-given.Done()
}

// The reply to Unlock is lost, and the key is taken again before the client repeats it.
func TestRepeatedUnlock(t *testing.T) {
	n := testnode.Start(t)
	ctx := within(t)
	f, c := over(t, n)
	s := session(t, c)
	m := concurrency.NewMutex(s, "m")
	must(t, m.Lock(ctx))
	later := concurrency.NewMutex(session(t, n.Client(), concurrency.WithLease(s.Lease())), "m")
	f.mu.Lock()
	f.lose, f.after = []string{txnMethod}, func() { must(t, later.Lock(ctx)) }
	f.mu.Unlock()
	must(t, m.Unlock(ctx))
	if later.Key() != m.Key() {
		t.Fatal("the later lock has another key, so this test shows nothing")
	}
	r, err := n.Client().Txn(ctx).If(later.IsOwner()).Commit()
	must(t, err)
	if !r.Succeeded {
		t.Error("the repeated Unlock deleted a later lock")
	}
}

// Replies to Lock are lost.
func TestRepeatedLock(t *testing.T) {
	n := testnode.Start(t)
	ctx := within(t)
	f, c := over(t, n)
	s := session(t, c)
	m := concurrency.NewMutex(s, "m")
	f.mu.Lock()
	f.lose = []string{txnMethod, txnMethod}
	f.mu.Unlock()
	must(t, m.Lock(ctx))
	count(t, c, "m/", 1)
	must(t, m.Unlock(ctx))

	// The context ends with the reply: nothing is left, and the session can go on.
	short, cancel := context.WithCancel(ctx)
	f.mu.Lock()
	f.lose, f.after = []string{txnMethod}, cancel
	f.mu.Unlock()
	if err := m.Lock(short); err == nil {
		t.Error("locked though the context ended")
	}
	count(t, c, "m/", 0)
	must(t, m.Lock(ctx))
}

// A session that cannot renew its lease ends before another gets its lock.
func TestSessionCutOff(t *testing.T) {
	n := testnode.Start(t)
	ctx := within(t)
	f, c := over(t, n)
	f.mute.Store(true)
	s := session(t, c, concurrency.WithTTL(time.Second))
	m := concurrency.NewMutex(s, "m")
	must(t, m.Lock(ctx))
	must(t, concurrency.NewMutex(session(t, n.Client()), "m").Lock(ctx))
	select {
	case <-s.Done():
		wantIs(t, "session", s.Err(), concurrency.ErrSessionExpired)
		wantIs(t, "session", s.Err(), client.ErrLeaseUnconfirmed)
	default:
		t.Error("another holds the lock, and the session does not know")
	}
	wantIs(t, "lock", m.Lock(ctx), concurrency.ErrSessionExpired)
}
