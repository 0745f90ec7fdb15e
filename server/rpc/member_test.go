package rpc

import (
	"context"
	"math"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/coordd/coordd/api/codec"
	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/requestpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/apply"
	"github.com/coordd/coordd/lease"
	"github.com/coordd/coordd/mvcc/backend"
	"github.com/coordd/coordd/mvcc/query"
	"github.com/coordd/coordd/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testPatience bounds waiting for something that must come, so that what hangs is told of with its name. It is far longer than a
// busy machine needs.
const testPatience = 2 * time.Minute

// testMember is a member without a log: the replicated state machine itself, given one request after
// another. What a cluster would decide (leader, role, version) is set by the test.
type testMember struct {
	hub *watch.Hub

	mu      sync.Mutex // guards the machine and index
	machine *apply.Machine
	index   uint64

	leader  atomic.Uint64
	learner atomic.Bool
	version atomic.Pointer[string]
	asked   atomic.Int64 // how often Leader was called
	// onRenew and onRange, if not nil, are called before a renewal or a read.
	onRenew func(ctx context.Context, id int64) error
	onRange func(*rpcpb.RangeRequest) error
	members []*rpcpb.Member
	moved   uint64
}

const (
	testID      = 0xabcdef0123456789
	testCluster = 0x1122334455667788
	testTerm    = 7
)

func newTestMember(t testing.TB) *testMember {
	t.Helper()
	m, err := apply.Open(filepath.Join(t.TempDir(), "db"), apply.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := &testMember{machine: m, hub: watch.New(m.KV, watch.Options{})}
	n.leader.Store(testID)
	version := "3.7.0"
	n.version.Store(&version)
	t.Cleanup(func() {
		n.hub.Close()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// do applies a request as an entry of the log.
func (n *testMember) do(r *requestpb.InternalRaftRequest) (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	data, err := r.MarshalVT()
	if err != nil {
		return nil, err
	}
	n.index++
	index, term := n.index, uint64(testTerm)
	_, res := n.machine.Apply(&raftpb.Entry{Index: &index, Term: &term, Data: data}, func(uint64) bool { return true })
	rev, events := n.machine.Publish()
	n.hub.Publish(rev, events)
	if res.Err == nil && r.Compaction != nil {
		for n.machine.CompactStep(1000) {
		}
	}
	return res.Response, res.Err
}

func as[T any](v any, err error) (T, error) {
	if err != nil {
		var zero T
		return zero, err
	}
	return v.(T), nil
}

func (n *testMember) ID() uint64        { return testID }
func (n *testMember) ClusterID() uint64 { return testCluster }
func (n *testMember) Term() uint64      { return testTerm }
func (n *testMember) Revision() int64   { return n.machine.KV.Revision() }
func (n *testMember) Leader() uint64    { n.asked.Add(1); return n.leader.Load() }
func (n *testMember) IsLearner() bool   { return n.learner.Load() }

func (n *testMember) ClusterVersion() string { return *n.version.Load() }

func (n *testMember) Range(_ context.Context, r *rpcpb.RangeRequest, visit func([]byte) error) (query.Result, error) {
	if n.onRange != nil {
		if err := n.onRange(r); err != nil {
			return query.Result{}, err
		}
	}
	return query.Range(n.machine.KV, r, visit)
}

func (n *testMember) Put(_ context.Context, r *rpcpb.PutRequest) (*rpcpb.PutResponse, error) {
	return as[*rpcpb.PutResponse](n.do(&requestpb.InternalRaftRequest{Put: r}))
}

func (n *testMember) DeleteRange(_ context.Context, r *rpcpb.DeleteRangeRequest) (*rpcpb.DeleteRangeResponse, error) {
	return as[*rpcpb.DeleteRangeResponse](n.do(&requestpb.InternalRaftRequest{DeleteRange: r}))
}

func (n *testMember) TxnLater(ctx context.Context, r *rpcpb.TxnRequest) (*rpcpb.TxnResponse, error) {
	return n.Txn(ctx, r)
}

func (n *testMember) Txn(_ context.Context, r *rpcpb.TxnRequest) (*rpcpb.TxnResponse, error) {
	return as[*rpcpb.TxnResponse](n.do(&requestpb.InternalRaftRequest{Txn: r}))
}

func (n *testMember) Compact(_ context.Context, r *rpcpb.CompactionRequest) (*rpcpb.CompactionResponse, error) {
	return as[*rpcpb.CompactionResponse](n.do(&requestpb.InternalRaftRequest{Compaction: r}))
}

func (n *testMember) LeaseGrant(_ context.Context, r *rpcpb.LeaseGrantRequest) (*rpcpb.LeaseGrantResponse, error) {
	return as[*rpcpb.LeaseGrantResponse](n.do(&requestpb.InternalRaftRequest{LeaseGrant: r}))
}

func (n *testMember) LeaseRevoke(_ context.Context, r *rpcpb.LeaseRevokeRequest) (*rpcpb.LeaseRevokeResponse, error) {
	return as[*rpcpb.LeaseRevokeResponse](n.do(&requestpb.InternalRaftRequest{LeaseRevoke: r}))
}

func (n *testMember) LeaseRenew(ctx context.Context, id int64) (int64, error) {
	if n.onRenew != nil {
		if err := n.onRenew(ctx, id); err != nil {
			return 0, err
		}
	}
	l, ok := n.machine.Leases.Get(lease.ID(id))
	if !ok {
		return 0, errs.ErrLeaseNotFound
	}
	return l.TTL, nil
}

func (n *testMember) LeaseTimeToLive(_ context.Context, r *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error) {
	l, ok := n.machine.Leases.Get(lease.ID(r.ID))
	if !ok {
		return &rpcpb.LeaseTimeToLiveResponse{ID: r.ID, TTL: -1}, nil
	}
	return &rpcpb.LeaseTimeToLiveResponse{ID: r.ID, TTL: l.TTL, GrantedTTL: l.TTL}, nil
}

func (n *testMember) LeaseLeases(context.Context) (*rpcpb.LeaseLeasesResponse, error) {
	resp := new(rpcpb.LeaseLeasesResponse)
	for _, l := range n.machine.Leases.List() {
		resp.Leases = append(resp.Leases, &rpcpb.LeaseStatus{ID: int64(l.ID)})
	}
	return resp, nil
}

func (n *testMember) MemberList(context.Context, bool) ([]*rpcpb.Member, error) {
	return n.members, nil
}

func (n *testMember) Status() *rpcpb.StatusResponse {
	return &rpcpb.StatusResponse{Version: "3.7.3", RaftTerm: testTerm}
}

func (n *testMember) Alarm(_ context.Context, r *rpcpb.AlarmRequest) (*rpcpb.AlarmResponse, error) {
	return as[*rpcpb.AlarmResponse](n.do(&requestpb.InternalRaftRequest{Alarm: r}))
}

func (n *testMember) Hash(context.Context) (uint32, int64, error) {
	if err := n.commit(); err != nil {
		return 0, 0, err
	}
	hash, err := n.machine.Backend.Hash()
	return hash, n.Revision(), err
}

func (n *testMember) HashKV(_ context.Context, rev int64) (*rpcpb.HashKVResponse, error) {
	hash, compacted, at, err := n.machine.KV.HashKV(rev)
	if err != nil {
		return nil, err
	}
	return &rpcpb.HashKVResponse{Hash: hash, CompactRevision: compacted, HashRevision: at}, nil
}

func (n *testMember) MoveLeader(_ context.Context, target uint64) error {
	if n.leader.Load() != testID {
		return errs.ErrNotLeader
	}
	n.moved = target
	return nil
}

func (n *testMember) commit() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.machine.Commit(true)
}

func (n *testMember) Snapshot(context.Context) (*backend.Snapshot, error) {
	if err := n.commit(); err != nil {
		return nil, err
	}
	return n.machine.Backend.Snapshot()
}

// mustPut puts a key and returns the revision.
func (n *testMember) mustPut(t testing.TB, key, value string) int64 {
	t.Helper()
	resp, err := n.Put(t.Context(), &rpcpb.PutRequest{Key: []byte(key), Value: []byte(value)})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

// served is a member whose services are served in memory.
type served struct {
	*testMember
	*Services
	conn *grpc.ClientConn
}

// serve serves a new member. change may change the configuration.
func serve(t testing.TB, change func(*Config), opts ...grpc.ServerOption) *served {
	t.Helper()
	n := newTestMember(t)
	cfg := Config{Node: n, Hub: n.hub}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &served{testMember: n, Services: s, conn: dialServer(t, s.NewServer(opts...))}
}

// dialServer serves g in memory and connects a client.
func dialServer(t testing.TB, g *grpc.Server) *grpc.ClientConn {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(lis) })
	conn, err := grpc.NewClient("passthrough:///member", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec.New()), grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		g.Stop()
		wg.Wait()
	})
	return conn
}

// with gives a context of the test that ends in time and has metadata.
func with(t testing.TB, md ...string) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testPatience)
	t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, md...)
}
