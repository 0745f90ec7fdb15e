package apply

import (
	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/lease"
)

func (x *executor) leaseGrant(r *rpcpb.LeaseGrantRequest) Result {
	change, err := x.leases.Grant(lease.ID(r.GetID()), r.GetTTL())
	if err != nil {
		return failed(err)
	}
	return Result{
		Response: &rpcpb.LeaseGrantResponse{Header: x.header(), ID: r.GetID(), TTL: change.Lease.TTL},
		Leases:   []lease.Change{change},
	}
}

// leaseRevoke deletes the keys of a lease, in ascending order at one revision, and the lease.
func (x *executor) leaseRevoke(c *Call, r *rpcpb.LeaseRevokeRequest) Result {
	if err := fence(c); err != nil {
		return failed(err)
	}
	id := lease.ID(r.GetID())
	keys := x.leases.Keys(id)
	change, err := x.leases.Revoke(id)
	if err != nil {
		return failed(err)
	}
	t := x.kv.Begin()
	for _, key := range keys {
		t.DeleteRange([]byte(key), nil)
	}
	events := x.finish(t)
	return Result{
		Response: &rpcpb.LeaseRevokeResponse{Header: x.header()},
		Events:   events,
		Leases:   []lease.Change{change},
	}
}

// leaseCheckpoint records remaining times. Leases that are gone are passed over.
func (x *executor) leaseCheckpoint(c *Call, r *rpcpb.LeaseCheckpointRequest) Result {
	if err := fence(c); err != nil {
		return failed(err)
	}
	var changes []lease.Change
	for _, p := range r.GetCheckpoints() {
		if change, ok := x.leases.Checkpoint(lease.ID(p.GetID()), p.GetRemaining_TTL()); ok {
			changes = append(changes, change)
		}
	}
	return Result{Response: &rpcpb.LeaseCheckpointResponse{Header: x.header()}, Leases: changes}
}

// fence refuses what a leader proposed by its own clock if another leader has taken over since:
// the entry was appended in a later term than the one it was proposed in. So a deposed leader
// neither revokes a lease that its successor has renewed nor shortens it.
func fence(c *Call) error {
	if term := c.Request.GetHeader().GetLeaseTerm(); term != 0 && term < c.Term {
		return errs.ErrLeaderChanged
	}
	return nil
}
