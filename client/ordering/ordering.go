package ordering

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/client"
)

// ErrStale: a member answered a read from before what this client has seen.
var ErrStale = errors.New("ordering: the member lags behind what this client has seen")

// staleError is what becomes of an answer that is too old. To package client it is a member that is not available.
type staleError struct{ got, seen int64 }

// Error names both revisions.
func (e *staleError) Error() string {
	return fmt.Sprintf("%v: it answered at revision %d, after %d", ErrStale, e.got, e.seen)
}

// Is finds ErrStale.
func (e *staleError) Is(target error) bool { return target == ErrStale }

// GRPCStatus has the client go on at another member.
func (e *staleError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }

// Option has a client made with client.New refuse reads that are older than what it has seen.
func Option() client.Option {
	o := new(order)
	unary := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		seen := o.seen.Load()
		if err := next(ctx, method, req, reply, cc, opts...); err != nil {
			return err
		}
		return o.reply(req, reply, seen)
	}
	streamed := func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		seen := o.seen.Load()
		inner, err := next(ctx, d, cc, method, opts...)
		if err != nil || method != services.KV_RangeStream_FullMethodName {
			return inner, err
		}
		return &stream{inner, o, seen}, nil
	}
	return client.WithGRPC(grpc.WithChainUnaryInterceptor(unary), grpc.WithChainStreamInterceptor(streamed))
}

// order is the largest revision seen.
type order struct{ seen atomic.Int64 }

// reply looks at the reply to a call before which a revision had been seen. What others saw while it was under way is no reason to
// refuse it.
func (o *order) reply(req, reply any, seen int64) error {
	switch m := reply.(type) {
	case *rpcpb.RangeResponse:
		return o.check(m.GetHeader().GetRevision(), seen)
	case *rpcpb.TxnResponse:
		if r, ok := req.(*rpcpb.TxnRequest); ok && reads(r) {
			return o.check(m.GetHeader().GetRevision(), seen)
		}
		o.note(m.GetHeader().GetRevision())
	case *rpcpb.PutResponse:
		o.note(m.GetHeader().GetRevision())
	case *rpcpb.DeleteRangeResponse:
		o.note(m.GetHeader().GetRevision())
	}
	return nil
}

// note takes a revision in.
func (o *order) note(rev int64) {
	for {
		seen := o.seen.Load()
		if rev <= seen || o.seen.CompareAndSwap(seen, rev) {
			return
		}
	}
}

// check refuses a revision before the one that was seen, and notes another.
func (o *order) check(rev, seen int64) error {
	if rev < seen {
		return &staleError{rev, seen}
	}
	o.note(rev)
	return nil
}

// reads tells whether a transaction cannot change anything, so that it may be repeated.
func reads(t *rpcpb.TxnRequest) bool {
	for _, branch := range [][]*rpcpb.RequestOp{t.GetSuccess(), t.GetFailure()} {
		for _, op := range branch {
			inner := op.GetRequestTxn()
			if op.GetRequestRange() == nil && (inner == nil || !reads(inner)) {
				return false
			}
		}
	}
	return true
}

// stream is a read in pieces.
type stream struct {
	grpc.ClientStream
	order *order
	seen  int64 // when it began
}

// RecvMsg receives a piece, and looks at it if it has a header.
func (s *stream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	if r, ok := m.(*rpcpb.RangeStreamResponse); ok && r.GetRangeResponse().GetHeader() != nil {
		return s.order.check(r.GetRangeResponse().GetHeader().GetRevision(), s.seen)
	}
	return nil
}
