package rpc

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/errs/grpcerr"
)

// method is what is known of a method before it is called.
type method struct {
	counters
	name    string // "/service/method"
	stream  bool
	learner learnerRule
	status  func(error) error // translates what the handler returns
}

// handlers wraps the handlers of service descriptions with what happens around every call.
type handlers struct {
	gate   *gate
	slow   *slowLog
	leader *leaderWatch
	calls  sync.Pool // of *call
}

// registrar registers services with wrapped handlers.
type registrar struct {
	to grpc.ServiceRegistrar
	h  *handlers
}

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	r.to.RegisterService(r.h.wrap(desc), impl)
}

// wrap gives a description with all handlers wrapped.
func (h *handlers) wrap(desc *grpc.ServiceDesc) *grpc.ServiceDesc {
	d := *desc
	d.Methods = slices.Clone(d.Methods)
	for i := range d.Methods {
		md := &d.Methods[i]
		md.Handler = h.unary(h.method(d.ServiceName, md.MethodName, false, false, false), md.Handler)
	}
	d.Streams = slices.Clone(d.Streams)
	for i := range d.Streams {
		sd := &d.Streams[i]
		sd.Handler = h.streaming(h.method(d.ServiceName, sd.StreamName, true, sd.ClientStreams, sd.ServerStreams), sd.Handler)
	}
	return &d
}

// method looks up what is known of a method.
func (h *handlers) method(service, name string, stream, clientStreams, serverStreams bool) *method {
	m := &method{
		counters: h.gate.metrics.of(service+"/"+name, clientStreams, serverStreams),
		name:     "/" + service + "/" + name, stream: stream, status: grpcerr.ToStatus,
	}
	m.learner = learnerRules[m.name]
	if strings.HasPrefix(service, "v3lockpb.") || strings.HasPrefix(service, "v3electionpb.") {
		m.status = grpcerr.ToUnknown // what the clients of these services have always got
	}
	return m
}

// call is one unary call under way.
type call struct {
	h     *handlers
	read  func(v any) error // the method decode; made once, since every method value is an allocation
	m     *method
	ctx   context.Context
	dec   func(v any) error // gRPC's
	req   any               // the request, once it is decoded
	begin time.Time
}

// unary wraps the handler of a unary method.
func (h *handlers) unary(m *method, next grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		c, ok := h.calls.Get().(*call)
		if !ok {
			c = &call{h: h}
			c.read = c.decode
		}
		c.m, c.ctx, c.dec = m, ctx, dec
		reply, err := next(srv, ctx, c.read, interceptor)
		if err != nil {
			reply, err = nil, m.status(err)
		}
		c.end(reply, err)
		return reply, err
	}
}

// decode reads the request, counts it and lets it in or not.
func (c *call) decode(v any) error {
	if err := c.dec(v); err != nil {
		return err
	}
	c.req = v
	if c.h.slow.enabled() || c.m.seconds != nil {
		c.begin = time.Now()
	}
	c.m.started.Inc()
	c.m.received.Inc()
	_, err := c.h.gate.admit(c.ctx, c.m, v)
	return err
}

// end counts the end of a call, and gives c back.
func (c *call) end(reply any, err error) {
	if c.req != nil { // otherwise there was no request that could be read
		c.m.end(status.Code(err))
		if err == nil {
			c.m.sent.Inc()
		}
		if !c.begin.IsZero() {
			took := time.Since(c.begin)
			if c.m.seconds != nil {
				c.m.seconds.Observe(took.Seconds())
			}
			c.h.slow.unary(c, took, reply, err)
		}
	}
	h, read := c.h, c.read
	*c = call{h: h, read: read}
	h.calls.Put(c)
}

// streaming wraps the handler of a streaming method.
func (h *handlers) streaming(m *method, next grpc.StreamHandler) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		begin := time.Now()
		m.started.Inc()
		err := h.stream(m, srv, stream, next)
		m.end(status.Code(err))
		if m.seconds != nil {
			m.seconds.Observe(time.Since(begin).Seconds())
		}
		return err
	}
}

// stream lets a stream in and serves it.
func (h *handlers) stream(m *method, srv any, stream grpc.ServerStream, next grpc.StreamHandler) error {
	ctx := stream.Context()
	required, err := h.gate.admit(ctx, m, nil)
	if err != nil {
		return m.status(err)
	}
	if required {
		var done func()
		ctx, done = h.leader.watch(ctx)
		defer done()
	}
	return m.status(next(srv, &countedStream{ServerStream: stream, m: m, ctx: ctx}))
}

// countedStream is a stream that counts its messages, with a context of its own.
type countedStream struct {
	grpc.ServerStream
	m   *method
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *countedStream) Context() context.Context { return s.ctx }

// SendMsg implements grpc.ServerStream.
func (s *countedStream) SendMsg(v any) error {
	err := s.ServerStream.SendMsg(v)
	if err == nil {
		s.m.sent.Inc()
	}
	return err
}

// RecvMsg implements grpc.ServerStream.
func (s *countedStream) RecvMsg(v any) error {
	err := s.ServerStream.RecvMsg(v)
	if err == nil {
		s.m.received.Inc()
	}
	return err
}
