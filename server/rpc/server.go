package rpc

import (
	"errors"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/server/lock"
	"github.com/coordd/coordd/watch"
)

// Node is a member as the services need it. Package server's is one.
type Node interface {
	Identity
	State
	Keys
	Leases
	Members
	Operations
	Snapshots
}

// Config is what the services work with. Node and Hub are required; all else has a default.
type Config struct {
	Node            Node
	Hub             *watch.Hub    // where watches are made
	ElectionTimeout time.Duration // of the node; 0 = 1 s
	MaxRequestBytes uint          // of one encoded request; 0 = 1.5 MiB
	MaxTxnOps       uint          // in one list of a transaction; 0 = 128

	MaxConcurrentStreams uint32        // calls per connection; 0 = no limit
	KeepaliveMinTime     time.Duration // clients that ping more often are cut off; 0 = 5 s
	KeepaliveInterval    time.Duration // after which a silent client is pinged; 0 = 2 h
	KeepaliveTimeout     time.Duration // for the answer to that; 0 = 20 s

	WarnUnary        time.Duration         // unary calls that take longer are logged; 0 = 300 ms, negative = none
	Registerer       prometheus.Registerer // for metrics; nil = they are kept but not registered
	ExtensiveMetrics bool                  // also measure how long calls take
	Logger           *zap.Logger           // nil = none
}

