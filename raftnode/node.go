package raftnode

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

var (
	// ErrOverloaded is returned by Propose when Config.MaxQueueBytes wait already.
	ErrOverloaded = errors.New("raftnode: too many proposals wait")
	// ErrStopped is returned once Run has ended.
	ErrStopped = errors.New("raftnode: stopped")
)

// Node is one member of a Raft group. Its methods may be called by any
// goroutine. See the package comment.
type Node struct {
	cfg    Config
	rn     *raft.RawNode // drive loop only
	mem    *memlog       // drive loop only
	inbox  *inbox
	outbox *outbox
	ran    atomic.Bool
	done   chan struct{} // closed when Run has ended

	role    atomic.Pointer[role] // written by the drive loop
	commit  atomic.Uint64        // written by the drive loop
	applied atomic.Uint64        // written by Applied and, for a snapshot, by the drive loop

	loop loopState
}

// role is what changes together and seldom.
type role struct {
	leader, term uint64
	state        raft.StateType
}

// Status is a cheap view of a member.
type Status struct {
	ID      uint64
	Leader  uint64 // 0 when none is known
	Term    uint64 // consistent with Leader and State
	State   raft.StateType
	Commit  uint64 // highest index known to be committed
	Applied uint64 // as reported by the apply loop
}

// New prepares a member from its stored state. Nothing runs until Run.
func New(cfg Config) (*Node, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	mem, err := newMemlog(cfg)
	if err != nil {
		return nil, fmt.Errorf("raftnode: stored log: %w", err)
	}
	n := &Node{
		cfg:    cfg,
		mem:    mem,
		inbox:  newInbox(cfg.MaxQueueBytes, cfg.MaxInboxBytes),
		outbox: newOutbox(),
		done:   make(chan struct{}),
	}
	if n.rn, err = newRawNode(cfg, mem); err != nil {
		return nil, err
	}
	hs := mem.start.HardState
	n.role.Store(&role{term: hs.GetTerm()})
	n.commit.Store(hs.GetCommit())
	n.applied.Store(cfg.Start.Applied)
	n.loop.term, n.loop.vote, n.loop.commit = hs.GetTerm(), hs.GetVote(), hs.GetCommit()
	n.loop.applied, n.loop.handed = cfg.Start.Applied, cfg.Start.Applied
	n.setConf(mem.start.ConfState)
	n.cfg.Start.Entries = nil // they live in mem, which drops them when it compacts
	return n, nil
}

// newRawNode turns raft's panics over stored state into errors.
func newRawNode(cfg Config, mem *memlog) (rn *raft.RawNode, err error) {
	defer recoverFailure(&err)
	return raft.NewRawNode(&raft.Config{
		ID:                        cfg.ID,
		ElectionTick:              cfg.ElectionTicks,
		HeartbeatTick:             cfg.HeartbeatTicks,
		Storage:                   mem,
		Applied:                   cfg.Start.Applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             cfg.MaxSizePerMsg,
		MaxCommittedSizePerReady:  cfg.MaxApplyingBytes,
		MaxUncommittedEntriesSize: cfg.MaxUncommitted,
		MaxInflightMsgs:           cfg.MaxInflight,
		MaxInflightBytes:          cfg.MaxInflightBytes,
		CheckQuorum:               cfg.CheckQuorum,
		PreVote:                   cfg.PreVote,
		ReadOnlyOption:            raft.ReadOnlySafe,
		StepDownOnRemoval:         true,
		Logger:                    raftLogger{cfg.Logger.Sugar()},
	})
}

func recoverFailure(err *error) {
	switch r := recover().(type) {
	case nil:
	case raftFailure:
		*err = r
	default:
		panic(r)
	}
}

