package rpc

import (
	"context"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// Leases makes, ends, renews and tells of leases. Any goroutine may call it.
type Leases interface {
	LeaseGrant(ctx context.Context, r *rpcpb.LeaseGrantRequest) (*rpcpb.LeaseGrantResponse, error)
	LeaseRevoke(ctx context.Context, r *rpcpb.LeaseRevokeRequest) (*rpcpb.LeaseRevokeResponse, error)
	// LeaseRenew gives a lease its whole time again and returns it, in seconds; errs.ErrLeaseNotFound when there is no
	// such lease any more. It may have to ask another member.
	LeaseRenew(ctx context.Context, id int64) (ttl int64, err error)
	LeaseTimeToLive(ctx context.Context, r *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error)
	LeaseLeases(ctx context.Context) (*rpcpb.LeaseLeasesResponse, error)
}

// LeaseService is the Lease service of the API. Its methods may be called by any goroutine, also without gRPC.
type LeaseService struct {
	services.UnimplementedLeaseServer
	leases Leases
	state  State
	id     Identity
	onFail func(sending bool)
}

var _ services.LeaseServer = (*LeaseService)(nil)

// NewLease returns the service. onFail, if not nil, is told when a LeaseKeepAlive stream ends because receiving or sending
// failed, other than by the client's wish.
func NewLease(leases Leases, state State, id Identity, onFail func(sending bool)) *LeaseService {
	if onFail == nil {
		onFail = func(bool) {}
	}
	return &LeaseService{leases: leases, state: state, id: id, onFail: onFail}
}

// LeaseGrant makes a lease.
func (s *LeaseService) LeaseGrant(ctx context.Context, r *rpcpb.LeaseGrantRequest) (*rpcpb.LeaseGrantResponse, error) {
	resp, err := s.leases.LeaseGrant(ctx, r)
	if err != nil {
		return nil, err
	}
	resp.Header = complete(s.id, resp.Header)
	return resp, nil
}

// LeaseRevoke ends a lease and deletes its keys.
func (s *LeaseService) LeaseRevoke(ctx context.Context, r *rpcpb.LeaseRevokeRequest) (*rpcpb.LeaseRevokeResponse, error) {
	resp, err := s.leases.LeaseRevoke(ctx, r)
	if err != nil {
		return nil, err
	}
	resp.Header = complete(s.id, resp.Header)
	return resp, nil
}

// LeaseTimeToLive tells what is left of a lease, TTL -1 when there is none. The answer is always this member's, also if
// another one knew it.
func (s *LeaseService) LeaseTimeToLive(ctx context.Context, r *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error) {
	resp, err := s.leases.LeaseTimeToLive(ctx, r)
	if err != nil {
		return nil, err
	}
	resp.Header = complete(s.id, resp.Header)
	return resp, nil
}

// LeaseLeases lists the leases.
func (s *LeaseService) LeaseLeases(ctx context.Context, _ *rpcpb.LeaseLeasesRequest) (*rpcpb.LeaseLeasesResponse, error) {
	resp, err := s.leases.LeaseLeases(ctx)
	if err != nil {
		return nil, err
	}
	resp.Header = complete(s.id, resp.Header)
	return resp, nil
}
