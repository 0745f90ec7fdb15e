package server

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/requestpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/apply/check"
	"github.com/coordd/coordd/lease"
)

// appliedWait is how long a leader waits for committed entries to be applied
// before it answers for a lease: its grant or revoke may be among them.
const appliedWait = time.Second

// LeaseGrant makes a lease. An ID of 0 is replaced by a random positive one, a
// TTL below the minimum by the minimum; both before the request is replicated,
// so that all members store the same.
func (n *Node) LeaseGrant(ctx context.Context, r *rpcpb.LeaseGrantRequest) (*rpcpb.LeaseGrantResponse, error) {
	if r.TTL > lease.MaxTTL {
		return nil, errs.ErrLeaseTTLTooLarge
	}
	if err := n.admit(ctx, check.LeaseGrantCost, r); err != nil {
		return nil, err
	}
	req := &rpcpb.LeaseGrantRequest{ID: r.ID, TTL: max(r.TTL, n.cfg.minLeaseTTL())}
	for {
		if r.ID == 0 {
			req.ID = rand.Int64N(math.MaxInt64) + 1
		}
		resp, err := n.propose(ctx, &requestpb.InternalRaftRequest{LeaseGrant: req})
		if err == nil {
			return resp.(*rpcpb.LeaseGrantResponse), nil
		}
		if r.ID != 0 || !errors.Is(err, errs.ErrLeaseExist) {
			return nil, err
		}
	}
}

// LeaseRevoke ends a lease and deletes the keys attached to it, in one revision.
func (n *Node) LeaseRevoke(ctx context.Context, r *rpcpb.LeaseRevokeRequest) (*rpcpb.LeaseRevokeResponse, error) {
	resp, err := n.propose(ctx, &requestpb.InternalRaftRequest{LeaseRevoke: &rpcpb.LeaseRevokeRequest{ID: r.ID}})
	if err != nil {
		return nil, err
	}
	return resp.(*rpcpb.LeaseRevokeResponse), nil
}

// LeaseRenew gives a lease its full TTL again and returns it, in seconds. It
// fails with ErrLeaseNotFound for a lease that does not exist or has expired.
// A member that follows asks the leader.
func (n *Node) LeaseRenew(ctx context.Context, id int64) (int64, error) {
	ttl, err := n.renewHere(ctx, lease.ID(id))
	if !errors.Is(err, errs.ErrNotPrimaryLessor) {
		return ttl, err
	}
	return n.forward.renew(ctx, id)
}

// renewHere renews as the leader; errs.ErrNotPrimaryLessor when this member does not
// lead. Leadership is confirmed after the renewal: a next leader that does not
// know of it counts from its own election, which is then known to be so late that
// the lease it knows ends no earlier than the one promised here.
func (n *Node) renewHere(ctx context.Context, id lease.ID) (int64, error) {
	if err := n.waitCommitted(ctx); err != nil {
		return 0, err
	}
	r, err := n.expirer.Renew(id)
	if errors.Is(err, errs.ErrLeaseNotFound) { // a deposed leader may not know of it
		if err := n.LinearizableWait(ctx); err != nil {
			return 0, err
		}
		r, err = n.expirer.Renew(id)
	}
	if err == nil {
		err = n.confirmLeading(ctx)
	}
	if errors.Is(err, lease.ErrExpired) {
		return 0, n.waitRevoked(ctx, id)
	}
	if err != nil {
		return 0, err
	}
	if r.Reset {
		if err := n.resetCheckpoint(ctx, id, r.Term); err != nil {
			return 0, err
		}
	}
	n.metrics.leaseRenewed.Inc()
	return r.TTL, nil
}

// resetCheckpoint takes the lease's remaining time out of the log, so that a new
// leader gives it the whole TTL that the client is about to be told.
func (n *Node) resetCheckpoint(ctx context.Context, id lease.ID, term uint64) error {
	_, err := n.propose(ctx, &requestpb.InternalRaftRequest{
		Header: &requestpb.RequestHeader{LeaseTerm: term},
		LeaseCheckpoint: &rpcpb.LeaseCheckpointRequest{
			Checkpoints: []*rpcpb.LeaseCheckpoint{{ID: int64(id)}},
		},
	})
	return err
}

// confirmFor is how long a confirmation of leadership is trusted, and by how
// much a new leader extends every lease: the leader before it may have
// acknowledged renewals for so long after the election.
func (n *Node) confirmFor() time.Duration { return n.cfg.electionTimeout() / 4 }

// confirmation is a round that confirmed this member's leadership. One of an earlier term says
// nothing: what was committed by the leader between may not be known to be committed here yet.
type confirmation struct {
	term  uint64
	begin time.Duration // since the node started
}

