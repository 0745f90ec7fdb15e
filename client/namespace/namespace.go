package namespace

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/client"
)

// Option has a client made with client.New see the keys below a prefix alone. The prefix may hold any bytes; it usually ends with a
// slash, since it is taken as it is.
func Option(prefix string) client.Option {
	s := newSpace(prefix)
	unary := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return s.unary(method, req, reply, func(req any) error { return next(ctx, method, req, reply, cc, opts...) })
	}
	streamed := func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		return s.stream(method, func() (grpc.ClientStream, error) { return next(ctx, d, cc, method, opts...) })
	}
	return client.WithGRPC(grpc.WithChainUnaryInterceptor(unary), grpc.WithChainStreamInterceptor(streamed))
}

// Conn is Option for a connection made elsewhere, such as that of an embedded node: give the result to client.NewFromConn.
// Namespaces may lie in one another.
func Conn(conn grpc.ClientConnInterface, prefix string) grpc.ClientConnInterface {
	return &within{conn, newSpace(prefix)}
}

// within is a connection in a namespace.
type within struct {
	conn  grpc.ClientConnInterface
	space space
}

// Invoke makes a unary call.
func (w *within) Invoke(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
	return w.space.unary(method, req, reply, func(req any) error { return w.conn.Invoke(ctx, method, req, reply, opts...) })
}

// NewStream begins a stream.
func (w *within) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return w.space.stream(method, func() (grpc.ClientStream, error) { return w.conn.NewStream(ctx, d, method, opts...) })
}

// allowed are the services whose calls stay in a namespace.
var allowed = []string{
	"/etcdserverpb.KV/", "/etcdserverpb.Watch/", "/etcdserverpb.Lease/",
	"/etcdserverpb.Cluster/", "/etcdserverpb.Maintenance/", "/etcdserverpb.Auth/",
}

// allow refuses methods that would leave the namespace.
func allow(method string) error {
	for _, service := range allowed {
		if strings.HasPrefix(method, service) {
			return nil
		}
	}
	return status.Errorf(codes.Unimplemented, "namespace: %s does not work in a namespace; use a client without one", method)
}

// unary rewrites the messages of a unary call.
func (s space) unary(method string, req, reply any, invoke func(req any) error) error {
	if err := allow(method); err != nil {
		return err
	}
	if err := invoke(s.request(req)); err != nil {
		return err
	}
	s.reply(reply)
	return nil
}

// stream rewrites the messages of a stream.
func (s space) stream(method string, begin func() (grpc.ClientStream, error)) (grpc.ClientStream, error) {
	if err := allow(method); err != nil {
		return nil, err
	}
	inner, err := begin()
	if err != nil {
		return nil, err
	}
	return &stream{inner, s}, nil
}

// stream is one in a namespace.
type stream struct {
	grpc.ClientStream
	space space
}

// SendMsg sends a message to the server.
func (s *stream) SendMsg(m any) error { return s.ClientStream.SendMsg(s.space.request(m)) }

// RecvMsg receives a message from the server.
func (s *stream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	s.space.reply(m)
	return nil
}
