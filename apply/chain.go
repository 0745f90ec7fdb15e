package apply

import (
	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/apply/check"
)

// assemble builds the chain that belongs to the active alarms, outermost link first:
//
//	corrupt → capped → executor
//
// A link that checks permissions belongs between capped and executor: alarms win over
// permissions, and nothing is looked at before the caller may see it.
func assemble(x *executor, alarms *Alarms) Applier {
	var chain Applier = x
	if alarms.Active(rpcpb.AlarmType_NOSPACE) {
		chain = capped{next: chain}
	}
	if alarms.Active(rpcpb.AlarmType_CORRUPT) {
		chain = corrupt{next: chain}
	}
	return chain
}

// corrupt stands in the chain while a CORRUPT alarm is active: members disagree about the data,
// so it is neither changed nor read through the log.
type corrupt struct{ next Applier }

// Apply implements [Applier].
func (a corrupt) Apply(c *Call) Result {
	r := c.Request
	switch {
	case r.GetPut() != nil, r.GetDeleteRange() != nil, r.GetRange() != nil, r.GetTxn() != nil,
		r.GetCompaction() != nil, r.GetLeaseGrant() != nil, r.GetLeaseRevoke() != nil:
		return failed(errs.ErrCorrupt)
	}
	return a.next.Apply(c)
}

// capped stands in the chain while a NOSPACE alarm is active: what takes space is refused, while
// all that frees some works.
type capped struct{ next Applier }

// Apply implements [Applier].
func (a capped) Apply(c *Call) Result {
	r := c.Request
	switch {
	case r.GetPut() != nil, r.GetLeaseGrant() != nil,
		r.GetTxn() != nil && check.TxnCost(r.GetTxn()) > 0:
		return failed(errs.ErrNoSpace)
	}
	return a.next.Apply(c)
}
