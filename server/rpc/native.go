package rpc

import (
	"context"

	"github.com/coordd/coordd/api/coorddpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/server/lock"
)

// LocksService is the service Locks, which has no form in the v3 API, on package lock. Its methods may be called by any goroutine.
type LocksService struct {
	services.UnimplementedLocksServer
	locks *lock.Service
	id    Identity
}

var _ services.LocksServer = (*LocksService)(nil)

// NewLocks returns the service.
func NewLocks(locks *lock.Service, id Identity) *LocksService {
	return &LocksService{locks: locks, id: id}
}

// Hold acquires a lock, or follows one, and tells the moment it is lost.
func (s *LocksService) Hold(r *coorddpb.HoldRequest, stream services.Locks_HoldServer) error {
	return lockError(s.locks.Hold(stream.Context(), r, func(m *coorddpb.HoldResponse) error {
		m.Header = complete(s.id, m.Header)
		return stream.Send(m)
	}))
}

// List tells who holds a lock and who waits for it.
func (s *LocksService) List(ctx context.Context, r *coorddpb.ListLocksRequest) (*coorddpb.ListLocksResponse, error) {
	resp, err := s.locks.List(ctx, r)
	if err != nil {
		return nil, lockError(err)
	}
	resp.Header = complete(s.id, resp.Header)
	return resp, nil
}

// ElectionsService is the service Elections, which has no form in the v3 API, on package lock. Its methods may be called by any
// goroutine.
type ElectionsService struct {
	services.UnimplementedElectionsServer
	locks *lock.Service
	id    Identity
}

var _ services.ElectionsServer = (*ElectionsService)(nil)

// NewElections returns the service.
func NewElections(locks *lock.Service, id Identity) *ElectionsService {
	return &ElectionsService{locks: locks, id: id}
}

// Observe tells each leader, each proclamation, and when nobody leads.
func (s *ElectionsService) Observe(r *coorddpb.ObserveRequest, stream services.Elections_ObserveServer) error {
	return lockError(s.locks.Observe(stream.Context(), r.GetName(), func(n lock.News) error {
		m := &coorddpb.ObserveResponse{Header: headerAt(s.id, n.Revision), Leader: n.Leader}
		switch {
		case n.Leader == nil:
			m.Change = coorddpb.LeadershipChange_LEADERSHIP_VACANT
		case n.Elected:
			m.Change = coorddpb.LeadershipChange_LEADERSHIP_ELECTED
		default:
			m.Change = coorddpb.LeadershipChange_LEADERSHIP_PROCLAIMED
		}
		return stream.Send(m)
	}))
}
