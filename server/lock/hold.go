package lock

import (
	"context"
	"errors"
	"time"

	"github.com/coordd/coordd/api/coorddpb"
	"github.com/coordd/coordd/api/errs"
)

// holding is one Hold stream.
type holding struct {
	s     *Service
	send  func(*coorddpb.HoldResponse) error
	place place
	held  bool
	// until is when the lease may have ended, for all this member knows; a holder that cannot be told otherwise by then has lost.
	until time.Time
	every time.Duration // how often the lease is asked about
}

// Hold acquires a lock, or follows one, and calls send with where the caller stands, until it does not hold the lock, which is the
// last message, or ctx ends, or send fails. A lock that was acquired here is given back at the end. Errors are those of Lock;
// that the lock is lost is none. Of headers only the revision is set.
func (s *Service) Hold(ctx context.Context, r *coorddpb.HoldRequest, send func(*coorddpb.HoldResponse) error) error {
	ctx, done := s.bound(ctx)
	defer done()
	h := &holding{s: s, send: send}
	if len(r.GetKey()) > 0 {
		if len(r.GetName()) > 0 {
			return errs.ErrLockRequest
		}
		return h.followKey(ctx, r)
	}
	a, err := lockAsk(r.GetName(), r.GetLease(), r.GetTtl(), r.GetLimit(), r.GetLockDelayMs(), r.GetShared(), r.GetTry())
	if err != nil {
		return err
	}
	a.conn = Connection{Alive: ctx}
	a.waiting = func(p *place, ahead int64) error {
		return send(&coorddpb.HoldResponse{
			Header: s.header(p.rev), State: coorddpb.HoldState_HOLD_WAITING, Key: p.key, Lease: p.lease, FencingToken: p.create, Ahead: ahead,
		})
	}
	p, left, err := s.acquire(ctx, a)
	switch {
	case errors.Is(err, errBusy):
		return h.lost(0, coorddpb.HoldReason_HOLD_REASON_BUSY)
	case errors.Is(err, errs.ErrSessionExpired):
		return h.lost(0, coorddpb.HoldReason_HOLD_REASON_LEASE_ENDED)
	case err != nil:
		return err
	}
	h.place, h.held = *p, true
	defer func() {
		if p.session == nil {
			s.giveBack(p)
		} else {
			p.session.end(true)
		}
	}()
	return h.run(ctx, left)
}

// giveBack releases a lock whose holder has ended its stream.
func (s *Service) giveBack(p *place) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanTimeout)
	defer cancel()
	err := persist(ctx, func(ctx context.Context) error {
		_, err := s.release(ctx, p.key, p.create, p.lease)
		return err
	})
	if err != nil && !errors.Is(err, errs.ErrNotLock) {
		s.lg.Info("could not give back the lock of a stream that has ended; its lease will")
	}
}

// followKey follows an ownership, or a place in a queue, from an earlier answer.
func (h *holding) followKey(ctx context.Context, r *coorddpb.HoldRequest) error {
	name, id, ok := leaseOf(r.GetKey())
	if !ok {
		return errs.ErrNotLock
	}
	kv, rev, err := h.s.get(ctx, r.GetKey(), false)
	if err != nil {
		return err
	}
	h.place = place{name: name, key: r.GetKey(), lease: id, create: r.GetFencingToken(), rev: rev}
	switch {
	case kv == nil:
		return h.lost(rev, h.reason(ctx))
	case kv.GetLease() != id:
		return errs.ErrNotLock
	case h.place.create != 0 && h.place.create != kv.GetCreateRevision():
		return h.lost(rev, coorddpb.HoldReason_HOLD_REASON_REPLACED)
	}
	h.place.create = kv.GetCreateRevision()
	left, _, err := h.s.timeToLive(ctx, id)
	if errors.Is(err, errs.ErrLeaseNotFound) {
		return h.lost(rev, coorddpb.HoldReason_HOLD_REASON_LEASE_ENDED)
	}
	if err != nil {
		return err
	}
	return h.run(ctx, left)
}

