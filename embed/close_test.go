package embed

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/coordd/coordd/api/coorddpb"
	"github.com/coordd/coordd/api/electionpb"
	"github.com/coordd/coordd/api/lockpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// mute is a connection of a client that can fall silent: it then reads no more, and so does not answer to anything either.
type mute struct {
	net.Conn
	silent chan struct{} // closed when it falls silent
	once   sync.Once
	gone   chan struct{} // closed by Close
}

// Read implements net.Conn.
func (m *mute) Read(p []byte) (int, error) {
	select {
	case <-m.silent:
		<-m.gone
	default:
	}
	return m.Conn.Read(p)
}

// Close implements net.Conn.
func (m *mute) Close() error {
	m.once.Do(func() { close(m.gone) })
	return m.Conn.Close()
}

// open opens streams and calls of all kinds that do not end by themselves, and waits until the server has each.
func open(t *testing.T, cc *grpc.ClientConn) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	t.Cleanup(func() { cancel(); calls.Wait() })
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	watch, err := services.NewWatchClient(cc).Watch(ctx)
	check("watch", err)
	create := &rpcpb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, StartRevision: 1}
	check("watch", watch.Send(&rpcpb.WatchRequest{RequestUnion: &rpcpb.WatchRequest_CreateRequest{CreateRequest: create}}))
	_, err = watch.Recv()
	check("watch", err)

	alive, err := services.NewLeaseClient(cc).LeaseKeepAlive(ctx)
	check("keep-alive", err)
	check("keep-alive", alive.Send(&rpcpb.LeaseKeepAliveRequest{ID: 1}))
	_, err = alive.Recv()
	check("keep-alive", err)

	snapshot, err := services.NewMaintenanceClient(cc).Snapshot(ctx, &rpcpb.SnapshotRequest{})
	check("snapshot", err)
	_, err = snapshot.Recv()
	check("snapshot", err)

	rows, err := services.NewKVClient(cc).RangeStream(ctx, &rpcpb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	check("range", err)
	_, err = rows.Recv()
	check("range", err)

	locks, elections := services.NewLockClient(cc), services.NewElectionClient(cc)
	_, err = locks.Lock(ctx, &lockpb.LockRequest{Name: []byte("l")})
	check("lock", err)
	hold, err := services.NewLocksClient(cc).Hold(ctx, &coorddpb.HoldRequest{Name: []byte("h")})
	check("hold", err)
	_, err = hold.Recv()
	check("hold", err)
	_, err = elections.Campaign(ctx, &electionpb.CampaignRequest{Name: []byte("e")})
	check("campaign", err)
	observe, err := elections.Observe(ctx, &electionpb.LeaderRequest{Name: []byte("e")})
	check("observe", err)
	_, err = observe.Recv()
	check("observe", err)
	native, err := services.NewElectionsClient(cc).Observe(ctx, &coorddpb.ObserveRequest{Name: []byte("none")})
	check("native observe", err)
	_, err = native.Recv()
	check("native observe", err)
	calls.Go(func() { _, _ = locks.Lock(ctx, &lockpb.LockRequest{Name: []byte("l")}) })
	calls.Go(func() { _, _ = elections.Campaign(ctx, &electionpb.CampaignRequest{Name: []byte("e")}) })
	waiting := func() bool {
		for _, name := range []string{"l", "e"} {
			r, err := services.NewLocksClient(cc).List(ctx, &coorddpb.ListLocksRequest{Name: []byte(name)})
			check("list", err)
			if len(r.GetHolders())+len(r.GetWaiters()) < 2 {
				return false
			}
		}
		return true
	}
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for !waiting() {
		<-again.C
	}
}

// say connects to a URL of the node and says something, and then no more.
func say(t *testing.T, url, text string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// Close comes to an end, though clients of all kinds are connected that have fallen silent: some in the middle of a stream, of
// which they have not taken what was sent, others in the middle of their first words.
func TestCloseWithSilentClients(t *testing.T) {
	cfg := NewTestConfig(t.TempDir())
	cfg.ListenClientURLs, cfg.ListenPeerURLs = []string{"http://127.0.0.1:0"}, []string{"http://127.0.0.1:0"}
	n := ready(t, start(t, cfg))
	value := strings.Repeat("v", 1<<20)
	for i := range 8 { // more than a client takes in before it reads
		if _, err := n.Client().Put(testContext(t), fmt.Sprint("k", i), value); err != nil {
			t.Fatal(err)
		}
	}
	silent := make(chan struct{})
	cc, err := grpc.NewClient(n.ClientURLs()[0][len("http://"):], grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err != nil {
				return nil, err
			}
			return &mute{Conn: conn, silent: silent, gone: make(chan struct{})}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	open(t, cc)
	close(silent)
	const greeting = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	for _, url := range []string{n.ClientURLs()[0], "http://" + n.listeners.peer[0].Addr().String()} {
		for _, text := range []string{"", greeting[:5], greeting, greeting + "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "GET /health HTTP/1.1\r\nHost: "} {
			say(t, url, text)
		}
	}
	inProcess(t, n)
	closed := make(chan error, 1)
	go func() { closed <- n.Close() }()
	select {
	case err := <-closed:
		wantNoError(t, err, "close")
	case <-time.After(time.Minute): // half of what gRPC gives clients to begin, unless told otherwise
		t.Fatal("Close does not come to an end")
	}
}

// inProcess leaves a snapshot unread that came without a connection.
func inProcess(t *testing.T, n *Node) {
	t.Helper()
	snapshot, err := services.NewMaintenanceClient(n.Conn()).Snapshot(t.Context(), &rpcpb.SnapshotRequest{})
	if err == nil {
		_, err = snapshot.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
}