// withDefaults returns the configuration with every zero value replaced.
func (c Config) withDefaults() Config {
	def(&c.ElectionTimeout, time.Second)
	def(&c.MaxRequestBytes, 1536<<10)
	def(&c.MaxTxnOps, 128)
	def(&c.MaxConcurrentStreams, math.MaxUint32)
	def(&c.KeepaliveMinTime, 5*time.Second)
	def(&c.KeepaliveInterval, 2*time.Hour)
	def(&c.KeepaliveTimeout, 20*time.Second)
	def(&c.WarnUnary, 300*time.Millisecond)
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

// def gives a setting that is zero its default.
func def[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// Services are the services of one member. Make them with [New]. All their goroutines belong to calls, but those of the sessions of
// locks; see [Services.Close].
type Services struct {
	KV          *KVService
	Watch       *WatchService
	Lease       *LeaseService
	Cluster     *ClusterService
	Maintenance *MaintenanceService
	Auth        *AuthService
	Lock        *LockService
	Election    *ElectionService
	Locks       *LocksService
	Elections   *ElectionsService

	cfg      Config
	locks    *lock.Service
	metrics  *metrics
	handlers *handlers
	health   *health.Server
}

// New makes the services. It fails when Node or Hub are missing, or the metrics are registered already.
func New(cfg Config) (*Services, error) {
	if cfg.Node == nil || cfg.Hub == nil {
		return nil, errors.New("rpc: the services need a node and its watch hub")
	}
	cfg = cfg.withDefaults()
	m, err := newMetrics(cfg.Registerer, cfg.ExtensiveMetrics)
	if err != nil {
		return nil, err
	}
	streams, err := newStreamMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	n := cfg.Node
	locks := lock.New(lock.Options{Store: n, Hub: cfg.Hub, Logger: cfg.Logger})
	return &Services{
		KV: NewKV(n, n, int(cfg.MaxTxnOps), int(cfg.MaxRequestBytes)),
		Watch: NewWatch(WatchOptions{
			Hub: cfg.Hub, Logger: cfg.Logger, OnSend: streams.sent, OnFail: streams.failed("watch"),
			Header: func(revision int64) *rpcpb.ResponseHeader { return headerAt(n, revision) },
		}),
		Lease:       NewLease(n, n, n, streams.failed("lease-keepalive")),
		Cluster:     NewCluster(n, n),
		Maintenance: NewMaintenance(n, n, n),
		Auth:        NewAuth(n),
		Lock:        NewLock(locks, n),
		Election:    NewElection(locks, n),
		Locks:       NewLocks(locks, n),
		Elections:   NewElections(locks, n),
		cfg:         cfg,
		locks:       locks,
		metrics:     m,
		handlers: &handlers{
			gate:   &gate{state: n, metrics: m},
			slow:   &slowLog{lg: cfg.Logger, limit: cfg.WarnUnary},
			leader: &leaderWatch{state: n, every: cfg.ElectionTimeout},
		},
		health: health.NewServer(),
	}, nil
}

// Wrap gives a registrar that registers at r with what happens around every call; see the package comment.
// Services made elsewhere are registered through it.
func (s *Services) Wrap(r grpc.ServiceRegistrar) grpc.ServiceRegistrar {
	return registrar{to: r, h: s.handlers}
}

// Register registers all services at r, wrapped.
func (s *Services) Register(r grpc.ServiceRegistrar) {
	r = s.Wrap(r)
	r.RegisterService(kvDesc(), s.KV)
	r.RegisterService(authDesc(), s.Auth)
	services.RegisterWatchServer(r, s.Watch)
	services.RegisterLeaseServer(r, s.Lease)
	services.RegisterClusterServer(r, s.Cluster)
	services.RegisterMaintenanceServer(r, s.Maintenance)
	services.RegisterLockServer(r, s.Lock)
	services.RegisterElectionServer(r, s.Election)
	services.RegisterLocksServer(r, s.Locks)
	services.RegisterElectionsServer(r, s.Elections)
	healthpb.RegisterHealthServer(r, s.health)
}

// SetServing sets what the health service answers for the whole server, SERVING from the start. Any goroutine may call it.
func (s *Services) SetServing(serving bool) {
	st := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		st = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", st)
	s.cfg.Logger.Info("grpc service status changed", zap.Stringer("status", st))
}

// EndWaits fails all calls that wait for a lock or an election, now and later, so that a server that is about to end need not wait
// for them. Locks that are held stay held. It does not block.
func (s *Services) EndWaits() { s.locks.Stop() }

// Close gives up what outlives calls: the sessions of locks. Call it when the member has ended; it returns when no goroutine is left.
func (s *Services) Close() { s.locks.Close() }

const (
	// receiveOverhead is by how many bytes a message may exceed MaxRequestBytes for the request to be refused by its own rule and
	// not by gRPC's.
	receiveOverhead = 512 << 10
	// The windows of flow control, in bytes. That they are given stops gRPC from pinging clients to find out better
	// ones, which costs a good deal of each call when calls are small.
	streamWindow     = 1 << 20
	connectionWindow = 4 << 20
	// greetingTimeout is how long a client may take to begin HTTP/2.
	greetingTimeout = 10 * time.Second
	// callWorkers is the number of goroutines that are kept for calls, so that their stacks need not grow again in each:
	// a sixth of a small call's time. Calls beyond that get a goroutine of their own.
	callWorkers = 128
)

// NewServer makes a gRPC server with the services registered. opts are added to the options of the transport, or replace them, e.g. with
// credentials, which should be given through [TrackConnections]. It has goroutines from the start, so the caller must stop it even if it was never served; after
// Stop or GracefulStop no call is under way any more.
//
// More services may be registered through [Services.Wrap] before it is served.
func (s *Services) NewServer(opts ...grpc.ServerOption) *grpc.Server {
	server := grpc.NewServer(append(s.transport(), opts...)...)
	s.Register(server)
	return server
}

// transport are the options of a server.
func (s *Services) transport() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(TrackConnections(insecure.NewCredentials())),
		grpc.ConnectionTimeout(greetingTimeout),
		grpc.ForceServerCodecV2(meteredCodec{m: s.metrics}),
		grpc.MaxRecvMsgSize(int(s.cfg.MaxRequestBytes) + receiveOverhead),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(s.cfg.MaxConcurrentStreams),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: s.cfg.KeepaliveMinTime}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: s.cfg.KeepaliveInterval, Timeout: s.cfg.KeepaliveTimeout}),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.NumStreamWorkers(callWorkers),
		grpc.WaitForHandlers(true),
	}
}
