package embed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/embed/inproc"
	"github.com/coordd/coordd/server"
	"github.com/coordd/coordd/server/rpc"
)

// Version is coordd's own, as major.minor.patch.
const Version = "0.1.0"

// APIVersion is the release of etcd whose API is served.
const APIVersion = server.APIVersion

// Node is a running member. Make one with [Start]. Its methods may be called from any goroutine.
type Node struct {
	cfg *Config
	lg  *zap.Logger

	listeners *listeners
	memory    *bufconn.Listener // of Dialer
	member    *server.Node
	services  *rpc.Services
	drain     *drain
	conn      *inproc.Conn
	client    *client.Client
	front     *front // what serves listeners

	stop     sync.Once
	stopping chan struct{} // closed by Close
	ready    chan struct{}
	done     chan struct{}
	err      error // final once done is closed
}

// Start starts a member and returns while it still joins its cluster: wait for Ready before counting on it,
// and Close it at the end. The context bounds the start, not the node's life. Errors name what is in the
// way: a setting, a taken port, a directory in use. After an error nothing is left behind.
func Start(ctx context.Context, cfg *Config) (*Node, error) {
	n, err := prepare(ctx, cfg)
	if err != nil {
		return nil, err
	}
	go n.run() // ends when the node has; Close waits for it
	return n, nil
}

// prepare is Start up to the point where nothing can fail any more.
func prepare(ctx context.Context, cfg *Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg.resolved(), lg: cfg.Logger, drain: &drain{}, memory: bufconn.Listen(pipeBytes),
		stopping: make(chan struct{}), ready: make(chan struct{}), done: make(chan struct{}),
	}
	if n.lg == nil {
		n.lg = zap.NewNop()
	}
	if err := n.defaultMetrics(); err != nil {
		return nil, err
	}
	Log(n.lg, n.cfg.warnings())
	if err := n.open(ctx); err != nil {
		n.closeListeners()
		return nil, err
	}
	if err := n.assemble(); err != nil {
		n.closeListeners()
		return nil, errors.Join(err, n.member.Close())
	}
	return n, nil
}

// defaultMetrics makes a registry if none is given.
func (n *Node) defaultMetrics() error {
	c := n.cfg
	if c.Registerer == nil {
		r := prometheus.NewRegistry()
		c.Registerer, c.Gatherer = r, r
		return errors.Join(r.Register(collectors.NewGoCollector()), r.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})))
	}
	if g, ok := c.Registerer.(prometheus.Gatherer); ok && c.Gatherer == nil {
		c.Gatherer = g
	}
	if c.Gatherer == nil {
		if len(c.ListenClientURLs)+len(c.ListenClientHTTPURLs)+len(c.ListenMetricsURLs) > 0 {
			return errors.New("embed: Config.Registerer is given without a Gatherer, so /metrics would have nothing to show: set Config.Gatherer too")
		}
		c.Gatherer = prometheus.Gatherers{}
	}
	return nil
}

// open binds the listeners and opens the member.
func (n *Node) open(ctx context.Context) (err error) {
	c := n.cfg
	n.warnOfOpenDir()
	if n.listeners, err = bind(ctx, c, n.lg); err != nil {
		return err
	}
	n.listeners.advertise(c)
	n.lg.Info("starting an etcd server", zap.String("etcd-version", APIVersion), zap.String("coordd-version", Version),
		zap.String("name", c.Name), zap.String("data-dir", c.Dir), zap.String("wal-dir", c.WALDir),
		zap.Duration("heartbeat-interval", c.Heartbeat), zap.Duration("election-timeout", c.ElectionTimeout),
		zap.Strings("initial-advertise-peer-urls", c.AdvertisePeerURLs), zap.Strings("listen-peer-urls", c.ListenPeerURLs),
		zap.Strings("advertise-client-urls", c.AdvertiseClientURLs), zap.Strings("listen-client-urls", c.ListenClientURLs),
		zap.String("initial-cluster", c.InitialCluster), zap.String("initial-cluster-state", c.ClusterState),
		zap.String("initial-cluster-token", c.ClusterToken), zap.Int64("quota-backend-bytes", c.QuotaBytes),
		zap.Uint("max-request-bytes", c.MaxRequestBytes), zap.Uint64("snapshot-count", c.SnapshotCount))
	n.member, err = server.Open(ctx, n.serverConfig())
	return err
}

