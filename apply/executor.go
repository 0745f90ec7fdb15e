package apply

import (
	"errors"
	"strings"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/requestpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/lease"
	"github.com/coordd/coordd/member"
	"github.com/coordd/coordd/mvcc"
)

// ErrUnknownRequest is the outcome of an entry that holds no request this version knows.
var ErrUnknownRequest = errors.New("apply: the log entry holds a request this version does not know; run the newest version of the cluster on every member")

// executor is the end of the chain: it does what a call asks for. It belongs to the apply loop.
type executor struct {
	kv      *mvcc.Store
	leases  *lease.Table
	members *member.Set
	alarms  *Alarms
	// rev and compacted are the revisions as of the last call. Those the store tells to readers
	// move with Publish; an outcome must not depend on how entries are batched.
	rev, compacted int64
}

// Apply implements [Applier].
func (x *executor) Apply(c *Call) Result {
	r := c.Request
	switch {
	case r.GetPut() != nil:
		return x.put(c, r.GetPut())
	case r.GetTxn() != nil:
		return x.txn(c, r.GetTxn())
	case r.GetDeleteRange() != nil:
		return x.deleteRange(c, r.GetDeleteRange())
	case r.GetRange() != nil:
		return x.rangeInLog(c, r.GetRange())
	case r.GetCompaction() != nil:
		return x.compact(r.GetCompaction())
	case r.GetLeaseGrant() != nil:
		return x.leaseGrant(r.GetLeaseGrant())
	case r.GetLeaseRevoke() != nil:
		return x.leaseRevoke(c, r.GetLeaseRevoke())
	case r.GetLeaseCheckpoint() != nil:
		return x.leaseCheckpoint(c, r.GetLeaseCheckpoint())
	case r.GetAlarm() != nil:
		return x.alarm(r.GetAlarm())
	default:
		return x.applyRare(r)
	}
}

// applyRare carries out requests about the cluster itself.
func (x *executor) applyRare(r *requestpb.InternalRaftRequest) Result {
	switch {
	case r.GetClusterVersionSet() != nil:
		x.members.SetVersion(strings.Clone(r.GetClusterVersionSet().GetVer()))
		return Result{}
	case r.GetClusterMemberAttrSet() != nil:
		return x.setAttributes(r)
	case r.GetDowngradeInfoSet() != nil:
		info := r.GetDowngradeInfoSet()
		d := member.Downgrade{Enabled: info.GetEnabled()}
		if d.Enabled {
			d.TargetVersion = strings.Clone(info.GetVer())
		}
		x.members.SetDowngrade(d)
		return Result{}
	case r.GetDowngradeVersionTest() != nil:
		return Result{} // only says by its presence which version the log needs
	case isAuth(r):
		return failed(errs.ErrAuthNotEnabled)
	default:
		return failed(ErrUnknownRequest)
	}
}

func (x *executor) setAttributes(r *requestpb.InternalRaftRequest) Result {
	set := r.GetClusterMemberAttrSet()
	var urls []string
	for _, u := range set.GetMemberAttributes().GetClientUrls() {
		urls = append(urls, strings.Clone(u))
	}
	name := strings.Clone(set.GetMemberAttributes().GetName())
	return Result{Err: x.members.SetAttributes(member.ID(set.GetMember_ID()), name, urls)}
}

// isAuth reports whether the request is about users, roles and tokens.
func isAuth(r *requestpb.InternalRaftRequest) bool {
	return r.GetAuthEnable() != nil || r.GetAuthDisable() != nil || r.GetAuthStatus() != nil ||
		r.GetAuthenticate() != nil ||
		r.GetAuthUserAdd() != nil || r.GetAuthUserDelete() != nil || r.GetAuthUserGet() != nil ||
		r.GetAuthUserChangePassword() != nil || r.GetAuthUserGrantRole() != nil ||
		r.GetAuthUserRevokeRole() != nil || r.GetAuthUserList() != nil ||
		r.GetAuthRoleAdd() != nil || r.GetAuthRoleDelete() != nil || r.GetAuthRoleGet() != nil ||
		r.GetAuthRoleList() != nil || r.GetAuthRoleGrantPermission() != nil ||
		r.GetAuthRoleRevokePermission() != nil
}

// header is the header of a response that changed no keys.
func (x *executor) header() *rpcpb.ResponseHeader {
	return &rpcpb.ResponseHeader{Revision: x.rev}
}

// finish ends a write transaction and moves the leases of the changed keys.
func (x *executor) finish(t *mvcc.Txn) []mvcc.Event {
	x.rev = t.Rev()
	events := t.End()
	for i := range events {
		e := &events[i]
		if e.PrevLease == e.Lease {
			continue
		}
		x.leases.Detach(lease.ID(e.PrevLease), e.Key)
		x.leases.Attach(lease.ID(e.Lease), e.Key) // 0 for a tombstone, which attaches nothing
	}
	return events
}
