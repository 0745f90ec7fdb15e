package leasing

import (
	"context"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

// Txn is a transaction being put together, as a [client.Txn] is. It is for one goroutine and is used once.
type Txn struct {
	kv              *KV
	ctx             context.Context
	conditions      []client.Cmp
	then, otherwise []client.Op
}

// Txn begins a transaction, which Commit does with ctx.
func (kv *KV) Txn(ctx context.Context) *Txn { return &Txn{kv: kv, ctx: ctx} }

// If adds conditions. Without any, Then is done.
func (t *Txn) If(conditions ...client.Cmp) *Txn {
	t.conditions = append(t.conditions, conditions...)
	return t
}

// Then adds operations for when all conditions hold.
func (t *Txn) Then(ops ...client.Op) *Txn { t.then = append(t.then, ops...); return t }

// Else adds operations for when a condition does not hold.
func (t *Txn) Else(ops ...client.Op) *Txn { t.otherwise = append(t.otherwise, ops...); return t }

// Commit does the transaction, as [client.Txn.Commit] does. The keys that both branches together write to are asked for, whichever branch
// is done then; and their number is added to that of the operations in the larger branch before it is held against the server's bound, so
// that with the usual 128 a transaction can write 63 keys. ErrHeld: a holder did not give a key up before the context ended.
// ErrReserved: a branch writes to leasing keys.
func (t *Txn) Commit() (*rpcpb.TxnResponse, error) {
	kv := t.kv
	if kv.ctx.Err() != nil {
		return nil, ErrClosed
	}
	whole := client.OpTxn(t.conditions, t.then, t.otherwise)
	req := whole.Request().GetRequestTxn()
	spans, err := kv.written(req)
	if err != nil {
		return nil, err
	}
	if r := kv.txnFromMemory(req); r != nil {
		return r, nil
	}
	if len(spans) == 0 {
		r, err := kv.c.Txn(t.ctx).If(t.conditions...).Then(t.then...).Else(t.otherwise...).Commit()
		kv.saw(r.GetHeader())
		return r, err
	}
	r, err := kv.write(t.ctx, spans, whole)
	if err != nil {
		return nil, err
	}
	inner := r.Responses[0].GetResponseTxn()
	inner.Header = r.Header
	return inner, nil
}