// warnOfOpenDir warns of a data directory that others may read.
func (n *Node) warnOfOpenDir() {
	if info, err := os.Stat(n.cfg.Dir); err == nil && info.Mode().Perm()&0o077 != 0 {
		n.lg.Warn("the data directory should be readable by its owner alone", zap.String("data-dir", n.cfg.Dir),
			zap.Stringer("mode", info.Mode()), zap.String("next-step", "chmod 700"))
	}
}

func (n *Node) serverConfig() server.Config {
	c := n.cfg
	var peers []net.Listener
	for _, l := range n.listeners.peer {
		peers = append(peers, l.Listener)
	}
	return server.Config{
		Name: c.Name, DataDir: c.Dir, WALDir: c.WALDir,
		InitialCluster: c.InitialCluster, ClusterToken: c.ClusterToken, NewCluster: c.ClusterState == "new",
		PeerURLs: c.AdvertisePeerURLs, ClientURLs: c.AdvertiseClientURLs,
		Tick: c.Heartbeat, ElectionTicks: int(c.ElectionTimeout / c.Heartbeat),
		InitialTickAdvance: c.InitialTickAdvance, PreVote: c.PreVote,
		SnapshotCount: c.SnapshotCount, CatchUpEntries: c.CatchUpEntries,
		QuotaBytes: c.QuotaBytes, MaxRequestBytes: c.MaxRequestBytes, MaxLearners: c.MaxLearners,
		BatchInterval: c.BatchInterval, BatchOps: c.BatchOps, CompactionBatch: c.CompactionBatch,
		UnsafeNoFsync: c.UnsafeNoFsync, WatchProgressInterval: c.WatchProgressInterval, WarnApply: c.WarnApply,
		PeerListeners: peers, PeerDialer: c.PeerDialer,
		Logger: n.lg, Registerer: c.Registerer,
	}
}

// assemble makes the services and what serves them.
func (n *Node) assemble() (err error) {
	c := n.cfg
	n.services, err = rpc.New(rpc.Config{
		Node: n.member, Hub: n.member.Hub(), ElectionTimeout: c.ElectionTimeout,
		MaxRequestBytes: c.MaxRequestBytes, MaxTxnOps: c.MaxTxnOps, MaxConcurrentStreams: c.MaxConcurrentStreams,
		KeepaliveMinTime: c.KeepAliveMinTime, KeepaliveInterval: forever(c.KeepAliveInterval), KeepaliveTimeout: c.KeepAliveTimeout,
		WarnUnary: c.WarnRequest, Registerer: c.Registerer, ExtensiveMetrics: c.Metrics == "extensive", Logger: n.lg,
	})
	if err != nil {
		return err
	}
	if err := registerGates(c.Registerer, c.FeatureGates); err != nil {
		return err
	}
	n.conn = inproc.New(inproc.Options{Stream: n.drain.intercept, MaxRequestBytes: int(c.MaxRequestBytes) + requestOverhead})
	n.services.Register(n.conn)
	if n.client, err = client.NewFromConn(n.conn, client.WithLogger(n.lg.Named("client"))); err != nil {
		return err
	}
	n.front, err = newFront(n)
	return err
}

// requestOverhead is how much larger than its limit a request may be for the service to refuse it, and not
// the transport.
const requestOverhead = 512 << 10

// forever replaces 0, which for gRPC is its default, by never.
func forever(d time.Duration) time.Duration {
	if d == 0 {
		return 1<<63 - 1
	}
	return d
}

