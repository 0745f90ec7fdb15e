package lock

import (
	"context"
	"errors"

	"github.com/coordd/coordd/api/electionpb"
	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
)

// Campaign stands for election and waits until the caller leads. A candidate that stands already, by its lease, keeps its place and
// gets the new value. Errors are those of Lock, but errs.ErrMixedLimits.
func (s *Service) Campaign(ctx context.Context, conn Connection, r *electionpb.CampaignRequest) (*electionpb.CampaignResponse, error) {
	if r.GetTtl() < 0 {
		return nil, errs.ErrLockRequest
	}
	p, left, err := s.acquire(ctx, &ask{
		name: r.GetName(), lease: r.GetLease(), ttl: r.GetTtl(), try: r.GetTry(),
		election: true, value: r.GetValue(), conn: conn,
	})
	if errors.Is(err, errBusy) {
		return &electionpb.CampaignResponse{Header: s.header(0)}, nil
	}
	if err != nil {
		return nil, err
	}
	return &electionpb.CampaignResponse{
		Header:         s.header(p.rev),
		Leader:         &electionpb.LeaderKey{Name: r.GetName(), Key: p.key, Rev: p.create, Lease: p.lease},
		RemainingTtlMs: left.Milliseconds(),
	}, nil
}

// Proclaim gives the leader's key another value. The key keeps the lease it has. It returns errs.ErrElectionLeaderMissing for a request
// without proof of leadership, and errs.ErrElectionNotLeader when that is not the present one.
func (s *Service) Proclaim(ctx context.Context, r *electionpb.ProclaimRequest) (*electionpb.ProclaimResponse, error) {
	l := r.GetLeader()
	if l == nil {
		return nil, errs.ErrElectionLeaderMissing
	}
	rev, err := s.proclaim(ctx, l.GetKey(), l.GetRev(), l.GetLease(), r.GetValue())
	if err != nil {
		return nil, err
	}
	return &electionpb.ProclaimResponse{Header: s.header(rev)}, nil
}

// Resign gives leadership, or a candidacy, up. A proof that is not the present one is no error. The key is deleted only if it has the form
// and the lease of a candidate's: errs.ErrNotLock.
func (s *Service) Resign(ctx context.Context, r *electionpb.ResignRequest) (*electionpb.ResignResponse, error) {
	l := r.GetLeader()
	if l == nil {
		return nil, errs.ErrElectionLeaderMissing
	}
	if l.GetRev() <= 0 || len(l.GetKey()) == 0 {
		return &electionpb.ResignResponse{Header: s.header(0)}, nil // nobody ever led with that
	}
	rev, err := s.release(ctx, l.GetKey(), l.GetRev(), 0)
	if err != nil {
		return nil, err
	}
	return &electionpb.ResignResponse{Header: s.header(rev)}, nil
}

// Leader tells who leads; errs.ErrElectionNoLeader when nobody does.
func (s *Service) Leader(ctx context.Context, r *electionpb.LeaderRequest) (*electionpb.LeaderResponse, error) {
	kvs, rev, err := s.read(ctx, &rpcpb.RangeRequest{
		Key: prefixOf(r.GetName()), RangeEnd: endOf(r.GetName()), Limit: 1,
		SortTarget: rpcpb.RangeRequest_CREATE, SortOrder: rpcpb.RangeRequest_ASCEND,
	})
	if err != nil {
		return nil, err
	}
	if len(kvs) == 0 {
		return nil, errs.ErrElectionNoLeader
	}
	return &electionpb.LeaderResponse{Header: s.header(rev), Kv: kvs[0]}, nil
}
