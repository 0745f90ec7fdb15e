package embed

import (
	"context"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Config says what a node is, where it listens and how it works. Make one with [NewConfig], or with
// [Load] from flags, environment and file, and change fields before [Start]; Start copies it and
// does not change it. The options of one concern are one struct, and every field of those structs
// is one line of the table in table.go, where its flag, its key in the file and its meaning stand.
type Config struct {
	MemberOptions
	ListenOptions
	StorageOptions
	LimitOptions
	ClusterOptions
	// Discovery finds the other members of a new cluster through a running one.
	Discovery DiscoveryOptions
	// ClientTLS protects the client listeners, PeerTLS the traffic between members.
	ClientTLS, PeerTLS TLSOptions
	SecurityOptions
	AuthOptions
	// Log says where the command logs to; a program that embeds a node sets Logger.
	Log LogOptions
	MonitorOptions
	MaintenanceOptions
	UnsafeOptions

	// What follows can only be set from Go.

	// Logger takes the node's log. nil = nothing is logged.
	Logger *zap.Logger
	// Registerer takes the metrics, and Gatherer is what /metrics serves. nil Registerer = a registry
	// of the node's own. nil Gatherer = the Registerer, if it is a Gatherer too, as *prometheus.Registry
	// is. Two nodes need a Registerer each.
	Registerer prometheus.Registerer
	Gatherer   prometheus.Gatherer
	// PeerListeners are served in addition to those of ListenPeerURLs; the node closes them.
	PeerListeners []net.Listener
	// PeerDialer opens connections to other members in place of the network: address is host:port of a
	// peer URL, or the path of its socket. Any goroutine may call it. See also [Network].
	PeerDialer func(ctx context.Context, address string) (net.Conn, error)
}

// MemberOptions are who this member is and how it keeps time.
type MemberOptions struct {
	Name               string        // unique in the cluster
	Dir                string        // data directory; "" = Name + ".etcd" in the working directory
	WALDir             string        // of the log; "" = Dir/member/wal
	Heartbeat          time.Duration // between a leader's signs of life
	ElectionTimeout    time.Duration // without a leader before an election; 5 to 500 heartbeats, at most 50 s
	InitialTickAdvance bool          // wait less for the first election after a start
	PreVote            bool          // ask whether an election can be won before holding it
}

// ListenOptions are the listeners and what they grant to a connection.
type ListenOptions struct {
	ListenPeerURLs       []string
	ListenClientURLs     []string // gRPC and HTTP on one port
	ListenClientHTTPURLs []string // HTTP alone; ListenClientURLs are then gRPC alone
	ListenMetricsURLs    []string // metrics and health alone

	MaxConcurrentStreams uint32
	KeepAliveMinTime     time.Duration // clients that ping more often are disconnected
	KeepAliveInterval    time.Duration // silence after which the server pings; 0 = never
	KeepAliveTimeout     time.Duration // wait for the answer to a ping; 0 = never ping
	ReusePort            bool
	ReuseAddress         bool
	RaftReadTimeout      time.Duration
	RaftWriteTimeout     time.Duration
	EnableGateway        bool
}

// StorageOptions are how data is kept.
type StorageOptions struct {
	SnapshotCount  uint64 // applied entries between releases of the log
	CatchUpEntries uint64 // entries kept for members that lag
	MaxWALs        uint
	QuotaBytes     int64 // of live data; 0 = 2 GiB, negative = no limit
	FreelistType   string
	BatchInterval  time.Duration // longest age of changes not yet in the data file; 0 = 100 ms
	BatchOps       int           // changes per commit of the data file; 0 = 10000
	MemoryLock     bool
}

// LimitOptions bound what one request may ask for.
type LimitOptions struct {
	MaxTxnOps       uint
	MaxRequestBytes uint
}

// ClusterOptions are the cluster this member founds or joins.
type ClusterOptions struct {
	AdvertisePeerURLs   []string // where other members find this one
	AdvertiseClientURLs []string // where clients find it
	InitialCluster      string   // name=url,name=url; "" = this member alone
	ClusterState        string   // new or existing
	ClusterToken        string   // tells clusters with equal URLs apart
	StrictReconfigCheck bool
	MaxLearners         int
	DiscoverySRV        string
	DiscoverySRVName    string
	DiscoveryFallback   string
}

// DiscoveryOptions are how a new cluster finds its members through a running one.
type DiscoveryOptions struct {
	Token              string
	Endpoints          []string
	DialTimeout        time.Duration
	RequestTimeout     time.Duration
	KeepAliveTime      time.Duration
	KeepAliveTimeout   time.Duration
	InsecureTransport  bool
	InsecureSkipVerify bool
	CertFile           string
	KeyFile            string
	CAFile             string
	User               string
	Password           string
}

// TLSOptions are the files and rules of one kind of traffic.
type TLSOptions struct {
	CertFile, KeyFile             string
	ClientCertFile, ClientKeyFile string
	ClientCertAuth                bool
	CRLFile                       string
	TrustedCAFile                 string
	AllowedCNs                    []string
	AllowedHostnames              []string
	Auto                          bool
	SkipClientSAN                 bool
}

// used reports whether TLS is asked for.
func (o TLSOptions) used() bool {
	return o.CertFile != "" || o.KeyFile != "" || o.TrustedCAFile != "" || o.ClientCertAuth || o.Auto
}

// SecurityOptions hold for all listeners.
type SecurityOptions struct {
	SelfSignedYears uint
	CipherSuites    []string
	TLSMinVersion   string
	TLSMaxVersion   string
	CORS            []string // origins that browsers may call from
	HostWhitelist   []string // host names that plain HTTP requests may be for
}

// AuthOptions are how callers prove who they are.
type AuthOptions struct {
	AuthToken    string
	AuthTokenTTL uint // seconds
	BcryptCost   uint
}

// LogOptions are where and how the command logs; see [NewLogger].
type LogOptions struct {
	Logger   string   // zap
	Outputs  []string // default, stderr, stdout, systemd/journal, or paths
	Level    string   // debug, info, warn, error, panic or fatal
	Format   string   // json or console
	Rotation bool     // of the one file that is the output
	Rotate   string   // how, as JSON
}

// MonitorOptions are what can be seen from outside.
type MonitorOptions struct {
	Pprof   bool
	Metrics string // basic, or extensive with latency histograms of each method

	Tracing             bool
	TracingAddress      string
	TracingServiceName  string
	TracingInstanceID   string
	TracingSamplingRate int // per million
}

// MaintenanceOptions are what a member does in the background and what it warns of.
type MaintenanceOptions struct {
	AutoCompactionMode      string
	AutoCompactionRetention string
	CompactionBatch         int           // rows removed per step; 0 = 1000
	CompactionSleep         time.Duration // between steps
	CorruptCheckTime        time.Duration
	CompactHashCheckTime    time.Duration
	WatchProgressInterval   time.Duration // 0 = 10 min
	DowngradeCheckTime      time.Duration
	WarnApply               time.Duration // an apply that takes longer is logged
	WarnRequest             time.Duration // a request that takes longer is logged
	BootstrapDefragMegabyte uint
	FeatureGates            string // A=true,B=false
}

// UnsafeOptions give up guarantees.
type UnsafeOptions struct {
	ForceNewCluster bool
	// UnsafeNoFsync lets a power cut or a crash of the machine lose acknowledged writes. With it tests
	// run many times faster.
	UnsafeNoFsync bool
}

// Defaults that have names.
const (
	DefaultName      = "default"
	DefaultPeerURL   = "http://localhost:2380"
	DefaultClientURL = "http://localhost:2379"
)

// NewConfig returns the defaults for a node inside a program: a cluster of one member that opens no
// listener. Set at least Dir. They are those of etcd but for the listeners.
func NewConfig() *Config {
	return &Config{
		MemberOptions: MemberOptions{
			Name: DefaultName, Heartbeat: 100 * time.Millisecond, ElectionTimeout: time.Second,
			InitialTickAdvance: true, PreVote: true,
		},
		ListenOptions: ListenOptions{
			MaxConcurrentStreams: 1<<32 - 1,
			KeepAliveMinTime:     5 * time.Second, KeepAliveInterval: 2 * time.Hour, KeepAliveTimeout: 20 * time.Second,
			RaftReadTimeout: 5 * time.Second, RaftWriteTimeout: 5 * time.Second, EnableGateway: true,
		},
		StorageOptions: StorageOptions{SnapshotCount: 10_000, CatchUpEntries: 5_000, MaxWALs: 5},
		LimitOptions:   LimitOptions{MaxTxnOps: 128, MaxRequestBytes: 1536 << 10},
		ClusterOptions: ClusterOptions{
			ClusterState: "new", ClusterToken: "etcd-cluster", StrictReconfigCheck: true, MaxLearners: 1,
			DiscoveryFallback: "exit",
		},
		Discovery: DiscoveryOptions{
			DialTimeout: 2 * time.Second, RequestTimeout: 5 * time.Second,
			KeepAliveTime: 2 * time.Second, KeepAliveTimeout: 6 * time.Second, InsecureTransport: true,
		},
		SecurityOptions: SecurityOptions{
			SelfSignedYears: 1, TLSMinVersion: "TLS1.2", CORS: []string{"*"}, HostWhitelist: []string{"*"},
		},
		AuthOptions: AuthOptions{AuthToken: "simple", AuthTokenTTL: 300, BcryptCost: 10},
		Log: LogOptions{
			Logger: "zap", Outputs: []string{"default"}, Level: "info", Format: "json",
			Rotate: `{"maxsize": 100, "maxage": 0, "maxbackups": 0, "localtime": false, "compress": false}`,
		},
		MonitorOptions: MonitorOptions{Metrics: "basic", TracingAddress: "localhost:4317", TracingServiceName: "etcd"},
		MaintenanceOptions: MaintenanceOptions{
			AutoCompactionMode: "periodic", AutoCompactionRetention: "0", CompactHashCheckTime: time.Minute,
			DowngradeCheckTime: 5 * time.Second, WarnApply: 100 * time.Millisecond, WarnRequest: 300 * time.Millisecond,
		},
	}
}

// NewTestConfig returns NewConfig for tests that want speed instead of durability: no fsync, and
// heartbeats of 10 ms with elections after 100 ms. dir is the data directory, such as t.TempDir().
// On a machine that is so loaded that a heartbeat is late by 90 ms, members elect leaders more often
// than they should, which is harmless but slow.
func NewTestConfig(dir string) *Config {
	c := NewConfig()
	c.Dir = dir
	c.UnsafeNoFsync = true
	c.Heartbeat, c.ElectionTimeout = 10*time.Millisecond, 100*time.Millisecond
	return c
}

// newServerConfig returns the defaults of the command, which listens.
func newServerConfig() *Config {
	c := NewConfig()
	c.ListenPeerURLs, c.AdvertisePeerURLs = []string{DefaultPeerURL}, []string{DefaultPeerURL}
	c.ListenClientURLs, c.AdvertiseClientURLs = []string{DefaultClientURL}, []string{DefaultClientURL}
	return c
}
