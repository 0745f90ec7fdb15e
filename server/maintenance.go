package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3/tracker"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/requestpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/apply"
	"github.com/coordd/coordd/mvcc/backend"
)

// The versions that clients see. Clients parse them as three numbers and derive
// features from them, so they name the etcd release whose API is served;
// coordd's own version stands beside them.
const (
	// APIVersion is the etcd release whose API this server speaks.
	APIVersion = "3.7.3"
	// ClusterVersion is the version a cluster of such servers agrees on.
	ClusterVersion = "3.7.0"
	// Version is coordd's own.
	Version = "0.1.0"
)

// errTransferTooLong is MoveLeader's when the caller stops waiting.
var errTransferTooLong = errors.New("etcdserver: request timed out, leader transfer took too long")

// Status describes this member as it is, without asking others.
func (n *Node) Status() *rpcpb.StatusResponse {
	m, st := n.machine.Load(), n.raft.Status()
	total, used := m.Backend.Size()
	downgrade := m.Members.Downgrade()
	resp := &rpcpb.StatusResponse{
		Header: n.Header(0), Version: APIVersion, StorageVersion: ClusterVersion,
		DbSize: total, DbSizeInUse: used, DbSizeQuota: n.cfg.QuotaBytes,
		Leader: st.Leader, RaftTerm: st.Term, RaftIndex: st.Commit, RaftAppliedIndex: n.appliedIndex.Load(),
		IsLearner:     n.IsLearner(),
		DowngradeInfo: &rpcpb.DowngradeInfo{Enabled: downgrade.Enabled, TargetVersion: downgrade.TargetVersion},
	}
	if st.Leader == 0 {
		resp.Errors = append(resp.Errors, errs.ErrNoLeader.Error())
	}
	for _, a := range m.Alarms.List() {
		resp.Errors = append(resp.Errors, fmt.Sprintf("memberID:%d alarm:%s", a.Member, a.Type))
	}
	return resp
}

// ClusterVersion is what the members have agreed on, "" before they have.
func (n *Node) ClusterVersion() string { return n.machine.Load().Members.Version() }

// Alarmed reports whether any member has an alarm of the type, as this member knows.
func (n *Node) Alarmed(typ rpcpb.AlarmType) bool { return n.machine.Load().Alarms.Active(typ) }

// Alarm lists, raises or clears alarms, through the log.
func (n *Node) Alarm(ctx context.Context, r *rpcpb.AlarmRequest) (*rpcpb.AlarmResponse, error) {
	resp, err := n.propose(ctx, &requestpb.InternalRaftRequest{Alarm: r})
	if err != nil {
		return nil, err
	}
	return resp.(*rpcpb.AlarmResponse), nil
}

// Hash is a checksum over the whole data file, and the revision it stands at.
func (n *Node) Hash(ctx context.Context) (hash uint32, revision int64, err error) {
	m := n.machine.Load()
	if err := n.onApplyLoop(ctx, func() error { return m.Commit(true) }); err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	hash, err = m.Backend.Hash()
	n.metrics.hash.Observe(time.Since(begin).Seconds())
	return hash, n.Revision(), err
}

// HashKV is a checksum over the keys' history up to a revision, 0 for the
// current one. Members that agree in revision and compacted revision agree in it.
func (n *Node) HashKV(_ context.Context, revision int64) (*rpcpb.HashKVResponse, error) {
	begin := time.Now()
	hash, compacted, at, err := n.machine.Load().KV.HashKV(revision)
	n.metrics.hashKV.Observe(time.Since(begin).Seconds())
	if err != nil {
		return nil, err
	}
	return &rpcpb.HashKVResponse{Header: n.Header(0), Hash: hash, CompactRevision: compacted, HashRevision: at}, nil
}

// Snapshot opens the data file as of now for reading. The caller closes it.
func (n *Node) Snapshot(ctx context.Context) (*backend.Snapshot, error) {
	m, err := n.committed(ctx)
	if err != nil {
		return nil, err
	}
	return m.Backend.Snapshot()
}

// committed is the machine, all of whose changes are in its file. It is looked up on the apply loop: one that a snapshot has replaced
// is being closed and must not be written to.
func (n *Node) committed(ctx context.Context) (*apply.Machine, error) {
	m := new(*apply.Machine)
	err := n.onApplyLoop(ctx, func() error {
		*m = n.machine.Load()
		return (*m).Commit(true)
	})
	if err != nil {
		return nil, err // the loop may still be at work on m
	}
	return *m, nil
}

// MoveLeader hands leadership to another voter and returns when that one leads.
// Only the leader can; it waits as long as the context lasts.
func (n *Node) MoveLeader(ctx context.Context, target uint64) error {
	if n.Leader() != n.id {
		return errs.ErrNotLeader
	}
	if target == n.id {
		return nil
	}
	m := n.memberOf(target)
	if m == nil || m.IsLearner {
		return errs.ErrBadLeaderTransferee
	}
	n.settleLeases(ctx)
	for {
		changed := n.leadership.changed()
		if n.Leader() == target {
			return nil
		}
		if err := n.raft.TransferLeader(target); err != nil {
			return errs.ErrStopped
		}
		again := time.NewTimer(n.cfg.electionTimeout()) // raft gives a transfer up after this long
		select {
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return errTransferTooLong
		case <-n.ending:
			again.Stop()
			return errs.ErrStopped
		}
		again.Stop()
		if leader := n.Leader(); leader != 0 && leader != n.id && leader != target {
			return errs.ErrLeaderChanged
		}
	}
}

// successor is the voter whose log is closest to this leader's, 0 if none is active.
// A leader that was elected a moment ago has heard of no other yet; a round with
// the majority tells it who is there.
func (n *Node) successor(ctx context.Context) uint64 {
	if id := n.closestVoter(ctx); id != 0 || !n.quorumConnected() {
		return id
	}
	if err := n.LinearizableWait(ctx); err != nil {
		return 0
	}
	return n.closestVoter(ctx)
}

func (n *Node) closestVoter(ctx context.Context) (id uint64) {
	st, err := n.raft.Progress(ctx)
	if err != nil {
		return 0
	}
	best := uint64(0)
	for other, p := range st.Progress {
		if other != n.id && !p.IsLearner && p.RecentActive && p.State != tracker.StateSnapshot && p.Match >= best {
			id, best = other, p.Match
		}
	}
	return id
}

// quorumConnected reports whether this member can reach enough members to form
// a majority.
func (n *Node) quorumConnected() bool {
	voters, connected := 0, 0
	for _, m := range n.machine.Load().Members.Members() {
		if m.IsLearner {
			continue
		}
		voters++
		if uint64(m.ID) == n.id || !n.transport.ActiveSince(uint64(m.ID)).IsZero() {
			connected++
		}
	}
	return connected > voters/2
}
