package rpc

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/mvcc/backend"
)

// Operations is what operators ask of a member. Any goroutine may call it.
type Operations interface {
	Status() *rpcpb.StatusResponse
	Alarm(ctx context.Context, r *rpcpb.AlarmRequest) (*rpcpb.AlarmResponse, error)
	// Hash is a checksum over the whole data file and the revision it stands at.
	Hash(ctx context.Context) (hash uint32, revision int64, err error)
	HashKV(ctx context.Context, revision int64) (*rpcpb.HashKVResponse, error)
	MoveLeader(ctx context.Context, target uint64) error
}

// Snapshots opens images of the data file. Any goroutine may call it; the caller closes the image.
type Snapshots interface {
	Snapshot(ctx context.Context) (*backend.Snapshot, error)
}

// MaintenanceService is the Maintenance service of the API. Its methods may be called by any goroutine, also
// without gRPC.
type MaintenanceService struct {
	services.UnimplementedMaintenanceServer
	ops       Operations
	snapshots Snapshots
	id        Identity
}

var _ services.MaintenanceServer = (*MaintenanceService)(nil)

// NewMaintenance returns the service.
func NewMaintenance(ops Operations, snapshots Snapshots, id Identity) *MaintenanceService {
	return &MaintenanceService{ops: ops, snapshots: snapshots, id: id}
}

// Status describes this member as it is.
func (s *MaintenanceService) Status(context.Context, *rpcpb.StatusRequest) (*rpcpb.StatusResponse, error) {
	resp := s.ops.Status()
	resp.Header = complete(s.id, resp.Header)
	return resp, nil
}

// Alarm lists, raises or clears alarms.
func (s *MaintenanceService) Alarm(ctx context.Context, r *rpcpb.AlarmRequest) (*rpcpb.AlarmResponse, error) {
	resp, err := s.ops.Alarm(ctx, r)
	if err != nil {
		return nil, err
	}
	resp.Header = complete(s.id, resp.Header)
	return resp, nil
}

// Hash is a checksum over the data file.
func (s *MaintenanceService) Hash(ctx context.Context, _ *rpcpb.HashRequest) (*rpcpb.HashResponse, error) {
	hash, revision, err := s.ops.Hash(ctx)
	if err != nil {
		return nil, err
	}
	return &rpcpb.HashResponse{Header: headerAt(s.id, revision), Hash: hash}, nil
}

// HashKV is a checksum over the history of the keys up to a revision.
func (s *MaintenanceService) HashKV(ctx context.Context, r *rpcpb.HashKVRequest) (*rpcpb.HashKVResponse, error) {
	resp, err := s.ops.HashKV(ctx, r.GetRevision())
	if err != nil {
		return nil, err
	}
	resp.Header = complete(s.id, resp.Header)
	return resp, nil
}

// MoveLeader hands leadership over. The answer has no header.
func (s *MaintenanceService) MoveLeader(ctx context.Context, r *rpcpb.MoveLeaderRequest) (*rpcpb.MoveLeaderResponse, error) {
	if err := s.ops.MoveLeader(ctx, r.GetTargetID()); err != nil {
		return nil, err
	}
	return new(rpcpb.MoveLeaderResponse), nil
}

// Defragment is not there yet.
func (s *MaintenanceService) Defragment(context.Context, *rpcpb.DefragmentRequest) (*rpcpb.DefragmentResponse, error) {
	return nil, status.Error(codes.Unimplemented, "coordd: defragmenting the data file is not there yet; free pages in it are used for new data")
}

// Downgrade is not there yet.
func (s *MaintenanceService) Downgrade(context.Context, *rpcpb.DowngradeRequest) (*rpcpb.DowngradeResponse, error) {
	return nil, status.Error(codes.Unimplemented, "coordd: downgrading a cluster is not there yet")
}