// Run is the drive loop. It returns nil when ctx ends, else the error that
// makes this member unable to go on; the Node cannot be run again. Afterwards Committed is closed and
// every method that can fail returns ErrStopped.
func (n *Node) Run(ctx context.Context) (err error) {
	if n.ran.Swap(true) {
		return ErrStopped
	}
	defer n.outbox.close()
	defer close(n.done)
	defer n.inbox.close()
	defer recoverFailure(&err)
	return n.drive(ctx)
}

// Committed gives what the apply loop has to do, in order; it is closed when
// Run ends. Exactly one goroutine receives, and after each batch it calls
// Applied with the batch's last index.
func (n *Node) Committed() <-chan Batch { return n.outbox.ch }

// Applied tells that everything up to index is applied.
func (n *Node) Applied(index uint64) {
	raise(&n.applied, index)
	n.inbox.applied(index)
	n.outbox.next()
}

// Tick lets one unit of raft's time pass. A tick that finds an earlier one not
// yet served is lost.
func (n *Node) Tick() { n.inbox.tick() }

// Propose queues data to become an entry, here or at the leader. It keeps data,
// which must not be changed afterwards. There is no answer: the caller recognizes
// its entry when it is applied. id names the proposal for Withdraw, 0 for none. It returns
// ErrOverloaded or ErrStopped.
func (n *Node) Propose(id uint64, data []byte) error {
	return n.inbox.propose(proposal{id: id, typ: raftpb.EntryNormal, data: data})
}

// ProposeLater is Propose for a caller who gains nothing by being quick, and costs no write of the log of its own: the data
// becomes an entry together with the next proposal, of whatever member, that is not for later, or with the leader's next tick. A
// member that follows passes it on when it has its next turn, with the next tick at the latest.
func (n *Node) ProposeLater(id uint64, data []byte) error {
	return n.inbox.propose(proposal{id: id, typ: raftpb.EntryNormal, data: data, later: true})
}

// ProposeConf queues a change of members, like Propose. raft takes one change at a time and
// replaces a further one by an empty entry.
func (n *Node) ProposeConf(id uint64, cc raftpb.ConfChangeI) error {
	typ, data, err := raftpb.MarshalConfChange(cc)
	if err != nil {
		return fmt.Errorf("raftnode: encoding a change of members: %w", err)
	}
	return n.inbox.propose(proposal{id: id, typ: typ, data: data})
}

// Withdraw takes back a proposal that raft has not yet taken; it does nothing to
// one that raft has.
func (n *Node) Withdraw(id uint64) { n.inbox.withdraw(id) }

// Waiting tells how many proposals raft has not yet taken, and their bytes.
func (n *Node) Waiting() (count, bytes int) { return n.inbox.waiting() }

// Step hands over messages received from other members, in order. The messages must not be
// changed afterwards. Ones that are malformed, not for this member, or too much
// are dropped, as a network may. A MsgSnap may only be stepped when its file is durable in
// this member's store.
func (n *Node) Step(msgs []*raftpb.Message) {
	good := msgs
	for i, m := range msgs {
		err := checkMessage(m, n.cfg.ID)
		if err != nil {
			n.cfg.Logger.Warn("dropped a raft message", zap.Stringer("type", m.GetType()),
				zap.Uint64("from", m.GetFrom()), zap.Error(err))
			if len(good) == len(msgs) {
				good = append(make([]*raftpb.Message, 0, len(msgs)), msgs[:i]...)
			}
		} else if len(good) != len(msgs) {
			good = append(good, m)
		}
	}
	if dropped := n.inbox.step(good); dropped > 0 {
		n.cfg.Logger.Debug("dropped append messages: too many wait for this member's disk", zap.Int("count", dropped))
	}
}

// ReadIndex asks for the index a linearizable read has to wait for; the answer
// goes to Config.OnRead, once, when there is a leader. id must never repeat, not
// even after a restart. Of more than maxReads unanswered requests the oldest are forgotten.
func (n *Node) ReadIndex(id uint64) error { return n.inbox.read(id) }

