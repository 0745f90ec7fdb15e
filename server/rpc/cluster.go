package rpc

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// Members tells of the membership. Any goroutine may call it.
type Members interface {
	// MemberList lists the members by id: as the cluster has agreed by now if linearizable, else as this member
	// knows them.
	MemberList(ctx context.Context, linearizable bool) ([]*rpcpb.Member, error)
}

// ClusterService is the Cluster service of the API. Its methods may be called by any goroutine, also without gRPC.
//
// The membership of a cluster is given when it is founded; the calls that change it say that they are
// not there yet.
type ClusterService struct {
	services.UnimplementedClusterServer
	members Members
	id      Identity
}

var _ services.ClusterServer = (*ClusterService)(nil)

// NewCluster returns the service.
func NewCluster(members Members, id Identity) *ClusterService {
	return &ClusterService{members: members, id: id}
}

// MemberList lists the members. The header of the answer has no revision.
func (s *ClusterService) MemberList(ctx context.Context, r *rpcpb.MemberListRequest) (*rpcpb.MemberListResponse, error) {
	members, err := s.members.MemberList(ctx, r.GetLinearizable())
	if err != nil {
		return nil, err
	}
	return &rpcpb.MemberListResponse{Header: headerAt(s.id, 0), Members: members}, nil
}

// MemberAdd is not there yet.
func (s *ClusterService) MemberAdd(context.Context, *rpcpb.MemberAddRequest) (*rpcpb.MemberAddResponse, error) {
	return nil, membersFixed("add a member")
}

// MemberRemove is not there yet.
func (s *ClusterService) MemberRemove(context.Context, *rpcpb.MemberRemoveRequest) (*rpcpb.MemberRemoveResponse, error) {
	return nil, membersFixed("remove a member")
}

// MemberUpdate is not there yet.
func (s *ClusterService) MemberUpdate(context.Context, *rpcpb.MemberUpdateRequest) (*rpcpb.MemberUpdateResponse, error) {
	return nil, membersFixed("change a member's peer URLs")
}

// MemberPromote is not there yet.
func (s *ClusterService) MemberPromote(context.Context, *rpcpb.MemberPromoteRequest) (*rpcpb.MemberPromoteResponse, error) {
	return nil, membersFixed("promote a learner")
}

// membersFixed is the error of calls that would change the membership.
func membersFixed(what string) error {
	return status.Errorf(codes.Unimplemented, "coordd: cannot %s: changing the members of a running cluster is not there yet; found the cluster with --initial-cluster naming all of them", what)
}
