package rpc

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/lockpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/server/lock"
)

// LockService is the Lock service of the API, on package lock. Its methods may be called by any goroutine, also without gRPC.
//
// Conditions that the API has a text for go out with code Unknown, as the clients of this service and of Election
// have always got them; others have a code that tells what to do.
type LockService struct {
	services.UnimplementedLockServer
	locks *lock.Service
	id    Identity
}

var _ services.LockServer = (*LockService)(nil)

// NewLock returns the service.
func NewLock(locks *lock.Service, id Identity) *LockService {
	return &LockService{locks: locks, id: id}
}

// Lock waits for a lock and takes it.
func (s *LockService) Lock(ctx context.Context, r *lockpb.LockRequest) (*lockpb.LockResponse, error) {
	resp, err := s.locks.Lock(ctx, connectionOf(ctx), r)
	if err != nil {
		return nil, lockError(err)
	}
	resp.Header = complete(s.id, resp.Header)
	return resp, nil
}

// Unlock gives a lock back.
func (s *LockService) Unlock(ctx context.Context, r *lockpb.UnlockRequest) (*lockpb.UnlockResponse, error) {
	resp, err := s.locks.Unlock(ctx, r)
	if err != nil {
		return nil, lockError(err)
	}
	resp.Header = complete(s.id, resp.Header)
	return resp, nil
}

// lockError keeps the code of those errors of package lock that the v3 API does not know: in its services all others become Unknown.
func lockError(err error) error {
	for _, own := range []*errs.Error{errs.ErrNotLock, errs.ErrMixedLimits, errs.ErrOtherMode, errs.ErrLockRequest} {
		if errors.Is(err, own) {
			return status.Error(codes.Code(own.Kind()), own.Error())
		}
	}
	return err
}
