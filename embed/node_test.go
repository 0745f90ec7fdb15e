package embed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// start starts a node that is closed at the end of the test, and checks that nothing of it is left then.
func start(t *testing.T, cfg *Config) *Node {
	t.Helper()
	n, err := Start(testContext(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { wantNoError(t, n.Close(), "close") })
	return n
}

func ready(t *testing.T, n *Node) *Node {
	t.Helper()
	if err := n.WaitReady(testContext(t)); err != nil {
		t.Fatal(err)
	}
	return n
}

// dial gives a gRPC connection through a node's memory.
func dial(t *testing.T, n *Node) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///node", grpc.WithContextDialer(n.Dialer()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

func TestNodeWithoutSockets(t *testing.T) {
	n := ready(t, start(t, NewTestConfig(t.TempDir())))
	ctx := testContext(t)
	c := n.Client()
	if _, err := c.Put(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Get(ctx, "k"); err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != "v" {
		t.Fatalf("%v %v", r, err)
	}
	lease, err := c.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := c.TimeToLive(ctx, client.LeaseID(lease.ID)); err != nil || r.TTL <= 0 {
		t.Fatalf("%v %v", r, err)
	}
	m, err := c.MemberList(ctx)
	if err != nil || len(m.Members) != 1 || m.Members[0].ID != n.ID() || m.Header.ClusterId != n.ClusterID() || n.Leader() != n.ID() {
		t.Errorf("%v %v", m, err)
	}
	if len(n.ClientURLs()) != 0 || len(n.listeners.peer) != 0 {
		t.Error("it listens")
	}
}

// A gRPC client in memory gets what the in-process one gets, streams included.
func TestDialer(t *testing.T) {
	n := start(t, NewTestConfig(t.TempDir()))
	cc := dial(t, n) // before the node is ready
	ctx := testContext(t)
	w, err := services.NewWatchClient(cc).Watch(ctx, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	create := &rpcpb.WatchCreateRequest{Key: []byte("k")}
	if err := w.Send(&rpcpb.WatchRequest{RequestUnion: &rpcpb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
		t.Fatal(err)
	}
	if r, err := w.Recv(); err != nil || !r.Created {
		t.Fatalf("%v %v", r, err)
	}
	put, err := n.Client().Put(ctx, "k", "v")
	if err != nil {
		t.Fatal(err)
	}
	if r, err := w.Recv(); err != nil || len(r.Events) != 1 || r.Events[0].Kv.ModRevision != put.Header.Revision {
		t.Fatalf("%v %v", r, err)
	}
	wantNoError(t, n.Close(), "close")
	if _, err := w.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the watch ended with %v", err)
	}
	if _, err := n.Dialer()(ctx, "x"); !errors.Is(err, errClosed) {
		t.Errorf("dialling a closed node: %v", err)
	}
}

// group starts three members over a network in memory.
func group(t *testing.T) []*Node {
	network := NewNetwork()
	var nodes []*Node
	for i := range 3 {
		nodes = append(nodes, start(t, memberConfig(t, network, t.TempDir(), i)))
	}
	for _, n := range nodes {
		ready(t, n)
	}
	return nodes
}

func memberConfig(t *testing.T, network *Network, dir string, i int) *Config {
	t.Helper()
	cfg := NewTestConfig(dir)
	cfg.Heartbeat, cfg.ElectionTimeout = 20*time.Millisecond, 400*time.Millisecond // machines that run tests are busy
	cfg.Name = fmt.Sprint("m", i)
	ln, err := network.Listen(cfg.Name + ":2380")
	if err != nil {
		t.Fatal(err)
	}
	cfg.PeerListeners, cfg.PeerDialer = []net.Listener{ln}, network.Dial
	cfg.AdvertisePeerURLs = []string{"http://" + cfg.Name + ":2380"}
	cfg.InitialCluster = "m0=http://m0:2380,m1=http://m1:2380,m2=http://m2:2380"
	return cfg
}

func TestThreeNodesInOneProcess(t *testing.T) {
	nodes := group(t)
	ctx := testContext(t)
	for i, n := range nodes {
		if _, err := n.Client().Put(ctx, "k", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		other := nodes[(i+1)%3]
		if r, err := other.Client().Get(ctx, "k"); err != nil || string(r.Kvs[0].Value) != fmt.Sprint(i) {
			t.Fatalf("%v %v", r, err)
		}
	}
	// The leader hands over when it closes, and the others go on.
	for _, n := range nodes {
		if n.Leader() == n.ID() {
			wantNoError(t, n.Close(), "close of the leader")
			break
		}
	}
	for _, n := range nodes {
		select {
		case <-n.Done():
			continue
		default:
		}
		if r, err := n.Client().Get(ctx, "k"); err != nil || string(r.Kvs[0].Value) != "2" {
			t.Fatalf("%v %v", r, err)
		}
	}
}

func TestRestart(t *testing.T) {
	network, dir := NewNetwork(), t.TempDir()
	for i := range 3 {
		cfg := memberConfig(t, network, dir, 0)
		cfg.InitialCluster = ""
		n := ready(t, start(t, cfg))
		r, err := n.Client().Get(testContext(t), "k", client.WithFromKey(), client.WithCountOnly())
		if err != nil || r.Count != int64(i) {
			t.Fatalf("start %d: %v %v", i, r, err)
		}
		if _, err := n.Client().Put(testContext(t), fmt.Sprint("k", i), "v"); err != nil {
			t.Fatal(err)
		}
		wantNoError(t, n.Close(), "close")
	}
}

func TestCloseInEveryState(t *testing.T) {
	var none *Node
	wantNoError(t, none.Close(), "a node that did not start")

	network := NewNetwork()
	alone := start(t, memberConfig(t, network, t.TempDir(), 0)) // two of three are missing
	select {
	case <-alone.Ready():
		t.Error("ready without a majority")
	default:
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := alone.WaitReady(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "m0") {
		t.Errorf("waiting in vain: %v", err)
	}
	wantNoError(t, alone.Close(), "before ready")
	if err := alone.WaitReady(testContext(t)); !errors.Is(err, errClosed) {
		t.Errorf("waiting for a closed node: %v", err)
	}

	n := ready(t, start(t, NewTestConfig(t.TempDir())))
	if n.Err() != nil {
		t.Errorf("running with error %v", n.Err())
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { wantNoError(t, n.Close(), "at once") })
	}
	all.Wait()
	wantNoError(t, n.Close(), "again")
	wantNoError(t, n.Err(), "after the end")
	select {
	case <-n.Done():
	default:
		t.Error("closed, but not done")
	}
	if _, err := n.Client().Get(testContext(t), "k"); !errors.Is(err, client.ErrClosed) {
		t.Errorf("the client of a closed node: %v", err)
	}
	_, err := services.NewKVClient(n.Conn()).Range(testContext(t), &rpcpb.RangeRequest{Key: []byte("k")})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("the connection of a closed node: %v", err)
	}
}

func TestFailedStarts(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	running := ready(t, start(t, NewTestConfig(t.TempDir())))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	measured := NewTestConfig(t.TempDir())
	measured.Registerer = registry
	ready(t, start(t, measured))
	for name, x := range map[string]struct {
		change func(c *Config)
		is     error
		texts  []string
	}{
		"taken client port": {func(c *Config) { c.ListenClientURLs = []string{"http://" + taken.Addr().String()} }, syscall.EADDRINUSE, []string{taken.Addr().String()}},
		"taken peer port":   {func(c *Config) { c.ListenPeerURLs = []string{"http://" + taken.Addr().String()} }, syscall.EADDRINUSE, []string{taken.Addr().String()}},
		"directory in use":  {func(c *Config) { c.Dir = running.cfg.Dir }, nil, []string{running.cfg.Dir, "in use", "--data-dir"}},
		"no directory":      {func(c *Config) { c.Dir = file }, syscall.ENOTDIR, []string{file}},
		"same registerer":   {func(c *Config) { c.Registerer = registry }, nil, []string{"registerer each"}},
		"invalid":           {func(c *Config) { c.Heartbeat = 0 }, nil, []string{"--heartbeat-interval"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := NewTestConfig(t.TempDir())
			network := NewNetwork()
			ln, err := network.Listen("mine:1")
			if err != nil {
				t.Fatal(err)
			}
			cfg.PeerListeners = []net.Listener{ln}
			cfg.ListenMetricsURLs = []string{"http://127.0.0.1:0"}
			x.change(cfg)
			n, err := Start(testContext(t), cfg)
			if err == nil {
				_ = n.Close()
				t.Fatal("it started")
			}
			if x.is != nil && !errors.Is(err, x.is) {
				t.Errorf("%v is not %v", err, x.is)
			}
			for _, text := range x.texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("no %q in %v", text, err)
				}
			}
			if name == "invalid" { // nothing was taken over
				return
			}
			if again, err := network.Listen("mine:1"); err != nil {
				t.Errorf("the listener is not given back: %v", err)
			} else {
				_ = again.Close()
			}
		})
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(testContext(t), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func TestListeners(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	cfg := NewTestConfig(t.TempDir())
	cfg.Logger = zap.New(core)
	cfg.ListenClientURLs = []string{"http://127.0.0.1:0", "http://127.0.0.1:0"}
	cfg.ListenPeerURLs = []string{"http://127.0.0.1:0"}
	cfg.AdvertisePeerURLs = []string{"http://127.0.0.1:2380"}
	cfg.ListenMetricsURLs = []string{"http://127.0.0.1:0"}
	n := ready(t, start(t, cfg))
	if c := logs.FilterMessage("ready to serve client requests").Len(); c != 2 {
		t.Errorf("ready was logged %d times for two listeners", c)
	}
	urls := n.ClientURLs()
	c, err := client.New(urls)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Put(testContext(t), "k", "v"); err != nil {
		t.Fatal(err)
	}
	for _, u := range urls {
		if code, body := get(t, u+"/health"); code != 200 || !strings.Contains(body, `"health":"true"`) {
			t.Errorf("%s: %d %s", u, code, body)
		}
	}
	if code, body := get(t, urls[0]+"/metrics"); code != 200 || !strings.Contains(body, "etcd_server_has_leader 1") || !strings.Contains(body, "go_goroutines") {
		t.Errorf("metrics: %d %s", code, body)
	}
	monitor := n.listeners.metrics[0].url
	if code, body := get(t, monitor+"/readyz"); code != 200 {
		t.Errorf("metrics listener: %d %s", code, body)
	}
	if code, _ := get(t, monitor+"/version"); code != 404 {
		t.Errorf("the metrics listener has /version: %d", code)
	}
	health, err := healthpb.NewHealthClient(dial(t, n)).Check(testContext(t), &healthpb.HealthCheckRequest{})
	if err != nil || health.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v %v", health, err)
	}
	m, err := n.Client().MemberList(testContext(t))
	if err != nil || fmt.Sprint(m.Members[0].ClientURLs) != fmt.Sprint(urls) {
		t.Errorf("advertised %v, want %v (%v)", m.GetMembers(), urls, err)
	}
	wantNoError(t, n.Close(), "close")
	for _, u := range append(urls, monitor) { // the ports are free
		ln, err := net.Listen("tcp", strings.TrimPrefix(u, "http://"))
		if err != nil {
			t.Errorf("after Close: %v", err)
			continue
		}
		_ = ln.Close()
	}
}

// With listeners for HTTP alone, the others are for gRPC alone.
func TestHTTPListener(t *testing.T) {
	cfg := NewTestConfig(t.TempDir())
	cfg.ListenClientURLs = []string{"http://127.0.0.1:0"}
	cfg.ListenClientHTTPURLs = []string{"http://127.0.0.1:0"}
	cfg.Pprof = true
	n := ready(t, start(t, cfg))
	urls := n.ClientURLs()
	c, err := client.New(urls[:1])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Put(testContext(t), "k", "v"); err != nil {
		t.Fatal(err)
	}
	if code, _ := get(t, urls[0]+"/health"); code == 200 {
		t.Error("HTTP on the listener for gRPC")
	}
	for _, path := range []string{"/health", "/version", "/debug/pprof/"} {
		if code, body := get(t, urls[1]+path); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

// Calls under way when the node closes are finished, and streams are ended.
func TestCloseEndsWatches(t *testing.T) {
	n := ready(t, start(t, NewTestConfig(t.TempDir())))
	w, err := services.NewWatchClient(n.Conn()).Watch(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	create := &rpcpb.WatchCreateRequest{Key: []byte("k")}
	if err := w.Send(&rpcpb.WatchRequest{RequestUnion: &rpcpb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Recv(); err != nil {
		t.Fatal(err)
	}
	wantNoError(t, n.Close(), "close")
	// It was told, and not cut off when the time for calls under way was up.
	if _, err := w.Recv(); status.Code(err) != codes.Unavailable || status.Convert(err).Message() != errs.ErrStopped.Error() {
		t.Errorf("the watch ended with %v", err)
	}
}

// A listener that fails ends the node, with the reason.
func TestListenerFails(t *testing.T) {
	cfg := NewTestConfig(t.TempDir())
	cfg.ListenClientURLs = []string{"http://127.0.0.1:0"}
	n, err := prepare(testContext(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	n.listeners.clients[0].Listener = failing{n.listeners.clients[0].Listener, broken}
	go n.run()
	select {
	case <-n.Done():
	case <-testContext(t).Done():
		t.Fatal("the node did not end")
	}
	if !errors.Is(n.Err(), broken) || !errors.Is(n.Close(), broken) {
		t.Errorf("it ended with %v", n.Err())
	}
}

// failing is a listener that cannot accept.
type failing struct {
	net.Listener
	err error
}

func (f failing) Accept() (net.Conn, error) { return nil, f.err }

func TestNetwork(t *testing.T) {
	n := NewNetwork()
	if _, err := n.Dial(testContext(t), "a:1"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody listens: %v", err)
	}
	ln, err := n.Listen("a:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Listen("a:1"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("taken: %v", err)
	}
	if ln.Addr().String() != "a:1" || ln.Addr().Network() != "memory" {
		t.Errorf("address %v", ln.Addr())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.Dial(ctx, "a:1"); err == nil {
		t.Error("dialled with a context that has ended")
	}
	wantNoError(t, ln.Close(), "close")
	again, err := n.Listen("a:1")
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close() // of the first does not take the second's address
	if _, err := n.Listen("a:1"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("taken again: %v", err)
	}
	wantNoError(t, again.Close(), "close")
}
