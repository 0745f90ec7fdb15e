package client_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	"github.com/coordd/coordd/api/codec"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network is a set of members in memory that can be cut off, frozen and brought back.
type network struct {
	t       testing.TB
	members map[string]*member
}

// member is one address of the network with the scripted services behind it.
type member struct {
	*script
	name   string
	lis    *bufconn.Listener
	server *grpc.Server

	mu      sync.Mutex
	refuse  bool
	thawed  chan struct{} // closed while the member runs
	conns   map[*conn]struct{}
	dialled int
}

func newNetwork(t testing.TB, names ...string) *network {
	n := &network{t: t, members: map[string]*member{}}
	for _, name := range names {
		m := &member{
			script: new(script), name: name, lis: bufconn.Listen(1 << 20),
			thawed: make(chan struct{}), conns: map[*conn]struct{}{},
			server: grpc.NewServer(
				grpc.ForceServerCodecV2(codec.New()),
				grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second}), // as in members
			),
		}
		close(m.thawed)
		m.register(m.server)
		n.members[name+":2379"] = m
		served := make(chan struct{})
		go func() { _ = m.server.Serve(m.lis); close(served) }()
		t.Cleanup(func() { m.thaw(); m.cut(); m.server.Stop(); <-served })
	}
	return n
}

func (n *network) at(name string) *member { return n.members[name+":2379"] }

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	m, ok := n.members[address]
	if !ok {
		return nil, errors.New("no such host: " + address)
	}
	m.mu.Lock()
	refuse := m.refuse
	m.dialled++
	m.mu.Unlock()
	if refuse {
		return nil, errors.New("connection refused")
	}
	raw, err := m.lis.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, m: m, closed: make(chan struct{})}
	m.mu.Lock()
	m.conns[c] = struct{}{}
	m.mu.Unlock()
	return c, nil
}

// client makes a client of the members named.
func (n *network) client(names []string, opts ...client.Option) *client.Client {
	n.t.Helper()
	c, err := client.New(names, append([]client.Option{client.WithDialer(n.dial)}, opts...)...)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	return c
}

// down refuses connections and breaks those there are.
func (m *member) down() {
	m.mu.Lock()
	m.refuse = true
	m.mu.Unlock()
	m.cut()
}

func (m *member) up() {
	m.mu.Lock()
	m.refuse = false
	m.mu.Unlock()
}

// cut breaks the connections there are.
func (m *member) cut() {
	m.mu.Lock()
	conns := m.conns
	m.conns = map[*conn]struct{}{}
	m.mu.Unlock()
	for c := range conns {
		_ = c.Close()
	}
}

// freeze has the member accept everything and answer nothing, as SIGSTOP does.
func (m *member) freeze() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.thawed = make(chan struct{})
}

func (m *member) thaw() {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.thawed:
	default:
		close(m.thawed)
	}
}

func (m *member) gate() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.thawed
}

// conn is the client's end of a connection to a member.
type conn struct {
	net.Conn
	m      *member
	once   sync.Once
	closed chan struct{}
}

func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.m.gate():
		return n, err
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *conn) Write(p []byte) (int, error) {
	select {
	case <-c.m.gate():
		return c.Conn.Write(p)
	default:
	}
	// What goes to a stopped process is kept by the system; nobody reads it. It is lost here, which is the
	// same for a client that gives the connection up, and no test thaws a connection in use.
	return len(p), nil
}

// script is the services of a member, each a function that the test sets.
type script struct {
	services.UnimplementedKVServer
	services.UnimplementedWatchServer
	services.UnimplementedLeaseServer
	services.UnimplementedClusterServer
	services.UnimplementedMaintenanceServer
	services.UnimplementedAuthServer

	onRange        func(context.Context, *rpcpb.RangeRequest) (*rpcpb.RangeResponse, error)
	onRangeStream  func(*rpcpb.RangeRequest, grpc.ServerStreamingServer[rpcpb.RangeStreamResponse]) error
	onPut          func(context.Context, *rpcpb.PutRequest) (*rpcpb.PutResponse, error)
	onTxn          func(context.Context, *rpcpb.TxnRequest) (*rpcpb.TxnResponse, error)
	onWatch        func(grpc.BidiStreamingServer[rpcpb.WatchRequest, rpcpb.WatchResponse]) error
	onGrant        func(context.Context, *rpcpb.LeaseGrantRequest) (*rpcpb.LeaseGrantResponse, error)
	onRevoke       func(context.Context, *rpcpb.LeaseRevokeRequest) (*rpcpb.LeaseRevokeResponse, error)
	onTimeToLive   func(context.Context, *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error)
	onKeepAlive    func(grpc.BidiStreamingServer[rpcpb.LeaseKeepAliveRequest, rpcpb.LeaseKeepAliveResponse]) error
	onMemberList   func(context.Context, *rpcpb.MemberListRequest) (*rpcpb.MemberListResponse, error)
	onStatus       func(context.Context, *rpcpb.StatusRequest) (*rpcpb.StatusResponse, error)
	onSnapshot     func(*rpcpb.SnapshotRequest, grpc.ServerStreamingServer[rpcpb.SnapshotResponse]) error
	onAuthenticate func(context.Context, *rpcpb.AuthenticateRequest) (*rpcpb.AuthenticateResponse, error)
}

