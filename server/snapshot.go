package server

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/coordd/coordd/apply"
	"github.com/coordd/coordd/mvcc/backend"
	"github.com/coordd/coordd/snap"
)

// snapshotMeta describes a snapshot that could be sent now: the data file as it
// is on disk. The file that the peer layer sends may be newer by then.
func (n *Node) snapshotMeta() (*raftpb.Snapshot, error) {
	m := n.machine.Load()
	pos := m.Backend.Position()
	if pos.Index == 0 {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return positionSnapshot(pos)
}

// positionSnapshot is a raft snapshot without data at a position of the backend.
func positionSnapshot(pos backend.Position) (*raftpb.Snapshot, error) {
	cs, err := apply.ConfStateOf(pos)
	if err != nil {
		return nil, err
	}
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &pos.Index, Term: &pos.Term, ConfState: cs}}, nil
}

// installSnapshot puts the leader's file, which the peer layer has stored and
// raft has marked in the log, in the place of the data file, opens it as at
// boot, and swaps it in. Readers of the old machine finish on the old file.
// It runs on the apply loop.
func (n *Node) installSnapshot(s *raftpb.Snapshot) error {
	n.metrics.snapshotApply.Set(1)
	defer n.metrics.snapshotApply.Set(0)
	begin := time.Now()
	pos := snap.Position{Index: s.GetMetadata().GetIndex(), Term: s.GetMetadata().GetTerm()}
	n.lg.Info("applying snapshot", zap.Uint64("index", pos.Index), zap.Uint64("term", pos.Term))
	path, err := n.store.snaps.Find(pos)
	if err != nil {
		return fmt.Errorf("server: the leader's snapshot at entry %d: %w", pos.Index, err)
	}
	old := n.machine.Load()
	if err := replaceFile(n.cfg, path); err != nil {
		return err
	}
	m, err := apply.Open(n.cfg.dbPath(), n.cfg.applyOptions(n.metrics))
	if err != nil {
		return fmt.Errorf("server: opening the leader's snapshot: %w", err)
	}
	n.lg.Info("applySnapshot: opened snapshot backend")
	n.machine.Store(m)
	n.released = pos.Index
	n.appliedIndex.Store(pos.Index)
	n.hub.Swap(m.KV)
	n.applied.Trigger(pos.Index)
	n.expirer.Demote()
	n.updatePeers()
	// Who still reads the old file, such as a client that takes its time with a snapshot of it, holds up its closing, but must
	// not hold up this loop.
	n.group.Go(func() error {
		if err := old.Close(); err != nil {
			n.lg.Warn("closing the data file that a snapshot replaced", zap.Error(err))
		}
		return nil
	})
	n.raft.Applied(pos.Index)
	n.lg.Info("applied snapshot", zap.Uint64("index", pos.Index), zap.Duration("took", time.Since(begin)))
	return nil
}