// run waits for the member to be ready, serves, and waits for the end.
func (n *Node) run() {
	defer close(n.done)
	failed := make(chan error, 1) // of a listener
	select {
	case <-n.member.Ready():
		n.front.serve(failed)
		close(n.ready)
	case <-n.stopping:
	case <-n.member.Ending():
	}
	var err error
	select {
	case <-n.stopping:
	case <-n.member.Ending():
	case err = <-failed:
		n.lg.Error("a listener has failed: this member stops", zap.Error(err))
	}
	n.err = errors.Join(err, n.shutdown())
}

// shutdown ends everything in order: no new calls, then the end of streams and of calls under way, then the
// member, which hands leadership over.
func (n *Node) shutdown() error {
	n.services.SetServing(false)
	n.drain.run()
	n.services.EndWaits()
	_ = n.client.Close() // returns nil
	n.conn.Shutdown()
	n.front.drain(drainTimeout)
	err := n.member.Close()
	n.front.stop()
	n.services.Close()
	n.closeListeners()
	return errors.Join(err, n.conn.Close())
}

// drainTimeout is how long calls under way may take when the node closes.
const drainTimeout = 2 * time.Second

// closeListeners gives all addresses back.
func (n *Node) closeListeners() {
	if n.listeners != nil {
		n.listeners.close()
	} else {
		for _, ln := range n.cfg.PeerListeners { // bind has not come to them
			_ = ln.Close()
		}
	}
	_ = n.memory.Close() // returns nil
}

// Ready is closed once this member has joined its cluster, knows a leader, and serves its listeners.
// It is never closed if the node ends before; wait for Done too.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Done is closed when the node has ended and nothing of it is left: after Close, or because of trouble that
// Err then tells, such as a full disk.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err is why the node ended by itself. It is nil before Done and after a plain Close.
func (n *Node) Err() error {
	select {
	case <-n.done:
		return n.err
	default:
		return nil
	}
}

// WaitReady waits for Ready. The error says why it cannot come to that.
func (n *Node) WaitReady(ctx context.Context) error {
	select {
	case <-n.ready:
		return nil
	case <-n.done:
		return errors.Join(errClosed, n.err)
	case <-ctx.Done():
		return fmt.Errorf("embed: member %s is not ready, perhaps for want of a majority of the members: %w", n.cfg.Name, ctx.Err())
	}
}

// Close ends the node and waits until nothing of it is left: it refuses new calls, ends streams, lets calls
// under way finish for 2 s, hands leadership to another member, and closes its files and listeners. It may be
// called in any state, more than once and at once, and on a nil Node; all calls return why the node ended, nil if
// it was only asked to.
func (n *Node) Close() error {
	if n == nil {
		return nil
	}
	n.stop.Do(func() { close(n.stopping) })
	<-n.done
	return n.err
}

// Client is a client of this node that needs no socket. It belongs to the node: Close ends it.
func (n *Node) Client() *client.Client { return n.client }

// Conn is the connection under Client, for clients with other options (client.NewFromConn) or generated
// ones. After Close its calls fail with code Unavailable.
func (n *Node) Conn() grpc.ClientConnInterface { return n.conn }

// Dialer connects gRPC clients to this node in memory, whatever address they ask for:
//
//	grpc.NewClient("passthrough:///node", grpc.WithContextDialer(node.Dialer()), …)
//
// Connections wait until the node is ready.
func (n *Node) Dialer() func(ctx context.Context, address string) (net.Conn, error) {
	return func(ctx context.Context, _ string) (net.Conn, error) {
		select {
		case <-n.done:
			return nil, errClosed
		default:
			return n.memory.DialContext(ctx)
		}
	}
}

// ID is this member's id, ClusterID the cluster's.
func (n *Node) ID() uint64 { return n.member.ID() }

// ClusterID is the cluster's id.
func (n *Node) ClusterID() uint64 { return n.member.ClusterID() }

// Leader is the id of the member that leads, 0 if none is known.
func (n *Node) Leader() uint64 { return n.member.Leader() }

// ClientURLs are the URLs that clients are served on, with the ports that were chosen for port 0.
func (n *Node) ClientURLs() []string {
	var all []string
	for _, l := range n.listeners.clients {
		all = append(all, l.url)
	}
	return all
}
