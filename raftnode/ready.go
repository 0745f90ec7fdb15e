package raftnode

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/coordd/coordd/wal"
)

// serveAll works off what raft wants done, until it wants nothing more.
func (n *Node) serveAll() error {
	for n.rn.HasReady() {
		if err := n.serve(n.rn.Ready()); err != nil {
			return err
		}
	}
	return nil
}

// serve does what one Ready asks for, in the order of the package comment.
func (n *Node) serve(rd raft.Ready) error {
	n.updateRole(rd)
	var store, apply *raftpb.Message
	early, late := n.loop.early[:0], n.loop.late[:0]
	for _, m := range rd.Messages {
		switch m.GetType() {
		case raftpb.MsgStorageAppend:
			store = m
		case raftpb.MsgStorageApply:
			apply = m
		case raftpb.MsgReadIndex:
			n.stamp(m)
			early = append(early, m)
		case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap, raftpb.MsgProp, raftpb.MsgHeartbeatResp, raftpb.MsgReadIndexResp:
			if isLater(m) { // it shares a frame with this turn's answer
				late = append(late, m)
			} else {
				early = append(early, m)
			}
		default:
			late = append(late, m)
		}
	}
	n.send(early)
	for _, rs := range rd.ReadStates {
		n.loop.reads.answer(rs, n.cfg.OnRead)
	}
	if apply != nil {
		last := apply.GetEntries()[len(apply.GetEntries())-1]
		n.loop.handed, n.loop.handedTerm = last.GetIndex(), last.GetTerm()
		n.loop.acks = append(n.loop.acks, apply.GetResponses()...)
		n.outbox.entries(apply.GetEntries())
	}
	var own []*raftpb.Message
	if store != nil {
		advanced := n.advances(rd)
		if err := n.store(store, rd.MustSync); err != nil {
			return err
		}
		for i, m := range store.GetResponses() {
			if m.GetTo() == n.cfg.ID {
				own = append(own, store.GetResponses()[i])
			} else if !n.loop.said.keep(m, advanced) {
				late = append(late, m)
			}
		}
	}
	n.send(late)
	for _, m := range own {
		_ = n.rn.Step(m) // raft's own acknowledgements cannot be refused
	}
	clear(early)
	clear(late)
	n.loop.early, n.loop.late = early, late
	return nil
}

func (n *Node) send(msgs []*raftpb.Message) {
	if len(msgs) > 0 {
		n.cfg.Send(msgs)
	}
}

// updateRole publishes what rd says about leader, term and commit index.
func (n *Node) updateRole(rd raft.Ready) {
	old := *n.role.Load()
	now := old
	if rd.SoftState != nil {
		now.leader, now.state = rd.Lead, rd.RaftState
	}
	if !raft.IsEmptyHardState(rd.HardState) {
		now.term = rd.GetTerm()
		n.commit.Store(rd.GetCommit())
	}
	if now == old {
		return
	}
	n.role.Store(&now)
	if now.leader == old.leader && now.term == old.term {
		return
	}
	n.cfg.Logger.Info("raft leader", zap.String("member", hex(n.cfg.ID)), zap.String("leader", hex(now.leader)),
		zap.Uint64("term", now.term), zap.Stringer("role", now.state))
	n.cfg.OnLeader(now.leader, now.term, now.state == raft.StateLeader)
	n.loop.blocked = false
	n.loop.reads.repeat = true
	n.inbox.signal() // proposals and reads that waited for a leader
}

// store makes durable what m, a MsgStorageAppend, carries.
func (n *Node) store(m *raftpb.Message, mustSync bool) error {
	l := &n.loop
	if m.Term != nil { // the hard state changed
		l.term, l.vote, l.commit = m.GetTerm(), m.GetVote(), m.GetCommit()
		l.unwritten = true
	}
	if !raft.IsEmptySnap(m.GetSnapshot()) {
		if err := n.storeSnapshot(m.GetSnapshot()); err != nil {
			return err
		}
	}
	if !mustSync {
		return nil
	}
	if err := n.writeLog(m.GetEntries(), true); err != nil {
		return err
	}
	if err := n.mem.Append(m.GetEntries()); err != nil {
		return fmt.Errorf("raftnode: log in memory: %w", err)
	}
	return nil
}

// storeSnapshot restarts the logs at a snapshot whose file is in the store,
// and hands it to the apply loop.
func (n *Node) storeSnapshot(s *raftpb.Snapshot) error {
	meta := s.GetMetadata()
	if err := n.cfg.Log.Reset(wal.Position{Index: meta.GetIndex(), Term: meta.GetTerm()}, n.hardState()); err != nil {
		return fmt.Errorf("raftnode: write-ahead log: restart at the snapshot of entry %d: %w", meta.GetIndex(), err)
	}
	n.loop.unwritten = false
	if err := n.mem.ApplySnapshot(s); err != nil {
		return fmt.Errorf("raftnode: log in memory: %w", err)
	}
	n.loop.applied = max(n.loop.applied, meta.GetIndex())
	n.loop.handed = max(n.loop.handed, meta.GetIndex())
	n.setConf(meta.GetConfState())
	n.outbox.snapshot(s)
	return nil
}

func hex(id uint64) string { return fmt.Sprintf("%x", id) }
