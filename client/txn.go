package client

import (
	"context"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// Op is one operation of a transaction. Make it with OpGet, OpPut, OpDelete or OpTxn.
type Op struct{ op *rpcpb.RequestOp }

// OpGet reads, as Get does, inside a transaction: it sees the operations before it.
func OpGet(key string, opts ...GetOption) Op {
	return Op{&rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestRange{RequestRange: newRange(key, opts)}}}
}

// OpPut writes, as Put does, inside a transaction.
func OpPut(key, value string, opts ...PutOption) Op {
	return Op{&rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestPut{RequestPut: newPut(key, value, opts)}}}
}

// OpDelete removes, as Delete does, inside a transaction.
func OpDelete(key string, opts ...DeleteOption) Op {
	return Op{&rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestDeleteRange{RequestDeleteRange: newDelete(key, opts)}}}
}

// OpTxn is a transaction inside a transaction. Its conditions see the state before the outer one.
func OpTxn(conditions []Cmp, then, otherwise []Op) Op {
	req := new(rpcpb.TxnRequest)
	addTxn(req, conditions, then, otherwise)
	return Op{&rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestTxn{RequestTxn: req}}}
}

// Request gives the message of the operation, which must not be changed.
func (o Op) Request() *rpcpb.RequestOp { return o.op }

// Txn is a transaction being put together: if all conditions hold, the operations of Then are done, else
// those of Else, all at one revision. It is for one goroutine and is used once.
type Txn struct {
	c   *Client
	ctx context.Context
	req *rpcpb.TxnRequest
}

// Txn begins a transaction, which Commit sends with ctx.
func (c *Client) Txn(ctx context.Context) *Txn {
	return &Txn{c: c, ctx: ctx, req: new(rpcpb.TxnRequest)}
}

// If adds conditions. Without any, Then is done.
func (t *Txn) If(conditions ...Cmp) *Txn { addTxn(t.req, conditions, nil, nil); return t }

// Then adds operations for when all conditions hold.
func (t *Txn) Then(ops ...Op) *Txn { addTxn(t.req, nil, ops, nil); return t }

// Else adds operations for when a condition does not hold.
func (t *Txn) Else(ops ...Op) *Txn { addTxn(t.req, nil, nil, ops); return t }

// Commit sends the transaction. A transaction that only reads is repeated like a Get; any other runs at most
// once, see ErrUnknownOutcome.
func (t *Txn) Commit() (*rpcpb.TxnResponse, error) {
	resp := new(rpcpb.TxnResponse)
	if err := t.c.invoke(t.ctx, txnCall(t.req), t.req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// addTxn appends to the parts of a request.
func addTxn(req *rpcpb.TxnRequest, conditions []Cmp, then, otherwise []Op) {
	for _, c := range conditions {
		req.Compare = append(req.Compare, c.cmp)
	}
	for _, o := range then {
		req.Success = append(req.Success, o.op)
	}
	for _, o := range otherwise {
		req.Failure = append(req.Failure, o.op)
	}
}

// txnCall gives how a transaction may be called.
func txnCall(req *rpcpb.TxnRequest) call {
	k := call{method: services.KV_Txn_FullMethodName, idempotent: onlyReads(req), local: true}
	for _, branch := range [][]*rpcpb.RequestOp{req.Success, req.Failure} {
		for _, op := range branch {
			k.local = k.local && op.GetRequestRange().GetSerializable()
		}
	}
	return k
}

// onlyReads tells whether neither branch can change anything.
func onlyReads(req *rpcpb.TxnRequest) bool {
	for _, branch := range [][]*rpcpb.RequestOp{req.Success, req.Failure} {
		for _, op := range branch {
			inner := op.GetRequestTxn()
			if op.GetRequestRange() == nil && (inner == nil || !onlyReads(inner)) {
				return false
			}
		}
	}
	return true
}
