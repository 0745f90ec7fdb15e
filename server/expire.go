package server

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/requestpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/lease"
)

// revokesAtOnce bounds the revokes that wait for their result.
const revokesAtOnce = 64

func newExpirer(cfg Config) *lease.Expirer {
	if cfg.Clock == nil {
		return lease.NewExpirer()
	}
	return lease.NewExpirerOn(cfg.Clock)
}

// expireLoop lets the expirer name leases that ended, and proposes to revoke
// them, until ctx ends.
func (n *Node) expireLoop(ctx context.Context) error {
	slots := make(chan struct{}, revokesAtOnce)
	n.expirer.Run(ctx, lease.Duties{
		Revoke: func(b lease.Batch) {
			for _, id := range b.IDs {
				n.revokeExpired(ctx, slots, b.Term, id)
			}
		},
		Checkpoint: n.proposeCheckpoints,
	})
	return nil
}

// revokeExpired proposes one revoke in a goroutine of its own, which ends with
// the proposal; it waits for a free slot.
func (n *Node) revokeExpired(ctx context.Context, slots chan struct{}, term uint64, id lease.ID) {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	n.metrics.leaseExpired.Inc()
	n.group.Go(func() error {
		defer func() { <-slots }()
		_, err := n.propose(ctx, &requestpb.InternalRaftRequest{
			Header:      &requestpb.RequestHeader{LeaseTerm: term},
			LeaseRevoke: &rpcpb.LeaseRevokeRequest{ID: int64(id)},
		})
		if err != nil && !errors.Is(err, errs.ErrLeaseNotFound) && ctx.Err() == nil {
			n.lg.Debug("could not revoke an expired lease; trying again", zap.Int64("lease", int64(id)), zap.Error(err))
			n.expirer.GiveBack(id)
		}
		return nil
	})
}

// proposeCheckpoints queues what is left of some leases for the log. Nobody
// waits for the result: a lost checkpoint is made up for by the next.
func (n *Node) proposeCheckpoints(term uint64, cs []lease.Checkpoint) {
	req := checkpointRequest(term, cs)
	req.Header.ID = n.ids.Next()
	data, err := req.MarshalVT()
	if err == nil {
		err = n.raft.Propose(0, data)
	}
	if err != nil {
		n.lg.Warn("could not checkpoint leases", zap.Int("count", len(cs)), zap.Error(err))
	}
}

func checkpointRequest(term uint64, cs []lease.Checkpoint) *requestpb.InternalRaftRequest {
	r := &rpcpb.LeaseCheckpointRequest{}
	for _, c := range cs {
		r.Checkpoints = append(r.Checkpoints, &rpcpb.LeaseCheckpoint{ID: int64(c.ID), Remaining_TTL: c.Remaining})
	}
	return &requestpb.InternalRaftRequest{Header: &requestpb.RequestHeader{LeaseTerm: term}, LeaseCheckpoint: r}
}

// promoteExpirer is called by the apply loop when this member, as leader of
// term, has applied an entry of that term, and so everything before it.
func (n *Node) promoteExpirer(term uint64) {
	if n.expiringTerm == term {
		return
	}
	n.expiringTerm = term
	n.expirer.Promote(term, n.machine.Load().Leases, n.confirmFor())
	if n.Leader() != n.id { // lost it meanwhile; onLeader's Demote may have come before
		n.expirer.Demote()
	}
}

// settleLeases has what is left of every lease written to the log, and waits for
// it, before leadership is handed over. It is a courtesy to leases that age: if it
// fails, the next leader counts from the last coarse checkpoint.
func (n *Node) settleLeases(ctx context.Context) {
	var waits []func() error
	n.expirer.Settle(func(term uint64, cs []lease.Checkpoint) {
		wait, err := n.enqueue(ctx, checkpointRequest(term, cs), n.raft.Propose)
		if err == nil {
			waits = append(waits, func() error { _, err := wait(); return err })
		}
	})
	for _, wait := range waits {
		if err := wait(); err != nil {
			n.lg.Info("could not checkpoint leases before handing leadership over", zap.Error(err))
		}
	}
}
