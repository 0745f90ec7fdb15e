package inproc

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/codec"
)

// Options of a Conn. The zero value is ready to use.
type Options struct {
	// Unary and Stream are called around handlers; nil = none. Chain several with a function of your own.
	Unary  grpc.UnaryServerInterceptor
	Stream grpc.StreamServerInterceptor
	// MaxRequestBytes bounds an encoded request; 0 = no bound. A larger one is answered with code
	// ResourceExhausted, as by a grpc.Server.
	MaxRequestBytes int
}

// Conn calls services in this process. Register them before the first call; from then on any number of
// goroutines may use it.
type Conn struct {
	opts    Options
	codec   codec.Codec
	methods map[string]*method
	names   map[string]bool // of the services

	ctx  context.Context // of streams; ends with Shutdown
	stop context.CancelFunc

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // unary calls and streams; Add under mu, while not closed
}

var (
	_ grpc.ClientConnInterface = (*Conn)(nil)
	_ grpc.ServiceRegistrar    = (*Conn)(nil)
)

// method is one method of a registered service.
type method struct {
	full   string // /service/method
	impl   any
	unary  grpc.MethodHandler // nil for streams
	stream *grpc.StreamDesc   // nil for unary methods
}

// New makes a Conn without services.
func New(o Options) *Conn {
	c := &Conn{opts: o, codec: codec.New(), methods: map[string]*method{}, names: map[string]bool{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// RegisterService adds a service and its implementation, for the Register functions of generated code.
// To register a name twice is a mistake of the program and panics, as with a grpc.Server.
func (c *Conn) RegisterService(desc *grpc.ServiceDesc, impl any) {
	add := func(name string, m *method) {
		m.full = "/" + desc.ServiceName + "/" + name
		m.impl = impl
		if c.methods[m.full] != nil {
			panic("inproc: " + m.full + " is registered twice")
		}
		c.methods[m.full] = m
	}
	c.names[desc.ServiceName] = true
	for i := range desc.Methods {
		add(desc.Methods[i].MethodName, &method{unary: desc.Methods[i].Handler})
	}
	for i := range desc.Streams {
		add(desc.Streams[i].StreamName, &method{stream: &desc.Streams[i]})
	}
}

// Shutdown refuses further calls with code Unavailable and ends the contexts of streams. It does not wait.
func (c *Conn) Shutdown() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
}

// Close is Shutdown, and then waits until all handlers have returned. It may be called more than once.
func (c *Conn) Close() error {
	c.Shutdown()
	c.calls.Wait()
	return nil
}

// begin counts a call, for Close to wait for.
func (c *Conn) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return status.Error(codes.Unavailable, "the server in this process is closed")
	}
	c.calls.Add(1)
	return nil
}

// find looks a method up, and answers as a grpc.Server would if there is none.
func (c *Conn) find(name string, stream bool) (*method, error) {
	m := c.methods[name]
	if m == nil || (m.stream != nil) != stream {
		service, method, _ := strings.Cut(strings.TrimPrefix(name, "/"), "/")
		if !c.names[service] {
			return nil, status.Errorf(codes.Unimplemented, "unknown service %s", service)
		}
		return nil, status.Errorf(codes.Unimplemented, "unknown method %s for service %s", method, service)
	}
	return m, nil
}

// Invoke calls a unary method: args is the request, reply takes the response.
func (c *Conn) Invoke(ctx context.Context, name string, args, reply any, opts ...grpc.CallOption) (err error) {
	call, err := newCall(ctx, name, opts)
	if err != nil {
		return err
	}
	defer func() { call.metadata(); call.finished(err) }()
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	m, err := c.find(name, false)
	if err != nil {
		return err
	}
	if err := c.begin(); err != nil {
		return err
	}
	defer c.calls.Done()
	decode := func(in any) error { return c.copyRequest(args, in) }
	out, err := m.unary(m.impl, call.serverContext(ctx), decode, c.opts.Unary)
	if err != nil {
		return wireError(ctx, err)
	}
	if err := c.copyMessage(out, reply, 0); err != nil {
		return status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
	}
	return nil
}

// copyRequest gives a handler the request that a caller passed.
func (c *Conn) copyRequest(from, to any) error {
	err := c.copyMessage(from, to, c.opts.MaxRequestBytes)
	if _, ok := status.FromError(err); err != nil && !ok {
		return status.Errorf(codes.Internal, "grpc: error unmarshalling request: %v", err)
	}
	return err
}

