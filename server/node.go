package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/apply"
	"github.com/coordd/coordd/lease"
	"github.com/coordd/coordd/member"
	"github.com/coordd/coordd/pkg/idutil"
	"github.com/coordd/coordd/pkg/wait"
	"github.com/coordd/coordd/raftnode"
	"github.com/coordd/coordd/watch"
)

// Node is one running member. Make one with Open. Its methods may be called
// from any goroutine.
type Node struct {
	cfg       Config
	lg        *zap.Logger
	id        uint64
	clusterID uint64
	started   time.Time
	metrics   *metrics

	fresh     bool // its log held nothing at the start but what it was founded with, and perhaps a vote
	store     *storage
	machine   atomic.Pointer[apply.Machine] // replaced by the apply loop when a snapshot is installed
	raft      *raftnode.Node
	transport Transport
	hub       *watch.Hub
	expirer   *lease.Expirer
	forward   *forwarder

	ids          *idutil.Generator
	waits        *wait.Wait[apply.Result]     // proposers, by request id
	applied      *wait.WaitTime               // the applied index
	appliedIndex atomic.Uint64                // as published to readers
	confirmed    atomic.Pointer[confirmation] // the last one of this member's leadership, nil before the first
	reads        *readRounds
	readAnswers  sync.Map // ReadIndex request id -> chan uint64
	leadership   *leadership
	applyCalls   chan applyCall

	// Owned by the apply loop.
	answers      []answer
	released     uint64 // index up to which raft was last told to drop its log
	logBytes     int    // applied since then
	expiringTerm uint64 // term for which the expirer was last promoted

	group  *errgroup.Group
	part   chan struct{} // closed once this member may take part in the cluster, see founding.go
	ready  chan struct{} // closed once this member has published itself
	ending chan struct{} // closed when the node begins to end
	done   chan struct{} // closed when it has ended
	cancel context.CancelFunc
	close  sync.Once
	err    error // why it ended by itself; final once done is closed
}

// Open starts a member: it opens or makes its data directory, connects to the
// other members and starts all goroutines. It does not wait for a leader; see
// Ready. The context bounds Open only. The node owns the peer listeners, also when Open fails. The caller must Close the node.
func Open(ctx context.Context, cfg Config) (_ *Node, err error) {
	defer func() {
		if err != nil {
			for _, ln := range cfg.PeerListeners {
				_ = ln.Close() // may be closed already
			}
		}
	}()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	m, reg := newMetrics(cfg.Registerer)
	store, err := openStorage(cfg, m)
	if err != nil {
		return nil, err
	}
	n := newNode(cfg, store, m)
	if err := n.assemble(ctx, reg); err != nil {
		return nil, errors.Join(err, n.closeParts())
	}
	n.start()
	return n, nil
}

func newNode(cfg Config, store *storage, m *metrics) *Node {
	now := time.Now()
	n := &Node{
		cfg: cfg, lg: cfg.Logger, id: store.meta.MemberID, clusterID: store.meta.ClusterID,
		started: now, metrics: m, fresh: store.start.Fresh(), store: store,
		expirer: newExpirer(cfg), ids: idutil.New(uint16(store.meta.MemberID), now),
		waits: wait.New[apply.Result](), applied: wait.NewWaitTime(),
		reads: newReadRounds(), leadership: newLeadership(now), applyCalls: make(chan applyCall),
		part: make(chan struct{}), ready: make(chan struct{}), ending: make(chan struct{}), done: make(chan struct{}),
	}
	n.machine.Store(store.machine)
	pos := store.machine.Position()
	n.appliedIndex.Store(pos.Index)
	n.applied.Trigger(pos.Index)
	n.released = pos.Index
	n.forward = newForwarder(n)
	return n
}

// assemble makes the parts that run: watch hub, peers, raft.
func (n *Node) assemble(ctx context.Context, reg *registry) (err error) {
	n.hub = watch.New(n.store.machine.KV, watch.Options{
		ProgressInterval: n.cfg.WatchProgressInterval, FragmentBytes: int(n.cfg.MaxRequestBytes) + 512<<10, Logger: n.lg,
	})
	if n.transport, err = n.cfg.NewTransport(n.peerConfig()); err != nil {
		return err
	}
	n.raft, err = raftnode.New(raftnode.Config{
		ID: n.id, ElectionTicks: n.cfg.ElectionTicks, HeartbeatTicks: 1,
		PreVote: n.cfg.PreVote, CheckQuorum: true, CatchUpEntries: n.cfg.CatchUpEntries,
		Log: n.store.log, Start: n.store.start,
		Send: n.send, Snapshot: n.snapshotMeta, OnRead: n.onRead, OnLeader: n.onLeader,
		Logger: n.lg.Named("raft"),
	})
	if err != nil {
		return err
	}
	n.store.start.Entries = nil
	return n.registerNode(reg)
}

