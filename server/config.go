package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"

	"github.com/coordd/coordd/peer"
	"github.com/coordd/coordd/pkg/vfs"
)

// Config says what a node is and where its data lives. Open validates it; it
// does not change afterwards. Zero values of the fields marked so mean the
// default named there.
type Config struct {
	Name    string // member name; must be in InitialCluster when the cluster is new
	DataDir string // holds member/snap and member/wal
	WALDir  string // "" = DataDir/member/wal

	InitialCluster string   // name=url,name=url: the members of a new cluster
	ClusterToken   string   // tells clusters with equal URLs apart
	NewCluster     bool     // false: join a running cluster
	PeerURLs       []string // advertised to the other members
	ClientURLs     []string // advertised to clients

	Tick               time.Duration // heartbeat interval; 0 = 100 ms
	ElectionTicks      int           // election timeout in ticks; 0 = 10
	InitialTickAdvance bool          // shorten the wait for a first election after start
	PreVote            bool

	SnapshotCount  uint64 // applied entries between releases of old log; 0 = 10000
	CatchUpEntries uint64 // applied entries kept for members that lag; 0 = 5000

	QuotaBytes      int64 // of live data in the backend; 0 = 2 GiB, negative = none
	MaxRequestBytes uint  // of one encoded request; 0 = 1.5 MiB
	MaxLearners     int   // 0 = 1

	BatchInterval   time.Duration // longest age of applied changes not yet in the file; 0 = 100 ms
	BatchOps        int           // changes per commit of the file; 0 = 10000
	CompactionBatch int           // rows removed per step of a compaction; 0 = 1000
	SegmentBytes    int64         // of a file of the log; 0 = 64,000,000, see wal.Options
	UnsafeNoFsync   bool          // tests only: a power cut may lose acknowledged writes

	WatchProgressInterval time.Duration // 0 = 10 min
	WarnApply             time.Duration // log an apply that takes longer; 0 = 100 ms

	// Peer traffic. A single-member cluster needs no listener.
	PeerListeners []net.Listener
	PeerServerTLS credentials.TransportCredentials // nil = in the clear
	PeerClientTLS credentials.TransportCredentials
	// PeerDialer replaces the network for outgoing peer connections, nil = TCP.
	PeerDialer func(ctx context.Context, addr string) (net.Conn, error)
	// NewTransport replaces all of the peer layer, so that a simulation can carry the messages; nil = package peer.
	NewTransport func(peer.Config) (Transport, error)

	// Clock times the leases, as lease.NewExpirerOn says; a simulation has members whose clocks run at different
	// rates. nil = the process's monotonic clock.
	Clock func() time.Duration

	FS         vfs.FS // of the log and the snapshot files; nil = the operating system's
	Logger     *zap.Logger
	Registerer prometheus.Registerer // nil = metrics are kept but not registered
}

// withDefaults returns the configuration with every zero value replaced.
func (c Config) withDefaults() Config {
	c.Tick = or(c.Tick, 100*time.Millisecond)
	c.ElectionTicks = or(c.ElectionTicks, 10)
	c.SnapshotCount = or(c.SnapshotCount, 10_000)
	c.CatchUpEntries = or(c.CatchUpEntries, 5_000)
	c.QuotaBytes = or(c.QuotaBytes, 2<<30)
	c.MaxRequestBytes = or(c.MaxRequestBytes, 1536<<10)
	c.MaxLearners = or(c.MaxLearners, 1)
	c.CompactionBatch = or(c.CompactionBatch, 1000)
	c.WarnApply = or(c.WarnApply, 100*time.Millisecond)
	if c.NewTransport == nil {
		c.NewTransport = func(p peer.Config) (Transport, error) {
			t, err := peer.New(p)
			if err != nil {
				return nil, err // not a nil *peer.Transport in a Transport that is not nil
			}
			return t, nil
		}
	}
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c
}

// Validate reports the first setting that cannot work.
func (c Config) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Name == "":
		return errors.New("server: the member has no name: give it one")
	case c.DataDir == "":
		return errors.New("server: no data directory is named")
	case c.Tick <= 0 || c.ElectionTicks < 5:
		return fmt.Errorf("server: the election timeout (%d heartbeats of %v) must be at least 5 heartbeats", c.ElectionTicks, c.Tick)
	case c.electionTimeout() > 50*time.Second:
		return fmt.Errorf("server: the election timeout %v is above 50s", c.electionTimeout())
	}
	return nil
}

func (c Config) electionTimeout() time.Duration { return c.Tick * time.Duration(c.ElectionTicks) }

// requestTimeout is how long a request may wait for the cluster: the longest
// disk stall that is considered normal, and two elections.
func (c Config) requestTimeout() time.Duration { return 5*time.Second + 2*c.electionTimeout() }

// minLeaseTTL is the shortest lease in seconds: shorter ones would end whenever
// a leader is elected.
func (c Config) minLeaseTTL() int64 {
	d := 3 * c.electionTimeout() / 2
	return int64((d + time.Second - 1) / time.Second)
}

func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}
