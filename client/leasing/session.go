package leasing

import (
	"context"
	"errors"
	"time"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/client"
)

const (
	// marginPart is the part of the time to live that a lease is not trusted for at its end: for clocks that run at
	// different speeds.
	marginPart = 8
	// revokeTime bounds the attempt to revoke a lease; after it the lease ends by itself.
	revokeTime = 5 * time.Second
	// Pauses between attempts; they double from the first to the second.
	minPause = 10 * time.Millisecond
	maxPause = time.Second
)

// session is a lease and the holds on it.
type session struct {
	lease  client.LeaseID
	ttl    time.Duration
	keeper *client.Keeper
	ctx    context.Context // ends with the session, and by end
	end    context.CancelFunc
}

// newSession grants a lease and keeps it alive.
func (kv *KV) newSession(ctx context.Context) (*session, error) {
	start := time.Now() // before the lease begins, so that we never think it lives longer than it does
	g, err := kv.c.Grant(ctx, int64((max(kv.ttl, 1)+time.Second-1)/time.Second))
	if err != nil {
		return nil, err
	}
	s := &session{lease: client.LeaseID(g.ID), ttl: time.Duration(g.TTL) * time.Second}
	s.ctx, s.end = context.WithCancel(kv.ctx)
	s.keeper = kv.c.KeepAlive(s.ctx, s.lease, client.EndWhenUnconfirmed(max(s.ttl-time.Since(start), time.Nanosecond)))
	return s, nil
}

// trusted tells whether the lease lives for sure.
func (s *session) trusted(now time.Time) bool {
	return before(now, s.keeper.Expires().Add(-s.ttl/marginPart))
}

// before compares times by the monotonic clock and by the wall clock. The former may stand still while the machine sleeps, the
// latter may be set back; the lease is in doubt if either says so.
func before(now, limit time.Time) bool {
	return now.Before(limit) && now.Round(0).Before(limit.Round(0))
}

// run follows the lease, and gets another whenever it has ended, until the KV is closed.
func (kv *KV) run(s *session) {
	defer close(kv.ended)
	for s != nil {
		<-s.keeper.Done()
		kv.finish(s)
		s = kv.next()
	}
}

// finish forgets all holds, ends what was started for them, and revokes the lease.
func (kv *KV) finish(s *session) {
	kv.mu.Lock()
	kv.session = nil
	clear(kv.held)
	kv.mu.Unlock()
	s.end()
	if errors.Is(s.keeper.Err(), errs.ErrLeaseNotFound) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(s.ttl, revokeTime))
	defer cancel()
	_, _ = kv.c.Revoke(ctx, s.lease) // nobody renews it: if this fails it ends by itself
}

// next gives the session after one that has ended; nil once the KV is closed.
func (kv *KV) next() *session {
	for n := 0; kv.ctx.Err() == nil; n++ {
		s, err := kv.newSession(kv.ctx)
		if err == nil {
			kv.mu.Lock()
			kv.session = s
			kv.mu.Unlock()
			return s
		}
		pause(kv.ctx, n)
	}
	return nil
}

// pause waits before the attempt after n others.
func pause(ctx context.Context, n int) {
	t := time.NewTimer(min(minPause<<min(n, 10), maxPause))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
