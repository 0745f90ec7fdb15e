package peer

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/coordd/coordd/api/peerpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// LeaseKeepAlive asks the member to, the leader, to renew leases.
//
// This and the other calls below fail at once with codes.Unavailable when the
// member cannot be reached, and with ErrUnknownMember (wrapped) when it is not known.
// Other errors are what the member's Service returned.
func (t *Transport) LeaseKeepAlive(ctx context.Context, to uint64, req *peerpb.LeaseKeepAliveRequest) (*peerpb.LeaseKeepAliveResponse, error) {
	return call(ctx, t, to, req, services.PeerClient.LeaseKeepAlive)
}

// LeaseTimeToLive asks the member to, the leader, how long a lease has left.
func (t *Transport) LeaseTimeToLive(ctx context.Context, to uint64, req *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error) {
	return call(ctx, t, to, req, services.PeerClient.LeaseTimeToLive)
}

// Promote asks the member to, the leader, to give a learner its vote.
func (t *Transport) Promote(ctx context.Context, to uint64, req *peerpb.PromoteRequest) (*peerpb.PromoteResponse, error) {
	return call(ctx, t, to, req, services.PeerClient.Promote)
}

// HashKV asks a member for the hash of its history.
func (t *Transport) HashKV(ctx context.Context, to uint64, req *rpcpb.HashKVRequest) (*rpcpb.HashKVResponse, error) {
	return call(ctx, t, to, req, services.PeerClient.HashKV)
}

// Info asks a member who it is and whom it knows.
func (t *Transport) Info(ctx context.Context, to uint64, req *peerpb.InfoRequest) (*peerpb.InfoResponse, error) {
	return call(ctx, t, to, req, services.PeerClient.Info)
}

// call does a unary call on a member's second connection.
func call[Req, Resp any](ctx context.Context, t *Transport, to uint64, req Req,
	method func(services.PeerClient, context.Context, Req, ...grpc.CallOption) (Resp, error)) (Resp, error) {
	var none Resp
	r := (*t.remotes.Load())[to]
	if r == nil {
		return none, fmt.Errorf("%w: %x", ErrUnknownMember, to)
	}
	client, conn, err := r.client()
	if err != nil {
		return none, err
	}
	resp, err := method(client, t.withIdentity(ctx, to), req)
	if err != nil {
		r.failed(conn)
	}
	return resp, err
}
