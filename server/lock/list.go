package lock

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/coordd/coordd/api/coorddpb"
	"github.com/coordd/coordd/api/errs"
)

// asksAtOnce is how many leases are asked about at a time for one List.
const asksAtOnce = 32

// List tells who holds a lock and who waits for it. The queue is of one revision; what leases have left is asked afterwards. Of the
// header only the revision is set.
func (s *Service) List(ctx context.Context, r *coorddpb.ListLocksRequest) (*coorddpb.ListLocksResponse, error) {
	if r.GetLimit() < 0 {
		return nil, errs.ErrLockRequest
	}
	kvs, rev, err := s.readQueue(ctx, r.GetName(), r.GetSerializable())
	if err != nil {
		return nil, err
	}
	q := newQueue(kvs)
	resp := &coorddpb.ListLocksResponse{Header: s.header(rev)}
	front := q.front()
	for i, e := range q.entries {
		if q.idle(e) {
			continue
		}
		le := &coorddpb.LockEntry{
			Key: e.kv.GetKey(), Lease: e.kv.GetLease(), FencingToken: e.kv.GetCreateRevision(), Shared: e.mode.shared, RemainingTtlMs: -1,
		}
		if i < front {
			resp.Holders = append(resp.Holders, le)
			continue
		}
		if resp.Waiting++; r.GetLimit() == 0 || resp.Waiting <= r.GetLimit() {
			resp.Waiters = append(resp.Waiters, le)
		}
	}
	s.ask(ctx, resp.Holders, resp.Waiters)
	return resp, ctx.Err()
}

// ask fills in what the leases of entries have left: 0 for one that has ended, -1 for one nothing can be learned of.
func (s *Service) ask(ctx context.Context, lists ...[]*coorddpb.LockEntry) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(asksAtOnce)
	for _, list := range lists {
		for _, e := range list {
			if e.Lease == 0 || ctx.Err() != nil {
				continue
			}
			g.Go(func() error {
				left, granted, err := s.timeToLive(ctx, e.Lease)
				if err == nil || errors.Is(err, errs.ErrLeaseNotFound) {
					e.RemainingTtlMs, e.GrantedTtlMs = left.Milliseconds(), granted.Milliseconds()
				}
				return nil
			})
		}
	}
	_ = g.Wait() // its functions return nil
}