// run follows the place until it is lost.
func (h *holding) run(ctx context.Context, left time.Duration) error {
	l, err := h.s.enter(ctx, h.place.name)
	if err != nil {
		return err
	}
	defer h.s.leave(l)
	t := h.s.follow(l, h.place.key, h.place.create, !h.held)
	defer h.s.forget(t)
	h.extend(left)
	if h.held || len(t.news) == 0 {
		if err := h.tell(h.s.ahead(t)); err != nil {
			return err
		}
	}
	tick := time.NewTimer(h.next())
	defer tick.Stop()
	for {
		select {
		case v := <-t.news:
			if v.err != nil {
				return v.err
			}
			if !v.held {
				return h.lost(v.rev, h.reasonOf(ctx, v))
			}
			if h.held {
				continue
			}
			h.held, h.place.rev = true, v.rev
		case <-t.ahead:
			if h.held {
				continue
			}
			h.place.rev = 0
		case <-tick.C:
			if lost := h.refresh(ctx); lost {
				return h.lost(0, coorddpb.HoldReason_HOLD_REASON_LEASE_ENDED)
			}
			h.place.rev = 0
			tick.Reset(h.next())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := h.tell(h.s.ahead(t)); err != nil {
			return err
		}
	}
}

// extend takes in how much the lease has left.
func (h *holding) extend(left time.Duration) {
	h.until = time.Now().Add(left)
	h.every = max(left/renewals, 200*time.Millisecond)
}

// grace is how long an answer is waited for beyond the time that the lease lives for certain: what it has left is told in whole seconds,
// rounded down, so it may live for almost a second when nothing is left.
const grace = 200 * time.Millisecond

// next is the time until the lease is to be asked about.
func (h *holding) next() time.Duration {
	if left := time.Until(h.until); left > 0 {
		return min(h.every, left)
	}
	return grace
}

// refresh learns what the lease has left, and reports whether it has ended; or may have, as there is no answer.
func (h *holding) refresh(ctx context.Context) (lost bool) {
	if n := h.place.session; n != nil {
		if left := n.left(); left > 0 {
			h.extend(left)
		}
		return time.Now().After(h.until)
	}
	patience := max(time.Until(h.until), grace)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	left, _, err := h.s.timeToLive(ctx, h.place.lease)
	if err == nil {
		h.extend(left)
		return false
	}
	return errors.Is(err, errs.ErrLeaseNotFound) || !time.Now().Before(h.until)
}

// tell sends where the caller stands.
func (h *holding) tell(ahead int64) error {
	m := &coorddpb.HoldResponse{
		Header: h.s.header(h.place.rev), State: coorddpb.HoldState_HOLD_WAITING,
		Key: h.place.key, Lease: h.place.lease, FencingToken: h.place.create,
		RemainingTtlMs: max(0, time.Until(h.until).Milliseconds()), Ahead: ahead,
	}
	if h.held {
		m.State, m.Ahead = coorddpb.HoldState_HOLD_HELD, 0
	}
	return h.send(m)
}

// lost sends the last message.
func (h *holding) lost(rev int64, why coorddpb.HoldReason) error {
	return h.send(&coorddpb.HoldResponse{
		Header: h.s.header(rev), State: coorddpb.HoldState_HOLD_LOST, Reason: why,
		Key: h.place.key, Lease: h.place.lease, FencingToken: h.place.create,
	})
}

// reasonOf is why the place is gone.
func (h *holding) reasonOf(ctx context.Context, v verdict) coorddpb.HoldReason {
	switch n := h.place.session; {
	case v.replaced:
		return coorddpb.HoldReason_HOLD_REASON_REPLACED
	case n != nil && n.wasUnlocked():
		return coorddpb.HoldReason_HOLD_REASON_UNLOCKED
	}
	return h.reason(ctx)
}

// reason is why the key is gone, by whether its lease is. A lease that cannot be asked about is taken for lost.
func (h *holding) reason(ctx context.Context) coorddpb.HoldReason {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, _, err := h.s.timeToLive(ctx, h.place.lease); err == nil {
		return coorddpb.HoldReason_HOLD_REASON_UNLOCKED
	}
	return coorddpb.HoldReason_HOLD_REASON_LEASE_ENDED
}