// TransferLeader asks the leader, be it this member or another, to hand
// leadership to the member to. Proposals wait meanwhile, for an election timeout
// at most. Whether it happened is seen by OnLeader.
func (n *Node) TransferLeader(to uint64) error {
	return n.inbox.call(func() { n.rn.TransferLeader(to) })
}

// Campaign starts an election at once. Run does so itself for a sole voter.
func (n *Node) Campaign() error {
	return n.inbox.call(func() { n.campaign() })
}

// FastForward lets an election timeout less one tick pass at once, unless a
// leader is known: a member that starts with its peers running need not wait the full time to notice
// that there is no leader.
func (n *Node) FastForward() error {
	return n.inbox.call(func() {
		for i := 1; i < n.cfg.ElectionTicks && n.role.Load().leader == 0; i++ {
			n.rn.Tick()
		}
	})
}

// ReportUnreachable tells that a message to the member id was lost, so that
// the leader stops sending ahead of its answers.
func (n *Node) ReportUnreachable(id uint64) {
	_ = n.inbox.call(func() { n.rn.ReportUnreachable(id) }) // after the end nobody needs it
}

// ReportSnapshot tells that a MsgSnap with its file was handed over to the
// member id, or failed to be. Every MsgSnap that was sent needs one report, else
// the leader sends that member nothing more.
func (n *Node) ReportSnapshot(id uint64, ok bool) {
	status := raft.SnapshotFailure
	if ok {
		status = raft.SnapshotFinish
	}
	_ = n.inbox.call(func() { n.rn.ReportSnapshot(id, status) })
}

// ApplyConf makes raft use the configuration after cc, a committed change of
// members, and returns it. The apply loop calls it when it accepts the change, before Applied,
// and does not call it when it rejects the change. It waits for the drive loop.
func (n *Node) ApplyConf(cc raftpb.ConfChangeI) (*raftpb.ConfState, error) {
	var cs *raftpb.ConfState
	var err error
	if e := n.wait(context.Background(), func() { cs, err = n.applyConf(cc) }); e != nil {
		return nil, e
	}
	return cs, err
}

// Compact drops the log that is not needed after a restart: index is the
// backend's durable position. The newest entries before it are kept, within Config.CatchUpEntries and
// CatchUpBytes, for members that lag, and what a member that is receiving a snapshot needs
// afterwards. It waits for the drive loop and removes files; an error of the
// write-ahead log ends Run as well.
func (n *Node) Compact(index uint64) error {
	var release uint64
	if err := n.wait(context.Background(), func() { release = n.compact(index) }); err != nil {
		return err
	}
	if release == 0 {
		return nil
	}
	if err := n.cfg.Log.Release(release); err != nil {
		return fmt.Errorf("raftnode: %w", err)
	}
	return nil
}

// Status never waits.
func (n *Node) Status() Status {
	r := n.role.Load()
	return Status{ID: n.cfg.ID, Leader: r.leader, Term: r.term, State: r.state,
		Commit: n.commit.Load(), Applied: n.applied.Load()}
}

// Progress returns everything raft knows, on the leader with the progress of
// each member. It waits for the drive loop, so for the disk.
func (n *Node) Progress(ctx context.Context) (raft.Status, error) {
	// The loop may write while this caller has given up, so each call has its own.
	st := new(raft.Status)
	if err := n.wait(ctx, func() { *st = n.rn.Status() }); err != nil {
		return raft.Status{}, err
	}
	return *st, nil
}

// wait runs f on the drive loop.
func (n *Node) wait(ctx context.Context, f func()) error {
	ran := make(chan struct{})
	if err := n.inbox.call(func() { f(); close(ran) }); err != nil {
		return err
	}
	select {
	case <-ran:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-n.done:
		select {
		case <-ran:
			return nil
		default:
			return ErrStopped
		}
	}
}

// raise sets v to at least x.
func raise(v *atomic.Uint64, x uint64) {
	for {
		old := v.Load()
		if old >= x || v.CompareAndSwap(old, x) {
			return
		}
	}
}