func (s *script) register(g *grpc.Server) {
	services.RegisterKVServer(g, s)
	services.RegisterWatchServer(g, s)
	services.RegisterLeaseServer(g, s)
	services.RegisterClusterServer(g, s)
	services.RegisterMaintenanceServer(g, s)
	services.RegisterAuthServer(g, s)
}

func (s *script) Range(ctx context.Context, r *rpcpb.RangeRequest) (*rpcpb.RangeResponse, error) {
	return unary(ctx, r, s.onRange, s.UnimplementedKVServer.Range)
}

func (s *script) RangeStream(r *rpcpb.RangeRequest, out grpc.ServerStreamingServer[rpcpb.RangeStreamResponse]) error {
	if s.onRangeStream == nil {
		return s.UnimplementedKVServer.RangeStream(r, out)
	}
	return s.onRangeStream(r, out)
}

func (s *script) Put(ctx context.Context, r *rpcpb.PutRequest) (*rpcpb.PutResponse, error) {
	return unary(ctx, r, s.onPut, s.UnimplementedKVServer.Put)
}

func (s *script) Txn(ctx context.Context, r *rpcpb.TxnRequest) (*rpcpb.TxnResponse, error) {
	return unary(ctx, r, s.onTxn, s.UnimplementedKVServer.Txn)
}

func (s *script) Watch(g grpc.BidiStreamingServer[rpcpb.WatchRequest, rpcpb.WatchResponse]) error {
	if s.onWatch == nil {
		return s.UnimplementedWatchServer.Watch(g)
	}
	return s.onWatch(g)
}

func (s *script) LeaseGrant(ctx context.Context, r *rpcpb.LeaseGrantRequest) (*rpcpb.LeaseGrantResponse, error) {
	return unary(ctx, r, s.onGrant, s.UnimplementedLeaseServer.LeaseGrant)
}

func (s *script) LeaseRevoke(ctx context.Context, r *rpcpb.LeaseRevokeRequest) (*rpcpb.LeaseRevokeResponse, error) {
	return unary(ctx, r, s.onRevoke, s.UnimplementedLeaseServer.LeaseRevoke)
}

func (s *script) LeaseTimeToLive(ctx context.Context, r *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error) {
	return unary(ctx, r, s.onTimeToLive, s.UnimplementedLeaseServer.LeaseTimeToLive)
}

func (s *script) LeaseKeepAlive(g grpc.BidiStreamingServer[rpcpb.LeaseKeepAliveRequest, rpcpb.LeaseKeepAliveResponse]) error {
	if s.onKeepAlive == nil {
		return s.UnimplementedLeaseServer.LeaseKeepAlive(g)
	}
	return s.onKeepAlive(g)
}

func (s *script) MemberList(ctx context.Context, r *rpcpb.MemberListRequest) (*rpcpb.MemberListResponse, error) {
	return unary(ctx, r, s.onMemberList, s.UnimplementedClusterServer.MemberList)
}

// Status answers that all is well unless the test says otherwise.
func (s *script) Status(ctx context.Context, r *rpcpb.StatusRequest) (*rpcpb.StatusResponse, error) {
	if s.onStatus == nil {
		return &rpcpb.StatusResponse{Leader: 1}, nil
	}
	return s.onStatus(ctx, r)
}

func (s *script) Snapshot(r *rpcpb.SnapshotRequest, out grpc.ServerStreamingServer[rpcpb.SnapshotResponse]) error {
	if s.onSnapshot == nil {
		return s.UnimplementedMaintenanceServer.Snapshot(r, out)
	}
	return s.onSnapshot(r, out)
}

func (s *script) Authenticate(ctx context.Context, r *rpcpb.AuthenticateRequest) (*rpcpb.AuthenticateResponse, error) {
	return unary(ctx, r, s.onAuthenticate, s.UnimplementedAuthServer.Authenticate)
}

func unary[Req, Resp any](ctx context.Context, r *Req, scripted, otherwise func(context.Context, *Req) (*Resp, error)) (*Resp, error) {
	if scripted == nil {
		return otherwise(ctx, r)
	}
	return scripted(ctx, r)
}

// deadline gives a context for a test that should be long done by then.
func deadline(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}
