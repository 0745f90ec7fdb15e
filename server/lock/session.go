package lock

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
)

// session is a lease that this member made and renews. It is no goroutine: a timer renews it, and the end of what it is bound to ends it.
type session struct {
	s    *Service
	id   int64
	ttl  time.Duration
	key  []byte // once that is gone the session has no use; nil = not known yet
	over chan struct{}

	mu       sync.Mutex // guards all below
	deadline time.Time  // until then the lease lives for certain, unless somebody revokes it
	timer    *time.Timer
	unbind   func() bool // from the connection
	ended    bool
	unlocked bool // ended because what it was for was given back
}

// renewals is how often a session is renewed in its time to live.
const renewals = 4

// begin makes a session bound to a connection.
func (s *Service) begin(ctx context.Context, ttl int64, conn Connection) (*session, error) {
	if ttl == 0 {
		ttl = DefaultTTL
	}
	if conn.Alive != nil && conn.Alive.Err() != nil {
		return nil, context.Cause(conn.Alive)
	}
	begin := time.Now()
	resp, err := s.store.LeaseGrant(ctx, &rpcpb.LeaseGrantRequest{TTL: ttl})
	if err != nil {
		return nil, err
	}
	n := &session{s: s, id: resp.GetID(), ttl: time.Duration(resp.GetTTL()) * time.Second, over: make(chan struct{})}
	n.deadline = begin.Add(n.ttl)
	s.mu.Lock()
	s.sessions[n.id] = n
	s.mu.Unlock()
	if conn.Alive == nil {
		n.timer = time.AfterFunc(n.ttl, n.drop)
		return n, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.timer = time.AfterFunc(n.ttl/renewals, n.renew)
	n.unbind = context.AfterFunc(conn.Alive, func() { n.end(false) })
	return n, nil
}

// left is how long the lease lives for certain; not positive when that is not known.
func (n *session) left() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Until(n.deadline)
}

// wasUnlocked reports whether the session ended because what it was for was given back.
func (n *session) wasUnlocked() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unlocked
}

// renew is called by the timer.
func (n *session) renew() {
	n.s.start(n.renewNow)
}

// renewNow renews and sets the timer again.
func (n *session) renewNow() {
	ctx, cancel := context.WithTimeout(context.Background(), n.ttl)
	defer cancel()
	begin := time.Now()
	ttl, err := n.s.store.LeaseRenew(ctx, n.id)
	again := n.ttl / renewals
	switch {
	case errors.Is(err, errs.ErrLeaseNotFound), errors.Is(err, errs.ErrStopped):
		n.drop()
		return
	case err != nil:
		n.s.lg.Warn("could not renew the session of a lock; trying again", zap.Int64("lease", n.id), zap.Error(err))
		again = min(again, time.Second)
	case n.useless(ctx):
		n.end(true)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended {
		return
	}
	if err == nil {
		n.deadline = begin.Add(time.Duration(ttl) * time.Second)
	}
	n.timer.Reset(again)
}

// useless reports whether the key that the session was made for has been given back, at whatever member.
func (n *session) useless(ctx context.Context) bool {
	n.mu.Lock()
	key := n.key
	n.mu.Unlock()
	if key == nil {
		return false
	}
	kv, _, err := n.s.get(ctx, key, true)
	return err == nil && kv.GetLease() != n.id
}

// keeps names the key the session is for.
func (n *session) keeps(key []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.key = key
}

// finish stops timer and binding, once.
func (n *session) finish(unlocked bool) (first bool) {
	n.mu.Lock()
	if n.ended {
		n.mu.Unlock()
		return false
	}
	n.ended, n.unlocked, n.deadline = true, unlocked, time.Time{}
	if n.timer != nil {
		n.timer.Stop()
	}
	if n.unbind != nil {
		n.unbind()
	}
	n.mu.Unlock()
	close(n.over)
	n.s.mu.Lock()
	delete(n.s.sessions, n.id)
	n.s.mu.Unlock()
	return true
}

// drop forgets a session whose lease is gone or will go by itself.
func (n *session) drop() { n.finish(false) }

// end revokes the lease, in the background, and with it deletes its keys.
func (n *session) end(unlocked bool) {
	if !n.finish(unlocked) {
		return
	}
	n.s.start(func() {
		ctx, cancel := context.WithTimeout(context.Background(), n.ttl) // after which it has ended by itself
		defer cancel()
		err := persist(ctx, func(ctx context.Context) error {
			_, err := n.s.store.LeaseRevoke(ctx, &rpcpb.LeaseRevokeRequest{ID: n.id})
			return err
		})
		if err != nil && !errors.Is(err, errs.ErrLeaseNotFound) {
			n.s.lg.Info("could not revoke a session; it ends after its time to live", zap.Int64("lease", n.id), zap.Error(err))
		}
	})
}
