package raftnode

import (
	"math"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// memlog is the log as raft reads it: the recent entries in memory. It holds
// only what the write-ahead log has stored. The drive loop alone uses it.
type memlog struct {
	*raft.MemoryStorage
	start    Start
	snapshot func() (*raftpb.Snapshot, error)
	logger   *zap.Logger
}

func newMemlog(c Config) (*memlog, error) {
	s := c.Start
	if s.ConfState == nil {
		s.ConfState = &raftpb.ConfState{}
	}
	ms := raft.NewMemoryStorage()
	if s.Index > 0 {
		index, term := s.Index, s.Term
		err := ms.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: &index, Term: &term, ConfState: s.ConfState,
		}})
		if err != nil {
			return nil, err
		}
	}
	if err := ms.Append(s.Entries); err != nil {
		return nil, err
	}
	// A commit index alone is not synced when it is written, so the stored one
	// may be behind the state machine, which holds only committed entries.
	if s.HardState.GetCommit() < s.Applied {
		term, vote, commit := s.HardState.GetTerm(), s.HardState.GetVote(), s.Applied
		s.HardState = &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
	}
	s.Entries = nil
	l := &memlog{MemoryStorage: ms, start: s, snapshot: c.Snapshot, logger: c.Logger}
	if cut := l.catchUp(s.Applied, c); cut > s.Index {
		if err := ms.Compact(cut); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// catchUp gives the index up to which the log can go when the backend has everything up to durable: what
// Config keeps for members that lag is left.
func (l *memlog) catchUp(durable uint64, c Config) uint64 {
	first, err := l.FirstIndex()
	if err != nil || durable < first {
		return 0
	}
	ents, err := l.Entries(first, durable+1, math.MaxUint64)
	if err != nil {
		return 0
	}
	kept, bytes := uint64(0), uint64(0)
	for i := len(ents) - 1; i >= 0 && kept < c.CatchUpEntries; i-- {
		bytes += uint64(len(ents[i].GetData())) + proposalOverhead
		if bytes > c.CatchUpBytes && kept > 0 {
			break
		}
		kept++
	}
	return durable - kept
}

// InitialState is read once, by raft.NewRawNode.
func (l *memlog) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	return l.start.HardState, l.start.ConfState, nil
}

// Snapshot gives the metadata of the backend's durable position. A position
// before the log's first entry would not help its receiver, and any other error than "try
// later" would stop raft.
func (l *memlog) Snapshot() (*raftpb.Snapshot, error) {
	s, err := l.snapshot()
	if err != nil {
		l.logger.Warn("no snapshot can be sent now", zap.Error(err))
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	first, err := l.FirstIndex()
	if err != nil || s.GetMetadata().GetIndex()+1 < first {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return s, nil
}