// start runs every goroutine. The first that fails ends the node.
func (n *Node) start() {
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.group, ctx = errgroup.WithContext(ctx)
	n.updatePeers()
	n.transport.Start()
	for _, ln := range n.cfg.PeerListeners {
		n.group.Go(func() error { return n.transport.Serve(ln) }) // ends with the transport
	}
	if n.cfg.InitialTickAdvance && !n.fresh && len(n.machine.Load().Members.Members()) > 1 {
		_ = n.raft.FastForward() // fails only after the end
	}
	for _, loop := range []func(context.Context) error{
		n.runRaft, n.tickLoop, n.firstElection, n.applyLoop, n.readLoop, n.expireLoop, n.forward.run, n.publishLoop, n.spaceLoop,
	} {
		n.group.Go(func() error { return loop(ctx) })
	}
	go func() { // ends with the group
		<-ctx.Done()
		close(n.ending)
		closed := n.transport.Close()
		err := n.group.Wait()
		n.err = errors.Join(err, closed, n.closeParts())
		if err != nil {
			n.lg.Error("this member has stopped: it cannot go on", zap.Error(err))
		}
		close(n.done)
	}()
}

// tickLoop hands raft its time.
func (n *Node) tickLoop(ctx context.Context) error {
	tick := time.NewTicker(n.cfg.Tick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			n.raft.Tick()
		case <-ctx.Done():
			return nil
		}
	}
}

// closeParts closes what is not a goroutine of the group.
func (n *Node) closeParts() error {
	var errs []error
	if n.transport != nil {
		errs = append(errs, n.transport.Close()) // may be called again
	}
	if n.hub != nil {
		n.hub.Close()
	}
	n.store.machine = n.machine.Load()
	if n.store.machine.Err() == nil { // what is not in the file comes again from the log; this spares the next start that
		errs = append(errs, n.store.machine.Commit(true))
	}
	return errors.Join(append(errs, n.store.close())...)
}

// Close hands leadership to another member if this one leads, stops the node and
// gives everything back. It waits until all of the node's goroutines have ended.
// Any number of calls in any state is fine; all return why the node ended, nil
// when it was asked to.
func (n *Node) Close() error {
	n.close.Do(func() {
		n.handOver()
		n.cancel()
	})
	<-n.done
	return n.err
}

// handOver asks the most advanced other voter to lead, and waits for it one
// election timeout at most.
func (n *Node) handOver() {
	if n.Leader() != n.id || len(n.machine.Load().Members.ConfState().GetVoters()) < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), n.cfg.electionTimeout())
	defer cancel()
	if to := n.successor(ctx); to != 0 {
		if err := n.MoveLeader(ctx, to); err != nil {
			n.lg.Info("leadership transfer failed", zap.Stringer("to", member.ID(to)), zap.Error(err))
		}
	}
}

// Ready is closed once this member has published its name and URLs through the
// log: the cluster has a leader and this member can serve.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Ending is closed when the node begins to end, for whatever reason.
func (n *Node) Ending() <-chan struct{} { return n.ending }

// Done is closed when the node has ended, by Close or by itself; Err then tells why.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err is the error that ended the node; nil before Done and after a plain Close.
func (n *Node) Err() error {
	select {
	case <-n.done:
		return n.err
	default:
		return nil
	}
}

// ID is this member's id.
func (n *Node) ID() uint64 { return n.id }

// ClusterID is the cluster's id.
func (n *Node) ClusterID() uint64 { return n.clusterID }

// Leader is the id of the member that leads, 0 when none is known.
func (n *Node) Leader() uint64 { return n.raft.Status().Leader }

// Term is raft's term.
func (n *Node) Term() uint64 { return n.raft.Status().Term }

// Revision is the store's revision as readers see it.
func (n *Node) Revision() int64 { return n.machine.Load().KV.Revision() }

// IsLearner reports whether this member has no vote.
func (n *Node) IsLearner() bool {
	m := n.machine.Load().Members.Get(member.ID(n.id))
	return m != nil && m.IsLearner
}

// Hub is where watches are made.
func (n *Node) Hub() *watch.Hub { return n.hub }

// ElectionTimeout is the time without a leader's message after which an election begins.
func (n *Node) ElectionTimeout() time.Duration { return n.cfg.electionTimeout() }

// MaxRequestBytes is the limit of one encoded request.
func (n *Node) MaxRequestBytes() uint { return n.cfg.MaxRequestBytes }

// LeaderAbsent is for how long no leader has been known, 0 when there is one.
func (n *Node) LeaderAbsent() time.Duration { return n.leadership.absent(time.Now()) }

// Header is a response header of this member; revision 0 stands for the current one.
func (n *Node) Header(revision int64) *rpcpb.ResponseHeader {
	if revision == 0 {
		revision = n.Revision()
	}
	return &rpcpb.ResponseHeader{ClusterId: n.clusterID, MemberId: n.id, Revision: revision, RaftTerm: n.Term()}
}

// onLeader is told by the drive loop of each change of leader or term.
func (n *Node) onLeader(leader, term uint64, isSelf bool) {
	n.leadership.set(leader, term, time.Now())
	n.metrics.leaderChanges.Inc()
	if !isSelf {
		n.expirer.Demote()
	}
	n.lg.Info("leader changed", zap.Stringer("leader", member.ID(leader)), zap.Uint64("term", term), zap.Bool("is-self", isSelf))
}

// proposeErr names raft's refusal of a proposal in the API's terms.
func (n *Node) proposeErr(err error) error {
	switch {
	case errors.Is(err, raftnode.ErrOverloaded):
		return errs.ErrTooManyRequests
	case errors.Is(err, raftnode.ErrStopped):
		return errs.ErrStopped
	}
	return fmt.Errorf("propose: %w", err)
}

// observeSeconds feeds durations to a histogram.
func observeSeconds(h prometheus.Histogram) func(time.Duration) {
	return func(d time.Duration) { h.Observe(d.Seconds()) }
}
