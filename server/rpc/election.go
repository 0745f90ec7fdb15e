package rpc

import (
	"context"

	"github.com/coordd/coordd/api/electionpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/server/lock"
)

// ElectionService is the Election service of the API, on package lock. Its methods may be called by any goroutine, also without
// gRPC. Codes are as in LockService.
type ElectionService struct {
	services.UnimplementedElectionServer
	locks *lock.Service
	id    Identity
}

var _ services.ElectionServer = (*ElectionService)(nil)

// NewElection returns the service.
func NewElection(locks *lock.Service, id Identity) *ElectionService {
	return &ElectionService{locks: locks, id: id}
}

// Campaign waits until the caller leads.
func (s *ElectionService) Campaign(ctx context.Context, r *electionpb.CampaignRequest) (*electionpb.CampaignResponse, error) {
	resp, err := s.locks.Campaign(ctx, connectionOf(ctx), r)
	if err != nil {
		return nil, lockError(err)
	}
	resp.Header = complete(s.id, resp.Header)
	return resp, nil
}

// Proclaim changes the value the leader proclaims.
func (s *ElectionService) Proclaim(ctx context.Context, r *electionpb.ProclaimRequest) (*electionpb.ProclaimResponse, error) {
	resp, err := s.locks.Proclaim(ctx, r)
	if err != nil {
		return nil, lockError(err)
	}
	resp.Header = complete(s.id, resp.Header)
	return resp, nil
}

// Leader tells who leads.
func (s *ElectionService) Leader(ctx context.Context, r *electionpb.LeaderRequest) (*electionpb.LeaderResponse, error) {
	resp, err := s.locks.Leader(ctx, r)
	if err != nil {
		return nil, lockError(err)
	}
	resp.Header = complete(s.id, resp.Header)
	return resp, nil
}

// Observe tells each leader and each proclamation, and is silent while nobody leads.
func (s *ElectionService) Observe(r *electionpb.LeaderRequest, stream services.Election_ObserveServer) error {
	err := s.locks.Observe(stream.Context(), r.GetName(), func(n lock.News) error {
		if n.Leader == nil {
			return nil
		}
		return stream.Send(&electionpb.LeaderResponse{Header: headerAt(s.id, n.Revision), Kv: n.Leader})
	})
	return lockError(err)
}

// Resign gives leadership up.
func (s *ElectionService) Resign(ctx context.Context, r *electionpb.ResignRequest) (*electionpb.ResignResponse, error) {
	resp, err := s.locks.Resign(ctx, r)
	if err != nil {
		return nil, lockError(err)
	}
	resp.Header = complete(s.id, resp.Header)
	return resp, nil
}
