package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"

	"github.com/coordd/coordd/api/peerpb"
	"github.com/coordd/coordd/api/rpcpb"
)

const (
	// frameBytes is where a frame ends; one message larger than that is a frame of its own.
	frameBytes = 1 << 20
	// maxMessage is the largest gRPC message accepted, well above the largest entry.
	maxMessage = 256 << 20
	// chunkBytes is the file data in one message of a snapshot.
	chunkBytes = 128 << 10
	// window is how much a stream may be ahead of its receiver, connWindow all of a connection's together. Being set, they also
	// switch off gRPC's guessing, which would begin at 64 KiB.
	window, connWindow = 4 << 20, 8 << 20
	ioBuffer           = 256 << 10
	// redialRate is how often a second a sender tries to connect, after redialBurst tries at once.
	redialRate, redialBurst = 10, 2
	// dialTimeout bounds one try.
	dialTimeout = 3 * time.Second
	// keepaliveTimeout is how long sent data may stay unacknowledged before a connection counts as dead.
	keepaliveTimeout = 4 * time.Second
	// greetingTimeout is how long who connects may take to begin HTTP/2, and so may hold up Close.
	greetingTimeout = 3 * time.Second
	// probeEvery is the pace of measuring the round trip.
	probeEvery = 5 * time.Second
)

// Raft is what takes the messages: the member's raftnode.Node.
type Raft interface {
	// Step takes received messages, which are for this member, and never blocks.
	Step(msgs []*raftpb.Message)
	// ReportUnreachable tells that a message to the member was dropped.
	ReportUnreachable(id uint64)
	// ReportSnapshot tells the outcome of a MsgSnap, exactly once for each.
	ReportSnapshot(id uint64, ok bool)
}

// Service answers the requests of other members. Errors go out as they are (a
// gRPC status is kept).
type Service interface {
	LeaseKeepAlive(context.Context, *peerpb.LeaseKeepAliveRequest) (*peerpb.LeaseKeepAliveResponse, error)
	LeaseTimeToLive(context.Context, *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error)
	Promote(context.Context, *peerpb.PromoteRequest) (*peerpb.PromoteResponse, error)
	HashKV(context.Context, *rpcpb.HashKVRequest) (*rpcpb.HashKVResponse, error)
	Info(context.Context, *peerpb.InfoRequest) (*peerpb.InfoResponse, error)
}

// Snapshot is the file of a state machine, open for sending.
type Snapshot struct {
	Metadata *raftpb.SnapshotMetadata // position and configuration of this very file
	Size     int64                    // bytes that Data will write
	Data     io.WriterTo
	Close    func() error // called once, after Data or without
}

// Hooks observe the traffic. Each may be nil; they are called from several
// goroutines and must be quick.
type Hooks struct {
	Sent       func(to uint64, bytes int)   // a frame was given to the network
	Received   func(from uint64, bytes int) // a frame came
	SendFailed func(to uint64, messages int)
	// Broken tells that a stream of another member's messages has failed, Disconnected that one to another member has, after it
	// had been open.
	Broken       func(from uint64)
	Disconnected func(to uint64)
	RoundTrip    func(to uint64, d time.Duration)
	// SnapshotSent tells of each try to send a file, SnapshotReceived of each to receive one; err nil is success.
	SnapshotSent     func(to uint64, bytes int64, d time.Duration, err error)
	SnapshotReceived func(from uint64, bytes int64, d time.Duration, err error)
}

// Dialing says how to reach other members.
type Dialing struct {
	// ClientTLS secures connections to https URLs; nil means that there can be none.
	ClientTLS credentials.TransportCredentials
	// Dialer replaces the network, nil is TCP and Unix sockets. addr is host:port, or "unix:" and a path.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
}

// Config of a Transport. It does not change after New.
type Config struct {
	ClusterID, MemberID uint64
	Raft                Raft
	Service             Service
	// Source opens the state machine's file for a snapshot.
	Source func(ctx context.Context) (*Snapshot, error)
	// Store makes a received file durable: size bytes from data. An error, or one
	// that reading data gives, means that it was not received; then the file must not be used.
	Store func(ctx context.Context, meta *raftpb.SnapshotMetadata, size int64, data io.Reader) error
	// Admit, if set, may refuse a caller, for example a removed member.
	Admit func(from uint64) error

	Dialing
	ServerTLS  credentials.TransportCredentials // of Serve; nil = in the clear
	QueueBytes int                              // of messages waiting for one member; 0 = 64 MiB
	Hooks      Hooks
	Logger     *zap.Logger // nil = none
}

func (c Config) validate() error {
	if c.ClusterID == 0 || c.MemberID == 0 {
		return errors.New("peer: cluster id and member id are needed")
	}
	if c.Raft == nil || c.Service == nil || c.Source == nil || c.Store == nil {
		return errors.New("peer: Raft, Service, Source and Store are needed")
	}
	return nil
}

// target is an address taken from a peer URL.
type target struct {
	addr   string // host:port or unix:path
	secure bool
}

// parseURL reads a peer URL: http, https, unix or unixs.
func parseURL(raw string) (target, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return target{}, fmt.Errorf("peer: %q is no peer URL: %w", raw, err)
	}
	switch u.Scheme {
	case "http", "https":
		if u.Port() == "" {
			return target{}, fmt.Errorf("peer: the peer URL %q names no port", raw)
		}
		return target{addr: u.Host, secure: u.Scheme == "https"}, nil
	case "unix", "unixs":
		return target{addr: "unix:" + u.Host + u.Path, secure: u.Scheme == "unixs"}, nil
	}
	return target{}, fmt.Errorf("peer: the peer URL %q must begin with http, https, unix or unixs", raw)
}

// dial opens the connection under gRPC's.
func (d Dialing) dial(ctx context.Context, addr string) (net.Conn, error) {
	if d.Dialer != nil {
		return d.Dialer(ctx, addr)
	}
	network := "tcp"
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, addr)
}