// confirmLeading returns nil when a majority has confirmed, in a round of this term that began
// no longer than confirmFor ago, that this member leads. That this member believes
// it says nothing: it may have been cut off, or its process stopped.
func (n *Node) confirmLeading(ctx context.Context) error {
	st := n.raft.Status()
	if st.Leader != n.id {
		return errs.ErrNotPrimaryLessor
	}
	begin := time.Since(n.started)
	if c := n.confirmed.Load(); c != nil && c.term == st.Term && begin-c.begin <= n.confirmFor() {
		return nil
	}
	if err := n.LinearizableWait(ctx); err != nil {
		return err
	}
	if now := n.raft.Status(); now.Leader != n.id || now.Term != st.Term {
		return errs.ErrNotPrimaryLessor
	}
	n.confirmed.Store(&confirmation{term: st.Term, begin: begin})
	return nil
}

// upToDate returns nil when this member leads and has applied all that was
// committed by now: a grant or revoke that the caller has seen at another member
// may be committed and not yet applied here.
func (n *Node) upToDate(ctx context.Context) error {
	if err := n.confirmLeading(ctx); err != nil {
		return err
	}
	return n.waitCommitted(ctx)
}

// waitCommitted waits until all that is committed by now is applied.
func (n *Node) waitCommitted(ctx context.Context) error {
	commit := n.raft.Status().Commit
	if n.appliedIndex.Load() >= commit {
		return nil
	}
	timeout := time.NewTimer(appliedWait)
	defer timeout.Stop()
	select {
	case <-n.applied.Wait(commit):
		return nil
	case <-timeout.C:
		return errs.ErrTimeoutWaitAppliedIndex
	case <-ctx.Done():
		return ctx.Err()
	case <-n.ending:
		return errs.ErrStopped
	}
}

// waitRevoked waits until an expired lease is gone, so that who is told so finds
// its keys deleted.
func (n *Node) waitRevoked(ctx context.Context, id lease.ID) error {
	timeout := time.NewTimer(n.cfg.requestTimeout())
	defer timeout.Stop()
	for {
		next := n.applied.Wait(n.appliedIndex.Load() + 1)
		if _, ok := n.machine.Load().Leases.Get(id); !ok {
			return errs.ErrLeaseNotFound
		}
		if n.Leader() != n.id {
			return errs.ErrLeaderChanged
		}
		select {
		case <-next:
		case <-timeout.C:
			return errs.ErrTimeout
		case <-ctx.Done():
			return ctx.Err()
		case <-n.ending:
			return errs.ErrStopped
		}
	}
}

// LeaseTimeToLive tells what is left of a lease: TTL -1 when there is none. A
// member that follows asks the leader.
func (n *Node) LeaseTimeToLive(ctx context.Context, r *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error) {
	resp, err := n.timeToLiveHere(ctx, r)
	if !errors.Is(err, errs.ErrNotPrimaryLessor) {
		return resp, err
	}
	return n.forward.timeToLive(ctx, r)
}

func (n *Node) timeToLiveHere(ctx context.Context, r *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error) {
	if err := n.upToDate(ctx); err != nil {
		return nil, err
	}
	id := lease.ID(r.ID)
	left, err := n.expirer.Remaining(id)
	if err == nil { // a renewal that came while this waited counts only if this member still leads
		err = n.confirmLeading(ctx)
	}
	m := n.machine.Load()
	l, ok := m.Leases.Get(id)
	switch {
	case errors.Is(err, errs.ErrLeaseNotFound), err == nil && !ok:
		return &rpcpb.LeaseTimeToLiveResponse{Header: n.Header(0), ID: r.ID, TTL: -1}, nil
	case err != nil:
		return nil, err
	}
	resp := &rpcpb.LeaseTimeToLiveResponse{Header: n.Header(0), ID: r.ID, GrantedTTL: l.TTL}
	resp.TTL = max(0, int64(left/time.Second)) // a lease about to be revoked has nothing left, not less
	if r.Keys {
		for _, k := range m.Leases.Keys(id) {
			resp.Keys = append(resp.Keys, []byte(k))
		}
	}
	return resp, nil
}

// LeaseLeases lists the leases this member knows, those that end first at the
// front when it leads, else by what was granted.
func (n *Node) LeaseLeases(context.Context) (*rpcpb.LeaseLeasesResponse, error) {
	type entry struct {
		id   lease.ID
		left time.Duration
	}
	var all []entry
	for _, l := range n.machine.Load().Leases.List() {
		left, err := n.expirer.Remaining(l.ID)
		if err != nil {
			left = time.Duration(l.Left()) * time.Second
		}
		all = append(all, entry{l.ID, left})
	}
	slices.SortFunc(all, func(a, b entry) int {
		if a.left != b.left {
			return cmp.Compare(a.left, b.left)
		}
		return cmp.Compare(a.id, b.id)
	})
	resp := &rpcpb.LeaseLeasesResponse{Header: n.Header(0)}
	for _, e := range all {
		resp.Leases = append(resp.Leases, &rpcpb.LeaseStatus{ID: int64(e.id)})
	}
	return resp, nil
}