// copyMessage copies a message by its encoding, which may have limit bytes if that is not 0.
func (c *Conn) copyMessage(from, to any, limit int) error {
	data, err := c.codec.Marshal(from)
	if err != nil {
		return err
	}
	defer data.Free()
	if n := data.Len(); limit > 0 && n > limit {
		return tooLarge(n, limit)
	}
	return c.codec.Unmarshal(data, to)
}

func tooLarge(n, limit int) error {
	return status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", n, limit)
}

// wireError is what is left of a handler's error behind a connection. If the caller's context has ended
// the caller is told that, as by a connection, which would not wait for the handler's answer.
func wireError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err) // Unknown, unless it is a context's error
	}
	if s.Code() == codes.OK {
		s = status.New(codes.Internal, "a handler returned an error with code OK")
	}
	return status.ErrorProto(s.Proto())
}

// address is that of both sides.
type address struct{}

// Network is "in-process".
func (address) Network() string { return "in-process" }

// String is "in-process".
func (address) String() string { return "in-process" }

var _ net.Addr = address{}

// call is what the options and the context of one call say.
type call struct {
	method  string
	md      metadata.MD // from the caller
	header  []*metadata.MD
	trailer []*metadata.MD
	end     []func(error)
	sent    // by the handler
}

// newCall reads the caller's options. Those about the transport have no meaning here.
func newCall(ctx context.Context, method string, opts []grpc.CallOption) (*call, error) {
	c := &call{method: method}
	if md, ok := metadata.FromOutgoingContext(ctx); ok {
		c.md = md // a copy of the context's
	}
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			c.header = append(c.header, o.HeaderAddr)
		case grpc.TrailerCallOption:
			c.trailer = append(c.trailer, o.TrailerAddr)
		case grpc.PeerCallOption:
			*o.PeerAddr = peer.Peer{Addr: address{}, LocalAddr: address{}}
		case grpc.OnFinishCallOption:
			c.end = append(c.end, o.OnFinish)
		case grpc.PerRPCCredsCallOption:
			if err := c.credentials(ctx, o); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

func (c *call) credentials(ctx context.Context, o grpc.PerRPCCredsCallOption) error {
	if o.Creds.RequireTransportSecurity() {
		return status.Error(codes.Unauthenticated, "these credentials are for encrypted connections, and this is none")
	}
	more, err := o.Creds.GetRequestMetadata(ctx)
	if err != nil {
		return status.Errorf(codes.Unauthenticated, "transport: per-RPC creds failed due to error: %v", err)
	}
	c.md = metadata.Join(c.md, metadata.New(more))
	return nil
}

// metadata hands the handler's headers and trailers to the caller's options, on the caller's goroutine.
func (c *call) metadata() {
	header, trailer := c.both()
	for _, p := range c.header {
		*p = header
	}
	for _, p := range c.trailer {
		*p = trailer
	}
}

// finished tells the caller's options that the call is over.
func (c *call) finished(err error) {
	for _, f := range c.end {
		f(err)
	}
}

// callerContext ends with the caller's context and has its deadline, but not its values.
type callerContext struct{ context.Context }

// Value has nothing.
func (callerContext) Value(any) any { return nil }

// serverContext is the context of a handler called by a caller with ctx.
func (c *call) serverContext(ctx context.Context) context.Context {
	ctx = peer.NewContext(callerContext{ctx}, &peer.Peer{Addr: address{}, LocalAddr: address{}})
	md := c.md
	if md == nil {
		md = metadata.MD{}
	}
	ctx = metadata.NewIncomingContext(ctx, md)
	return grpc.NewContextWithServerTransportStream(ctx, c)
}

// Method is the full name of the method, for grpc.Method.
func (c *call) Method() string { return c.method }

// sent are headers and trailers on their way to the caller. It implements what grpc.SetHeader and its
// like need.
type sent struct {
	mu         sync.Mutex
	header     metadata.MD
	trailer    metadata.MD
	headerSent bool
}

// SetHeader adds to the header, which must not be sent yet.
func (s *sent) SetHeader(md metadata.MD) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.headerSent {
		return fmt.Errorf("inproc: the header is already sent")
	}
	s.header = metadata.Join(s.header, md)
	return nil
}

// SendHeader adds to the header and sends it.
func (s *sent) SendHeader(md metadata.MD) error {
	if err := s.SetHeader(md); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.headerSent = true
	return nil
}

// SetTrailer adds to the trailer.
func (s *sent) SetTrailer(md metadata.MD) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trailer = metadata.Join(s.trailer, md)
	return nil
}

// both returns the header and the trailer as they are now.
func (s *sent) both() (header, trailer metadata.MD) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.header.Copy(), s.trailer.Copy()
}
