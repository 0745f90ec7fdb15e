package client

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"

	"google.golang.org/grpc"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// LeaseID names a lease; 0 is none.
type LeaseID int64

// GrantOption shapes a Grant.
type GrantOption func(*rpcpb.LeaseGrantRequest)

// WithLeaseID asks for a lease of this id instead of a random one. If it exists the error is
// errs.ErrLeaseExist.
func WithLeaseID(id LeaseID) GrantOption {
	return func(r *rpcpb.LeaseGrantRequest) { r.ID = int64(id) }
}

// Grant makes a lease that lives for ttl seconds after its last renewal; the answer tells the time actually granted,
// which is never less. Without WithLeaseID the client draws the id at random and repeats the call until it
// succeeds or ctx ends: it leaves at most one lease behind, which then expires by itself.
func (c *Client) Grant(ctx context.Context, ttl int64, opts ...GrantOption) (*rpcpb.LeaseGrantResponse, error) {
	req, resp := &rpcpb.LeaseGrantRequest{TTL: ttl}, new(rpcpb.LeaseGrantResponse)
	for _, o := range opts {
		o(req)
	}
	k := call{method: services.Lease_LeaseGrant_FullMethodName, idempotent: req.ID == 0}
	drawn := req.ID == 0
	if drawn {
		req.ID = 1 + rand.Int64N(math.MaxInt64)
	}
	err := c.invoke(ctx, k, req, resp)
	if drawn && errors.Is(err, errs.ErrLeaseExist) {
		// Nobody else draws the same number of 63 bits: an earlier attempt, whose answer was lost, made it.
		return c.granted(ctx, req.ID)
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// granted gives the answer to a Grant that has happened.
func (c *Client) granted(ctx context.Context, id int64) (*rpcpb.LeaseGrantResponse, error) {
	ttl, err := c.TimeToLive(ctx, LeaseID(id))
	if err != nil {
		return nil, err
	}
	if ttl.TTL < 0 {
		return nil, errs.ErrLeaseNotFound
	}
	return &rpcpb.LeaseGrantResponse{Header: ttl.Header, ID: id, TTL: ttl.GrantedTTL}, nil
}

// Revoke ends a lease and deletes its keys. It is repeated until it succeeds or ctx ends, and succeeds too if an
// earlier attempt, whose answer was lost, did it. errs.ErrLeaseNotFound: there was none.
func (c *Client) Revoke(ctx context.Context, id LeaseID) (*rpcpb.LeaseRevokeResponse, error) {
	req, resp := &rpcpb.LeaseRevokeRequest{ID: int64(id)}, new(rpcpb.LeaseRevokeResponse)
	err := c.invoke(ctx, call{method: services.Lease_LeaseRevoke_FullMethodName}, req, resp)
	if !errors.Is(err, ErrUnknownOutcome) || ctx.Err() != nil {
		if err != nil {
			return nil, err
		}
		return resp, nil
	}
	err = c.invoke(ctx, call{method: services.Lease_LeaseRevoke_FullMethodName, idempotent: true}, req, resp)
	if errors.Is(err, errs.ErrLeaseNotFound) {
		return &rpcpb.LeaseRevokeResponse{Header: new(rpcpb.ResponseHeader)}, nil
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// TimeToLiveOption shapes a TimeToLive.
type TimeToLiveOption func(*rpcpb.LeaseTimeToLiveRequest)

// WithAttachedKeys asks for the keys of the lease too.
func WithAttachedKeys() TimeToLiveOption {
	return func(r *rpcpb.LeaseTimeToLiveRequest) { r.Keys = true }
}

// TimeToLive tells how many seconds a lease has left and was granted; left is -1 if there is no such lease, which is no
// error.
func (c *Client) TimeToLive(ctx context.Context, id LeaseID, opts ...TimeToLiveOption) (*rpcpb.LeaseTimeToLiveResponse, error) {
	req, resp := &rpcpb.LeaseTimeToLiveRequest{ID: int64(id)}, new(rpcpb.LeaseTimeToLiveResponse)
	for _, o := range opts {
		o(req)
	}
	k := call{method: services.Lease_LeaseTimeToLive_FullMethodName, idempotent: true}
	if err := c.invoke(ctx, k, req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// Leases lists the leases the member asked knows of.
func (c *Client) Leases(ctx context.Context) (*rpcpb.LeaseLeasesResponse, error) {
	resp := new(rpcpb.LeaseLeasesResponse)
	k := call{method: services.Lease_LeaseLeases_FullMethodName, idempotent: true}
	if err := c.invoke(ctx, k, new(rpcpb.LeaseLeasesRequest), resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// KeepAliveOnce renews a lease. errs.ErrLeaseNotFound: it is gone.
func (c *Client) KeepAliveOnce(ctx context.Context, id LeaseID) (*rpcpb.LeaseKeepAliveResponse, error) {
	req, resp := &rpcpb.LeaseKeepAliveRequest{ID: int64(id)}, new(rpcpb.LeaseKeepAliveResponse)
	k := call{method: services.Lease_LeaseKeepAlive_FullMethodName, idempotent: true, stream: renewOnce}
	if err := c.invoke(ctx, k, req, resp); err != nil {
		return nil, err
	}
	if resp.TTL <= 0 {
		return nil, errs.ErrLeaseNotFound
	}
	return resp, nil
}

// renewOnce is a keepalive stream used for one request, with the looks of a unary call.
func renewOnce(ctx context.Context, conn grpc.ClientConnInterface, req, resp any) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // releases the stream
	s, err := conn.NewStream(ctx, &services.Lease_ServiceDesc.Streams[0], services.Lease_LeaseKeepAlive_FullMethodName)
	if err != nil {
		return err
	}
	if err := s.SendMsg(req); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	return s.RecvMsg(resp)
}
