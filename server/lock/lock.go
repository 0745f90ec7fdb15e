package lock

import (
	"context"
	"errors"
	"time"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/lockpb"
	"github.com/coordd/coordd/api/rpcpb"
)

// Lock waits for a lock and takes it. It returns errs.ErrSessionExpired as soon as the lease, and with it the place in the queue, is gone,
// errs.ErrLeaseNotFound when there was none, errs.ErrLockRequest, errs.ErrNotLock when the place is taken by a key of another kind,
// errs.ErrMixedLimits, errs.ErrOtherMode, errs.ErrStopped, the cause of ctx, and the errors of writing. Unless it succeeds, no key that it made stays in the
// queue, but for those the package comment names. Of the header only the revision is set.
func (s *Service) Lock(ctx context.Context, conn Connection, r *lockpb.LockRequest) (*lockpb.LockResponse, error) {
	a, err := lockAsk(r.GetName(), r.GetLease(), r.GetTtl(), r.GetLimit(), r.GetLockDelayMs(), r.GetShared(), r.GetTry())
	if err != nil {
		return nil, err
	}
	a.conn = conn
	p, left, err := s.acquire(ctx, a)
	if errors.Is(err, errBusy) {
		return &lockpb.LockResponse{Header: s.header(0), Lease: r.GetLease()}, nil
	}
	if err != nil {
		return nil, err
	}
	return &lockpb.LockResponse{
		Header: s.header(p.rev), Key: p.key, Lease: p.lease, FencingToken: p.create,
		RemainingTtlMs: left.Milliseconds(), Acquired: true,
	}, nil
}

// maxDelay bounds a lock delay: the lease of its guard has to be longer than it.
const maxDelay = 24 * time.Hour

// lockAsk checks the fields of a request for a lock.
func lockAsk(name []byte, lease, ttl, limit, delayMs int64, shared, try bool) (*ask, error) {
	if ttl < 0 || limit < 0 || delayMs < 0 || delayMs > maxDelay.Milliseconds() || shared && limit > 1 {
		return nil, errs.ErrLockRequest
	}
	if limit == 1 {
		limit = 0
	}
	return &ask{
		name: name, lease: lease, ttl: ttl, try: try,
		mode: mode{shared: shared, limit: limit}, delay: time.Duration(delayMs) * time.Millisecond,
	}, nil
}

// Unlock gives a lock back. A key that is absent is no error, nor is one that belongs to another ownership than that of the
// token or lease given: what was to be given back is not held any more. A key that is no lock is not deleted: errs.ErrNotLock.
func (s *Service) Unlock(ctx context.Context, r *lockpb.UnlockRequest) (*lockpb.UnlockResponse, error) {
	rev, err := s.release(ctx, r.GetKey(), r.GetFencingToken(), r.GetLease())
	if err != nil {
		return nil, err
	}
	return &lockpb.UnlockResponse{Header: s.header(rev)}, nil
}

// header is one with a revision; 0 stands for the present one.
func (s *Service) header(rev int64) *rpcpb.ResponseHeader {
	if rev == 0 {
		rev = s.store.Revision()
	}
	return &rpcpb.ResponseHeader{Revision: rev}
}
