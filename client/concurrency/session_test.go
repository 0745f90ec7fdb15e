package concurrency_test

import (
	"context"
	"testing"
	"time"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/concurrency"
	"github.com/coordd/coordd/internal/testnode"
)

func TestSession(t *testing.T) {
	c := testnode.Start(t).Client()
	ctx := within(t)
	s := session(t, c, concurrency.WithTTL(1500*time.Millisecond))
	if s.TTL() != 2*time.Second || s.Err() != nil || s.Client() != c {
		t.Errorf("session %v %v", s.TTL(), s.Err())
	}
	if r, err := c.TimeToLive(ctx, s.Lease()); err != nil || r.GrantedTTL != 2 {
		t.Errorf("lease %v %v", r, err)
	}
	must(t, s.Close())
	<-s.Done()
	<-s.Context().Done()
	wantIs(t, "session", s.Err(), concurrency.ErrSessionClosed)
	if r, err := c.TimeToLive(ctx, s.Lease()); err != nil || r.TTL != -1 {
		t.Errorf("after Close the lease is %v %v", r, err)
	}
	must(t, s.Close())
}

func TestSessionOrphan(t *testing.T) {
	c := testnode.Start(t).Client()
	ctx := within(t)
	s := session(t, c)
	must(t, concurrency.NewMutex(s, "m").Lock(ctx))
	s.Orphan()
	<-s.Done()
	wantIs(t, "try of another", concurrency.NewMutex(session(t, c), "m").TryLock(ctx), concurrency.ErrLocked)

	// Another process takes the lease, and the lock with it.
	heir := session(t, c, concurrency.WithLease(s.Lease()))
	m := concurrency.NewMutex(heir, "m")
	must(t, m.Lock(ctx))
	must(t, m.Unlock(ctx))
	must(t, heir.Close())
	_, err := concurrency.NewSession(ctx, c, concurrency.WithLease(s.Lease()))
	wantIs(t, "lease that is gone", err, errs.ErrLeaseNotFound)
}

func TestSessionEnds(t *testing.T) {
	c := testnode.Start(t).Client()
	life, end := context.WithCancel(within(t))
	s := session(t, c, concurrency.WithContext(life))
	end()
	<-s.Done()
	wantIs(t, "session", s.Err(), concurrency.ErrSessionClosed)
	wantIs(t, "session", s.Err(), context.Canceled)
	wantIs(t, "lock", concurrency.NewMutex(s, "m").Lock(within(t)), concurrency.ErrSessionClosed)

	s = session(t, c, concurrency.WithTTL(time.Second))
	_, err := c.Revoke(within(t), s.Lease())
	must(t, err)
	<-s.Done()
	wantIs(t, "session", s.Err(), concurrency.ErrSessionExpired)
	must(t, s.Close())
}

func TestSessionOfClosedClient(t *testing.T) {
	n := testnode.Start(t)
	c := fresh(t, n.Conn())
	s := session(t, c)
	must(t, c.Close())
	<-s.Done()
	wantIs(t, "session", s.Err(), client.ErrClosed)
}
