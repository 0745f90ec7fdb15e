package raftnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// loopState belongs to the drive loop.
type loopState struct {
	spare work       // for the next swap
	props []proposal // reused

	// blocked: raft dropped a proposal for a reason other than a missing leader
	// (a transfer, too much uncommitted). Cleared whenever that may have passed.
	blocked bool
	sole    bool     // this member is the only voter
	joint   bool     // between two configurations
	pairs   []uint64 // the voters when any two are a majority, otherwise nil

	acks    []*raftpb.Message // MsgStorageApplyResp of the batches not yet Applied, in order
	applied uint64            // what raft was told

	term, vote, commit uint64 // the hard state
	unwritten          bool   // a newer commit index than in the write-ahead log

	early, late []*raftpb.Message // reused
	reads       reads
	handed      uint64 // index of the newest entry handed out
	handedTerm  uint64 // its term
	said        said
	answers     []*raftpb.Message // to other members' reads, reused
}

// setConf learns the configuration.
func (n *Node) setConf(cs *raftpb.ConfState) {
	n.loop.sole = len(cs.GetVoters()) == 1 && cs.GetVoters()[0] == n.cfg.ID && len(cs.GetVotersOutgoing()) == 0
	n.loop.joint = len(cs.GetVotersOutgoing()) > 0
	n.loop.pairs = nil
	if len(cs.GetVoters()) <= 3 && len(cs.GetVotersOutgoing()) == 0 {
		n.loop.pairs = slices.Clone(cs.GetVoters())
	}
}

// drive runs turns until ctx ends or the log fails.
func (n *Node) drive(ctx context.Context) error {
	n.campaignIfSole()
	if err := n.serveAll(); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return n.flushCommit()
		case <-n.inbox.wake:
		}
		if ctx.Err() != nil {
			return n.flushCommit()
		}
		if err := n.turn(); err != nil {
			return err
		}
	}
}

// turn steps everything that waits into raft, and does what raft wants done.
func (n *Node) turn() error {
	w := n.inbox.swap(n.loop.spare)
	n.acknowledge(w.applied)
	props := n.step(w.msgs, n.loop.props[:0])
	for _, f := range w.calls {
		f()
	}
	if w.tick {
		n.loop.blocked = false
		n.rn.Tick()
	}
	n.sendAnswers()
	n.askReads(w.reads, w.tick)
	n.propose(props, w.tick)
	if w.tick {
		n.sendKept()
	}
	w.reset()
	n.loop.spare = w
	if err := n.serveAll(); err != nil {
		return err
	}
	n.inbox.awaitApplied(n.waitsForApply())
	return nil
}

// step gives messages to raft. Proposals of other members are appended to
// props instead, so that they join this turn's batch.
func (n *Node) step(msgs []*raftpb.Message, props []proposal) []proposal {
	for _, m := range msgs {
		if m.GetType() == raftpb.MsgProp {
			for _, e := range m.GetEntries() {
				props = append(props, proposal{typ: e.GetType(), data: e.GetData(), later: isLater(m)})
			}
			continue
		}
		if m.GetType() == raftpb.MsgReadIndex && n.answerRead(m) {
			continue
		}
		// Of the errors only the one for proposals matters: a response of a member
		// that was removed is as good as lost.
		_ = n.rn.Step(m)
	}
	return props
}

// propose steps first the given proposals and then waiting ones as one message, or
// keeps all when raft cannot take them now. A leader also keeps them while all are for later, until the tick; a
// follower passes them on, since the company that they wait for is the leader's.
func (n *Node) propose(props []proposal, tick bool) {
	if len(props) > 0 && n.inbox.behind(props) {
		props = props[:0]
	}
	n.loop.props = props
	later := !tick && !n.inbox.presses() && allLater(props)
	if !n.mayPropose() || later && n.role.Load().leader == n.cfg.ID {
		if len(props) > 0 {
			n.inbox.putBack(props)
		}
		return
	}
	props, more := n.inbox.take(props, n.cfg.MaxBatchBytes)
	n.loop.props = props
	if len(props) == 0 {
		return
	}
	m := &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: &n.cfg.ID, Entries: entriesOf(props)}
	if later {
		m.Context = laterMark
	}
	err := n.rn.Step(m)
	if err != nil {
		n.loop.blocked = true
		n.inbox.putBack(props)
	} else if more {
		n.inbox.signal()
	}
	clear(props) // do not keep the data alive
}

