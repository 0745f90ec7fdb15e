package inproc

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// queueLen is how many messages of a stream may wait in each direction.
const queueLen = 16

// stream is an open stream. Its two sides are clientSide and serverSide.
type stream struct {
	*call
	conn *Conn
	desc *grpc.StreamDesc // as the service has it

	caller  context.Context    // of the client side; ends with the stream too
	handler context.Context    // of the server side
	cancel  context.CancelFunc // ends both

	requests  chan mem.BufferSlice
	responses chan mem.BufferSlice
	closeSend sync.Once
	sendDone  chan struct{} // closed by CloseSend
	first     sync.Once
	deliver   sync.Once
	header    chan struct{} // closed when the header is sent
	done      chan struct{} // closed when the handler has returned
	err       error         // status error or nil; final once done is closed
	outer     context.Context
}

// NewStream calls a streaming method. The stream must be ended as with gRPC: receive until an error, or end
// the context.
func (c *Conn) NewStream(ctx context.Context, _ *grpc.StreamDesc, name string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	call, err := newCall(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	s, err := c.open(ctx, call)
	if err != nil {
		call.finished(err)
		return nil, err
	}
	return clientSide{s}, nil
}

// open starts the handler.
func (c *Conn) open(ctx context.Context, call *call) (*stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	m, err := c.find(call.method, true)
	if err != nil {
		return nil, err
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	s := &stream{
		call: call, conn: c, desc: m.stream, outer: ctx,
		requests: make(chan mem.BufferSlice, queueLen), responses: make(chan mem.BufferSlice, queueLen),
		sendDone: make(chan struct{}), header: make(chan struct{}), done: make(chan struct{}),
	}
	s.caller, s.cancel = context.WithCancel(ctx)
	s.handler = call.serverContext(s.caller)
	release := context.AfterFunc(c.ctx, s.cancel)
	go func() { // ends with the handler, which heeds its context
		defer c.calls.Done()
		defer release()
		s.end(s.run(m))
	}()
	return s, nil
}

// run calls the handler.
func (s *stream) run(m *method) error {
	side := serverSide{s}
	if s.conn.opts.Stream == nil {
		return m.stream.Handler(m.impl, side)
	}
	info := &grpc.StreamServerInfo{FullMethod: m.full, IsClientStream: m.stream.ClientStreams, IsServerStream: m.stream.ServerStreams}
	return s.conn.opts.Stream(m.impl, side, info, m.stream.Handler)
}

// end records the handler's result and lets both sides go.
func (s *stream) end(err error) {
	if err != nil {
		s.err = wireError(s.outer, err)
		if s.conn.ctx.Err() != nil && s.outer.Err() == nil && status.Code(s.err) == codes.Canceled {
			s.err = closing() // the caller did not cancel
		}
	}
	s.sendHeader()
	close(s.done)
	s.finished(s.err)
	s.cancel()
	for { // requests nobody reads any more
		select {
		case data := <-s.requests:
			data.Free()
			continue
		default:
		}
		return
	}
}

func closing() error {
	return status.Error(codes.Unavailable, "the server in this process is closing")
}

// sendHeader makes the header visible to the client.
func (s *stream) sendHeader() {
	s.first.Do(func() {
		_ = s.call.SendHeader(nil) // fails only if the handler has sent it itself
		close(s.header)
	})
}

// clientSide is the caller's end.
type clientSide struct{ s *stream }

var _ grpc.ClientStream = clientSide{}

// Header waits for the header.
func (c clientSide) Header() (metadata.MD, error) {
	select {
	case <-c.s.header:
	case <-c.s.outer.Done():
		return nil, status.FromContextError(c.s.outer.Err()).Err()
	}
	header, _ := c.s.both()
	return header, nil
}

// Trailer is complete once RecvMsg has returned an error.
func (c clientSide) Trailer() metadata.MD {
	_, trailer := c.s.both()
	return trailer
}

// Context ends with the stream.
func (c clientSide) Context() context.Context { return c.s.caller }

// CloseSend tells the handler that no more requests come.
func (c clientSide) CloseSend() error {
	c.s.closeSend.Do(func() { close(c.s.sendDone) })
	return nil
}

// SendMsg queues a request. io.EOF means that the stream has ended; RecvMsg then tells why.
func (c clientSide) SendMsg(m any) error {
	select {
	case <-c.s.sendDone:
		return status.Error(codes.Internal, "SendMsg called after CloseSend")
	default:
	}
	data, err := c.s.conn.codec.Marshal(m)
	if err != nil {
		return status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
	}
	if c.s.caller.Err() == nil {
		select {
		case c.s.requests <- data:
			return nil
		case <-c.s.done:
		case <-c.s.caller.Done():
		}
	}
	data.Free()
	return io.EOF
}

// RecvMsg waits for a response. After the last one it gives io.EOF, or why the stream failed; then the
// header and trailer that call options asked for are there.
func (c clientSide) RecvMsg(m any) error {
	err := c.receive(m)
	if err != nil || !c.s.desc.ServerStreams {
		c.s.deliver.Do(c.s.metadata)
	}
	return err
}

func (c clientSide) receive(m any) error {
	var data mem.BufferSlice
	select {
	case data = <-c.s.responses:
	case <-c.s.outer.Done():
		return status.FromContextError(c.s.outer.Err()).Err()
	case <-c.s.done:
		select { // what was sent before the end comes first
		case data = <-c.s.responses:
		default:
			if c.s.err != nil {
				return c.s.err
			}
			return io.EOF
		}
	}
	defer data.Free()
	if err := c.s.conn.codec.Unmarshal(data, m); err != nil {
		c.s.cancel()
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	if c.s.desc.ServerStreams {
		return nil
	}
	<-c.s.done // a single response counts only if the handler succeeds
	return c.s.err
}

// serverSide is the handler's end.
type serverSide struct{ s *stream }

var _ grpc.ServerStream = serverSide{}

// SetHeader adds to the header.
func (h serverSide) SetHeader(md metadata.MD) error { return h.s.call.SetHeader(md) }

// SendHeader sends the header.
func (h serverSide) SendHeader(md metadata.MD) error {
	if err := h.s.call.SendHeader(md); err != nil {
		return err
	}
	h.s.first.Do(func() { close(h.s.header) })
	return nil
}

// SetTrailer adds to the trailer.
func (h serverSide) SetTrailer(md metadata.MD) { _ = h.s.call.SetTrailer(md) }

// Context is the handler's; it ends when the caller gives up or the Conn is closed.
func (h serverSide) Context() context.Context { return h.s.handler }

// SendMsg queues a response, and waits while the caller is behind.
func (h serverSide) SendMsg(m any) error {
	data, err := h.s.conn.codec.Marshal(m)
	if err != nil {
		return status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
	}
	h.s.sendHeader()
	select {
	case h.s.responses <- data:
		return nil
	case <-h.s.handler.Done():
		data.Free()
		return status.FromContextError(h.s.handler.Err()).Err()
	}
}

// RecvMsg waits for a request; io.EOF means that the caller sends no more.
func (h serverSide) RecvMsg(m any) error {
	var data mem.BufferSlice
	select {
	case data = <-h.s.requests:
	case <-h.s.handler.Done():
		return status.FromContextError(h.s.handler.Err()).Err()
	case <-h.s.sendDone:
		select { // what was sent before CloseSend comes first
		case data = <-h.s.requests:
		default:
			return io.EOF
		}
	}
	defer data.Free()
	if limit := h.s.conn.opts.MaxRequestBytes; limit > 0 && data.Len() > limit {
		return tooLarge(data.Len(), limit)
	}
	if err := h.s.conn.codec.Unmarshal(data, m); err != nil {
		return status.Errorf(codes.Internal, "grpc: error unmarshalling request: %v", err)
	}
	return nil
}
