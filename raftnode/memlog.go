package raftnode

import (
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
	return &memlog{MemoryStorage: ms, start: s, snapshot: c.Snapshot, logger: c.Logger}, nil
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