// laterMark is the context of a forwarded MsgProp whose entries are for later. raft does not look at it.
var laterMark = []byte("later")

func isLater(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgProp && bytes.Equal(m.GetContext(), laterMark)
}

func allLater(props []proposal) bool {
	for _, p := range props {
		if !p.later {
			return false
		}
	}
	return true
}

func (n *Node) mayPropose() bool {
	return !n.loop.blocked && n.role.Load().leader != 0 &&
		n.commit.Load() <= n.applied.Load()+n.cfg.MaxUnapplied
}

// entriesOf makes the entries in one allocation. raft copies them when it
// appends, but keeps them when it forwards.
func entriesOf(props []proposal) []*raftpb.Entry {
	store := make([]raftpb.Entry, len(props))
	ents := make([]*raftpb.Entry, len(props))
	for i, p := range props {
		e := &store[i]
		e.Data = p.data
		if p.typ != raftpb.EntryNormal {
			e.Type = p.typ.Enum()
		}
		ents[i] = e
	}
	return ents
}

// acknowledge tells raft what the apply loop has applied.
func (n *Node) acknowledge(index uint64) {
	if index == 0 {
		return
	}
	done := 0
	for _, m := range n.loop.acks {
		last := m.GetEntries()[len(m.GetEntries())-1].GetIndex()
		if last > index {
			break
		}
		_ = n.rn.Step(m)
		n.loop.applied = max(n.loop.applied, last)
		done++
	}
	n.loop.acks = append(n.loop.acks[:0:0], n.loop.acks[done:]...)
	n.loop.blocked = false
	n.campaignIfSole()
}

// campaignIfSole starts the election of a sole voter without waiting for its
// timeout. raft refuses while a committed change of members is not applied, so this is tried
// again after each batch.
func (n *Node) campaignIfSole() {
	if n.loop.sole && n.role.Load().state == raft.StateFollower {
		n.campaign()
	}
}

func (n *Node) campaign() {
	_ = n.rn.Campaign() // raft gives no error for this message
}

// applyConf runs ApplyConf on the drive loop. raft panics at a configuration
// without voters, which a user may ask for.
func (n *Node) applyConf(cc raftpb.ConfChangeI) (*raftpb.ConfState, error) {
	voters := n.rn.Status().Config.Voters[0]
	v2 := cc.AsV2()
	for _, c := range v2.GetChanges() {
		if c.GetType() == raftpb.ConfChangeAddNode {
			voters[c.GetNodeId()] = struct{}{}
		} else if c.GetType() != raftpb.ConfChangeUpdateNode {
			delete(voters, c.GetNodeId())
		}
	}
	if len(voters) == 0 {
		return nil, errors.New("raftnode: this change would leave the cluster without a voting member")
	}
	cs := n.rn.ApplyConfChange(cc)
	n.setConf(cs)
	return cs, nil
}

// compact runs the part of Compact that is the drive loop's, and returns the
// index up to which the write-ahead log may go, 0 for nothing.
func (n *Node) compact(index uint64) uint64 {
	index = n.mem.catchUp(min(index, n.loop.applied), n.cfg)
	if index == 0 {
		return 0
	}
	if n.role.Load().state == raft.StateLeader {
		n.rn.WithProgress(func(_ uint64, _ raft.ProgressType, pr tracker.Progress) {
			if pr.State == tracker.StateSnapshot {
				index = min(index, pr.PendingSnapshot)
			}
		})
	}
	if err := n.mem.Compact(index); err != nil {
		return 0 // that far it happened already
	}
	return index
}

// flushCommit stores a commit index that was kept back, at an orderly end. It
// saves the next start from waiting for the leader to tell it.
func (n *Node) flushCommit() error {
	if !n.loop.unwritten {
		return nil
	}
	return n.writeLog(nil, false)
}

// writeLog appends entries and the present hard state to the write-ahead log.
func (n *Node) writeLog(ents []*raftpb.Entry, sync bool) error {
	if err := n.cfg.Log.Append(n.hardState(), ents, sync); err != nil {
		return fmt.Errorf("raftnode: write-ahead log: %w", err)
	}
	n.loop.unwritten = false
	return nil
}

func (n *Node) hardState() *raftpb.HardState {
	l := &n.loop
	return &raftpb.HardState{Term: &l.term, Vote: &l.vote, Commit: &l.commit}
}
