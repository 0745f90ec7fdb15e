package apply

import (
	"context"
	"errors"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/apply/check"
	"github.com/coordd/coordd/mvcc"
	"github.com/coordd/coordd/mvcc/query"
)

// maxDepth bounds how deep transactions nest. What a server admits is far below; an entry from
// elsewhere must not exhaust the stack.
const maxDepth = 1000

// plan is a transaction with its path chosen: the branch to run, and the plans of the
// transactions nested in it. Compares are evaluated when the plan is made, all of them against
// the state before the transaction.
type plan struct {
	succeeded bool
	ops       []*rpcpb.RequestOp
	nested    []*plan // parallel to ops, nil for other operations
}

// decide makes the plan of r against the state that src shows.
func decide(src query.Source, r *rpcpb.TxnRequest, depth int) (*plan, error) {
	if depth > maxDepth {
		return nil, errs.ErrTooManyOps
	}
	succeeded, err := compareAll(src, r.GetCompare())
	if err != nil {
		return nil, err
	}
	p := &plan{succeeded: succeeded, ops: r.GetFailure()}
	if succeeded {
		p.ops = r.GetSuccess()
	}
	p.nested = make([]*plan, len(p.ops))
	for i, op := range p.ops {
		if op.GetRequestTxn() == nil {
			continue
		}
		if p.nested[i], err = decide(src, op.GetRequestTxn(), depth+1); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// each calls f for every operation of the plan that is no transaction, in order.
func (p *plan) each(f func(op *rpcpb.RequestOp) error) error {
	for i, op := range p.ops {
		var err error
		if p.nested[i] != nil {
			err = p.nested[i].each(f)
		} else {
			err = f(op)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// txn runs a transaction: decide the path, check that nothing on it can fail, then do it.
func (x *executor) txn(c *Call, r *rpcpb.TxnRequest) Result {
	t := x.kv.Begin()
	p, err := decide(t, r, 0)
	if !errors.Is(err, errs.ErrTooManyOps) {
		mustRead(err)
		err = p.each(func(op *rpcpb.RequestOp) error { return x.mayRun(t, op) })
	}
	if err != nil {
		t.End()
		return failed(err)
	}
	run := runner{
		read:   t,
		wanted: c.Wanted,
		write:  t,
	}
	resp := run.plan(p)
	resp.Header = &rpcpb.ResponseHeader{Revision: t.Rev()}
	return Result{Events: x.finish(t), Response: resp, Err: run.err}
}

// mayRun checks what an operation needs of the state before the transaction, and its form.
func (x *executor) mayRun(t *mvcc.Txn, op *rpcpb.RequestOp) error {
	switch {
	case op.GetRequestRange() != nil:
		if err := check.Range(op.GetRequestRange()); err != nil {
			return err
		}
		return x.readable(op.GetRequestRange().GetRevision())
	case op.GetRequestPut() != nil:
		if err := check.Put(op.GetRequestPut()); err != nil {
			return err
		}
		return x.mayPut(t, op.GetRequestPut())
	case op.GetRequestDeleteRange() != nil:
		return check.DeleteRange(op.GetRequestDeleteRange())
	default:
		return errs.ErrKeyNotFound
	}
}

// runner carries out a plan and builds the response.
type runner struct {
	read   query.Source
	wanted bool      // execute reads
	write  *mvcc.Txn // nil if the plan only reads
	// err is the first error of reading for the response. It does not stop the run: what was
	// checked before must be done to the end on every member, also where a row cannot be read.
	err error
}

// plan runs p. The header of the response is left to the caller.
func (r *runner) plan(p *plan) *rpcpb.TxnResponse {
	resp := &rpcpb.TxnResponse{Succeeded: p.succeeded, Responses: make([]*rpcpb.ResponseOp, len(p.ops))}
	for i, op := range p.ops {
		if p.nested[i] != nil {
			sub := r.plan(p.nested[i])
			sub.Header = &rpcpb.ResponseHeader{} // present and empty, as the API has it
			resp.Responses[i] = &rpcpb.ResponseOp{Response: &rpcpb.ResponseOp_ResponseTxn{ResponseTxn: sub}}
			continue
		}
		var err error
		resp.Responses[i], err = r.op(op)
		if r.err == nil {
			r.err = err
		}
	}
	return resp
}

func (r *runner) op(op *rpcpb.RequestOp) (*rpcpb.ResponseOp, error) {
	switch {
	case op.GetRequestPut() != nil:
		resp := putIn(r.write, op.GetRequestPut(), r.wanted)
		return &rpcpb.ResponseOp{Response: &rpcpb.ResponseOp_ResponsePut{ResponsePut: resp}}, nil
	case op.GetRequestDeleteRange() != nil:
		resp := deleteIn(r.write, op.GetRequestDeleteRange(), r.wanted)
		return &rpcpb.ResponseOp{Response: &rpcpb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: resp}}, nil
	default:
		if !r.wanted {
			return nil, nil
		}
		resp, err := query.Response(r.read, op.GetRequestRange())
		return &rpcpb.ResponseOp{Response: &rpcpb.ResponseOp_ResponseRange{ResponseRange: resp}}, err
	}
}

// ReadTxn answers a transaction that only reads (see check.ReadOnly and check.Txn, which the
// caller has asked) from the published state of kv, all of it at one revision. Any goroutine may
// call it. It stops with ctx.Err() when ctx ends; other errors are those of the API.
func ReadTxn(ctx context.Context, kv *mvcc.Store, r *rpcpb.TxnRequest) (*rpcpb.TxnResponse, error) {
	for {
		rev := kv.Revision()
		resp, err := readTxnAt(ctx, kv, rev, r)
		if errors.Is(err, errs.ErrCompacted) && kv.CompactedRevision() > rev {
			continue // a compaction overtook the read; begin anew at the present revision
		}
		return resp, err
	}
}

func readTxnAt(ctx context.Context, kv *mvcc.Store, rev int64, r *rpcpb.TxnRequest) (*rpcpb.TxnResponse, error) {
	src := query.WithContext(ctx, pinned{kv: kv, rev: rev})
	p, err := decide(src, r, 0)
	if err != nil {
		return nil, err
	}
	err = p.each(func(op *rpcpb.RequestOp) error {
		if op.GetRequestRange() == nil {
			return errs.ErrKeyNotFound
		}
		return readableAt(op.GetRequestRange().GetRevision(), rev, kv.CompactedRevision())
	})
	if err != nil {
		return nil, err
	}
	run := runner{read: src, wanted: true}
	resp := run.plan(p)
	if run.err != nil {
		return nil, run.err
	}
	resp.Header = &rpcpb.ResponseHeader{Revision: rev}
	return resp, nil
}

// pinned is a store that stands still at one revision.
type pinned struct {
	kv  *mvcc.Store
	rev int64
}

// Range implements [query.Source].
func (p pinned) Range(key, end []byte, o mvcc.RangeOptions, visit func(row []byte) error) (mvcc.RangeResult, error) {
	if o.Rev == 0 {
		o.Rev = p.rev
	}
	res, err := p.kv.Range(key, end, o, visit)
	res.Rev = p.rev
	return res, err
}
