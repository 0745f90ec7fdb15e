package leasing

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

// askAtOnce is how many keys are asked for in one transaction, below the bound of operations that servers have.
const askAtOnce = 100

// attempt is a write that is tried.
type attempt struct {
	own   []*hold // of single keys written, which count it as one of their writes
	free  []string
	spans []span // ranges written
}

// write does operations that write to spans, and nothing else, as soon as no other party holds any of them. The answer has the
// responses of these operations.
func (kv *KV) write(ctx context.Context, spans []span, ops ...client.Op) (*rpcpb.TxnResponse, error) {
	if kv.ctx.Err() != nil {
		return nil, ErrClosed
	}
	for {
		a := kv.begin(spans)
		r, err := kv.c.Txn(ctx).If(kv.conditions(a)...).Then(slices.Concat(ops, reread(a))...).Else(kv.asks(a)...).Commit()
		found := kv.done(a, len(ops), r, err)
		if err != nil {
			return nil, err
		}
		if r.Succeeded {
			r.Responses = r.Responses[:len(ops)]
			return r, nil
		}
		if err := kv.wait(ctx, found, r.Header.Revision); err != nil {
			return nil, err
		}
	}
}

// begin marks the holds that a write concerns. A single key in a range that is written too needs no care of its own: nobody may hold it.
func (kv *KV) begin(spans []span) *attempt {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	a, seen := new(attempt), map[string]bool{}
	for _, s := range spans {
		if s.end != "" {
			a.spans = append(a.spans, s)
		}
	}
	for _, s := range spans {
		covered := slices.ContainsFunc(a.spans, func(r span) bool { return r.has(s.from) })
		if s.end != "" || seen[s.from] || covered {
			continue
		}
		seen[s.from] = true
		if h := kv.held[s.from]; h != nil {
			h.writing++
			a.own = append(a.own, h)
		} else {
			a.free = append(a.free, s.from)
		}
	}
	return a
}

// conditions are those of every party; see the package comment.
func (kv *KV) conditions(a *attempt) []client.Cmp {
	var list []client.Cmp
	for _, h := range a.own {
		list = append(list, client.CreateRevision(kv.leasing(h.key)).Equal(h.rev))
	}
	for _, key := range a.free {
		list = append(list, client.KeyMissing(kv.leasing(key)))
	}
	for _, s := range a.spans {
		from, keys := kv.leasingSpan(s)
		list = append(list, client.CreateRevision(from, keys).Equal(0))
	}
	return list
}

// reread reads what has become of our own keys.
func reread(a *attempt) []client.Op {
	ops := make([]client.Op, 0, len(a.own))
	for _, h := range a.own {
		ops = append(ops, client.OpGet(h.key))
	}
	return ops
}

// asks are the operations if a condition does not hold. They read the leasing keys that are in the way, and ask for those of single
// keys right away.
func (kv *KV) asks(a *attempt) []client.Op {
	var ops []client.Op
	for _, h := range a.own {
		ops = append(ops, client.OpGet(kv.leasing(h.key)))
	}
	for _, key := range a.free {
		ops = append(ops, ask(kv.leasing(key), client.Value(kv.leasing(key)).NotEqual(revoked)))
	}
	for _, s := range a.spans {
		from, keys := kv.leasingSpan(s)
		ops = append(ops, client.OpGet(from, keys))
	}
	return ops
}

// ask asks for a leasing key on conditions, and reads it.
func ask(leasing string, conditions ...client.Cmp) client.Op {
	read := client.OpGet(leasing)
	return client.OpTxn(conditions, []client.Op{client.OpPut(leasing, revoked, client.WithIgnoreLease()), read}, []client.Op{read})
}

// done takes the marks of begin back, and takes in what has become of our own keys. It gives the leasing keys that are in the way.
func (kv *KV) done(a *attempt, n int, r *rpcpb.TxnResponse, err error) (found map[string]*kvpb.KeyValue) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	found = map[string]*kvpb.KeyValue{}
	if err == nil && !r.Succeeded {
		collect(r.Responses, found)
	}
	kv.sawLocked(r.GetHeader())
	for i, h := range a.own {
		h.writing--
		l := kv.leasing(h.key)
		switch {
		case errors.Is(err, client.ErrUnknownOutcome):
			kv.dropLocked(h)
		case err != nil: // it was not done and never will be
		case r.Succeeded:
			kv.wroteLocked(h, r.Header.Revision, r.Responses[n+i].GetResponseRange())
		case found[l].GetCreateRevision() != h.rev:
			kv.dropLocked(h) // lost
		default:
			delete(found, l) // another key was in the way
		}
	}
	return found
}

// wroteLocked takes in what a key of ours was at a revision, unless more is known.
func (kv *KV) wroteLocked(h *hold, rev int64, r *rpcpb.RangeResponse) {
	if rev > h.at {
		h.pair, h.at = nil, rev
		if kvs := r.GetKvs(); len(kvs) > 0 {
			h.pair = kvs[0]
		}
	}
	if r.GetKvs() != nil && r.Kvs[0].Lease != 0 {
		kv.dropLocked(h) // it may go without our doing
	}
}

// collect finds the pairs in responses.
func collect(list []*rpcpb.ResponseOp, found map[string]*kvpb.KeyValue) {
	for _, r := range list {
		for _, pair := range r.GetResponseRange().GetKvs() {
			found[string(pair.Key)] = pair
		}
		collect(r.GetResponseTxn().GetResponses(), found)
	}
}

// wait waits until leasing keys, as they were found at a revision, have been given up.
func (kv *KV) wait(ctx context.Context, found map[string]*kvpb.KeyValue, rev int64) error {
	if len(found) == 0 {
		return nil // only a hold of ours was in the way, and it is gone
	}
	first, last := "", ""
	var asks []client.Op
	for l, pair := range found {
		if first == "" || l < first {
			first = l
		}
		last = max(last, l)
		if string(pair.Value) != revoked {
			asks = append(asks, ask(l, client.CreateRevision(l).Equal(pair.CreateRevision)))
		}
	}
	for some := range slices.Chunk(asks, askAtOnce) {
		_, err := kv.c.Txn(ctx).Then(some...).Commit()
		if errors.Is(err, client.ErrUnknownOutcome) && ctx.Err() == nil {
			return nil // the next attempt of the write finds out whether they were asked for
		}
		if err != nil {
			return kv.notGivenUp(ctx, first, err)
		}
	}
	// All of them lie in one range, so one watch will do.
	w := kv.c.Watch(ctx, first, client.WithRange(last+"\x00"), client.WithRev(rev+1), client.WithoutPuts())
	defer w.Close()
	for r, err := range w.All() {
		if errors.Is(err, errs.ErrCompacted) {
			return nil // the next attempt finds out
		}
		if err != nil {
			return kv.notGivenUp(ctx, first, err)
		}
		for _, e := range r.Events {
			delete(found, string(e.Kv.Key))
		}
		if len(found) == 0 {
			return nil
		}
	}
	return nil // not reached: the last pair has an error
}

// notGivenUp is the error of a write that ends while it waits for a leasing key.
func (kv *KV) notGivenUp(ctx context.Context, leasing string, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %q: %w", ErrHeld, leasing[len(kv.prefix):], context.Cause(ctx))
}
