package ordering

import (
	"context"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/client"
)

// Setting shapes an Option.
type Setting func(*order)

// OnViolation has f called for each answer that is too old, on the goroutine of the read, before anything is done about it. f may, for
// example, give the client other endpoints. If it returns true the read is repeated, as it is without f; if false, the read
// ends with the violation as its error. f is called by several goroutines at once if several read.
func OnViolation(f func(ctx context.Context, v *Violation) (again bool)) Setting {
	return func(o *order) { o.onViolation = f }
}

// Option has a client made with client.New refuse reads that are older than what it has seen. It has no effect on one made with
// client.NewFromConn, which asks one member only. Give each client an Option of its own.
func Option(settings ...Setting) client.Option {
	o := &order{onViolation: func(context.Context, *Violation) bool { return true }}
	for _, s := range settings {
		s(o)
	}
	unary := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		c := call{o, ctx, method, cc, o.seen.Load()}
		if err := next(ctx, method, req, reply, cc, opts...); err != nil {
			return err
		}
		return c.reply(req, reply)
	}
	streamed := func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		inner, err := next(ctx, d, cc, method, opts...)
		if err != nil || method != services.Watch_Watch_FullMethodName {
			return inner, err
		}
		return &watches{inner, o}, nil
	}
	return client.WithGRPC(grpc.WithChainUnaryInterceptor(unary), grpc.WithChainStreamInterceptor(streamed))
}

// order is the largest revision seen by a client.
type order struct {
	seen        atomic.Int64
	onViolation func(ctx context.Context, v *Violation) bool
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

// call is one under way.
type call struct {
	*order
	ctx    context.Context
	method string
	conn   *grpc.ClientConn
	// began is what had been seen when it began. What others see while it is under way is no reason to refuse its answer.
	began int64
}

// reply looks at the answer to a unary call.
func (c call) reply(req, reply any) error {
	switch m := reply.(type) {
	case *rpcpb.RangeResponse:
		if r, ok := req.(*rpcpb.RangeRequest); !ok || r.GetRevision() <= 0 {
			return c.check(m.GetHeader())
		}
		c.note(m.GetHeader().GetRevision())
	case *rpcpb.TxnResponse:
		if r, ok := req.(*rpcpb.TxnRequest); ok && reads(r) {
			return c.check(m.GetHeader())
		}
		c.note(m.GetHeader().GetRevision())
	case *rpcpb.PutResponse:
		c.note(m.GetHeader().GetRevision())
	case *rpcpb.DeleteRangeResponse:
		c.note(m.GetHeader().GetRevision())
	}
	return nil
}

// check refuses an answer from before what was seen, and notes another.
func (c call) check(h *rpcpb.ResponseHeader) error {
	if h.GetRevision() >= c.began {
		c.note(h.GetRevision())
		return nil
	}
	v := &Violation{Method: c.method, Endpoint: strings.TrimPrefix(c.conn.Target(), "passthrough:///"), Got: h.GetRevision(), Seen: c.began}
	if c.onViolation(c.ctx, v) {
		return &elsewhere{v}
	}
	return v
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

// watches is a stream of watches.
type watches struct {
	grpc.ClientStream
	order *order
}

// RecvMsg receives a message, and notes the revision of the events; that in the header may run ahead of them.
func (w *watches) RecvMsg(m any) error {
	if err := w.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	if r, ok := m.(*rpcpb.WatchResponse); ok && len(r.GetEvents()) > 0 {
		w.order.note(r.Events[len(r.Events)-1].GetKv().GetModRevision())
	}
	return nil
}
