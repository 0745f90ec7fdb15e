package client

import (
	"context"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// MemberListOption shapes a MemberList.
type MemberListOption func(*rpcpb.MemberListRequest)

// FromOneMember has MemberList answered by the member asked from what it knows, without the leader.
func FromOneMember() MemberListOption {
	return func(r *rpcpb.MemberListRequest) { r.Linearizable = false }
}

// MemberList gives the members of the cluster, in the order of their ids. A member that never started has no name.
func (c *Client) MemberList(ctx context.Context, opts ...MemberListOption) (*rpcpb.MemberListResponse, error) {
	req, resp := &rpcpb.MemberListRequest{Linearizable: true}, new(rpcpb.MemberListResponse)
	for _, o := range opts {
		o(req)
	}
	k := call{method: services.Cluster_MemberList_FullMethodName, idempotent: true, local: !req.Linearizable}
	if err := c.invoke(ctx, k, req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// MemberAdd adds a voting member with these peer URLs. It runs at most once; see ErrUnknownOutcome.
func (c *Client) MemberAdd(ctx context.Context, peerURLs ...string) (*rpcpb.MemberAddResponse, error) {
	return c.memberAdd(ctx, &rpcpb.MemberAddRequest{PeerURLs: peerURLs})
}

// MemberAddAsLearner adds a member that follows but does not vote until MemberPromote.
func (c *Client) MemberAddAsLearner(ctx context.Context, peerURLs ...string) (*rpcpb.MemberAddResponse, error) {
	return c.memberAdd(ctx, &rpcpb.MemberAddRequest{PeerURLs: peerURLs, IsLearner: true})
}

func (c *Client) memberAdd(ctx context.Context, req *rpcpb.MemberAddRequest) (*rpcpb.MemberAddResponse, error) {
	resp := new(rpcpb.MemberAddResponse)
	if err := c.invoke(ctx, call{method: services.Cluster_MemberAdd_FullMethodName}, req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// MemberRemove removes a member for good: its id can never come back.
func (c *Client) MemberRemove(ctx context.Context, id uint64) (*rpcpb.MemberRemoveResponse, error) {
	req, resp := &rpcpb.MemberRemoveRequest{ID: id}, new(rpcpb.MemberRemoveResponse)
	if err := c.invoke(ctx, call{method: services.Cluster_MemberRemove_FullMethodName}, req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// MemberUpdate gives a member other peer URLs.
func (c *Client) MemberUpdate(ctx context.Context, id uint64, peerURLs ...string) (*rpcpb.MemberUpdateResponse, error) {
	req, resp := &rpcpb.MemberUpdateRequest{ID: id, PeerURLs: peerURLs}, new(rpcpb.MemberUpdateResponse)
	if err := c.invoke(ctx, call{method: services.Cluster_MemberUpdate_FullMethodName}, req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// MemberPromote makes a learner that has caught up a voting member.
func (c *Client) MemberPromote(ctx context.Context, id uint64) (*rpcpb.MemberPromoteResponse, error) {
	req, resp := &rpcpb.MemberPromoteRequest{ID: id}, new(rpcpb.MemberPromoteResponse)
	if err := c.invoke(ctx, call{method: services.Cluster_MemberPromote_FullMethodName}, req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}
