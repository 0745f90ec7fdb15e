package sim

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/server"
)

// cell is what a key holds. The zero value is that of a key that does not exist.
type cell struct {
	Value                       string
	Create, Mod, Version, Lease int64
}

func cellOf(kv *kvpb.KeyValue) cell {
	if kv == nil {
		return cell{}
	}
	return cell{string(kv.Value), kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease}
}

type actionKind string

const (
	get    actionKind = "get"
	put    actionKind = "put"
	remove actionKind = "delete"
)

// action is one part of a request. No request has two actions on one key. No two actions put the same value.
type action struct {
	kind  actionKind
	key   string
	value string
	lease int64
}

func (a action) String() string {
	s := fmt.Sprintf("%s %s", a.kind, a.key)
	if a.kind == put {
		s += "=" + a.value
	}
	if a.lease != 0 {
		s += fmt.Sprintf(" lease %d", a.lease)
	}
	return s
}

// compare is a condition: the key holds this value; "" = it does not exist.
type compare struct{ key, value string }

// request is what a client asks for: some actions, or others unless all conditions hold.
type request struct {
	conds        []compare
	then, orElse []action
	serializable bool // reads only
}

func (r request) String() string {
	var b strings.Builder
	if len(r.conds) > 0 {
		fmt.Fprintf(&b, "if %v then %v else %v", r.conds, r.then, r.orElse)
	} else {
		fmt.Fprintf(&b, "%v", r.then)
	}
	if r.serializable {
		b.WriteString(" serializable")
	}
	return b.String()
}

// actions are those that were done.
func (r request) actions(succeeded bool) []action {
	if succeeded {
		return r.then
	}
	return r.orElse
}

// result is what one action gave.
type result struct {
	cell    cell  // of get
	deleted int64 // of delete
}

// op is a request of a client and what came of it.
type op struct {
	client, member int
	node           *server.Node // the member's life
	call, back     time.Duration
	req            request
	known          bool // an answer came
	err            string
	rev            int64 // of the header
	succeeded      bool
	results        []result
}

func (o *op) String() string {
	s := fmt.Sprintf("client %d at m%d, %.4fs to %.4fs: %v", o.client, o.member+1, o.call.Seconds(), o.back.Seconds(), o.req)
	if !o.known {
		return s + " → unknown: " + o.err
	}
	return s + fmt.Sprintf(" → revision %d, succeeded %v, %+v", o.rev, o.succeeded, o.results)
}

// writes reports whether the op made a revision, by its own answer.
func (o *op) writes() bool {
	for i, a := range o.req.actions(o.succeeded) {
		if a.kind == put || a.kind == remove && o.results[i].deleted > 0 {
			return true
		}
	}
	return false
}

// history is all ops.
type history struct {
	mu  sync.Mutex // guards ops
	ops []*op
}

func (h *history) add(o *op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
}

// do runs a request at a node and notes what came of it.
func (c *cluster) do(ctx context.Context, client, member int, n *server.Node, r request) *op {
	o := &op{client: client, member: member, node: n, call: c.now(), req: r}
	c.awake(ctx, member)
	err := o.run(ctx, n)
	c.awake(ctx, member)
	o.back = c.now()
	switch {
	case err != nil:
		o.err = err.Error()
	case ctx.Err() != nil:
		o.err = "the answer came too late" // the node had lost its power
	default:
		o.known = true
	}
	c.history.add(o)
	c.count(func(s *Stats) {
		s.Ops++
		if !o.known {
			s.Unknown++
		}
	})
	return o
}

// run calls the method that fits the request.
func (o *op) run(ctx context.Context, n *server.Node) error {
	if len(o.req.conds) > 0 || len(o.req.then) > 1 {
		return o.txn(ctx, n)
	}
	o.succeeded = true
	a, key := o.req.then[0], []byte(o.req.then[0].key)
	var res result
	switch a.kind {
	case get:
		r, err := n.Range(ctx, &rpcpb.RangeRequest{Key: key, Serializable: o.req.serializable}, func(row []byte) error {
			kv := &kvpb.KeyValue{}
			err := kv.UnmarshalVT(row)
			res.cell = cellOf(kv)
			return err
		})
		if err != nil {
			return err
		}
		o.rev = r.Rev
	case put:
		r, err := n.Put(ctx, &rpcpb.PutRequest{Key: key, Value: []byte(a.value), Lease: a.lease})
		if err != nil {
			return err
		}
		o.rev = r.Header.Revision
	default:
		r, err := n.DeleteRange(ctx, &rpcpb.DeleteRangeRequest{Key: key})
		if err != nil {
			return err
		}
		o.rev, res.deleted = r.Header.Revision, r.Deleted
	}
	o.results = []result{res}
	return nil
}

// txn runs the request as a transaction.
func (o *op) txn(ctx context.Context, n *server.Node) error {
	r := &rpcpb.TxnRequest{Success: o.ops(o.req.then), Failure: o.ops(o.req.orElse)}
	for _, cond := range o.req.conds {
		cmp := &rpcpb.Compare{Key: []byte(cond.key), Result: rpcpb.Compare_EQUAL}
		if cond.value == "" {
			cmp.Target, cmp.TargetUnion = rpcpb.Compare_VERSION, &rpcpb.Compare_Version{Version: 0}
		} else {
			cmp.Target, cmp.TargetUnion = rpcpb.Compare_VALUE, &rpcpb.Compare_Value{Value: []byte(cond.value)}
		}
		r.Compare = append(r.Compare, cmp)
	}
	resp, err := n.Txn(ctx, r)
	if err != nil {
		return err
	}
	o.rev, o.succeeded = resp.Header.Revision, resp.Succeeded
	for _, part := range resp.Responses {
		var res result
		if rr := part.GetResponseRange(); rr != nil && len(rr.Kvs) > 0 {
			res.cell = cellOf(rr.Kvs[0])
		}
		if d := part.GetResponseDeleteRange(); d != nil {
			res.deleted = d.Deleted
		}
		o.results = append(o.results, res)
	}
	if len(o.results) != len(o.req.actions(o.succeeded)) {
		return fmt.Errorf("sim: %d answers", len(o.results))
	}
	return nil
}

func (o *op) ops(actions []action) (out []*rpcpb.RequestOp) {
	for _, a := range actions {
		key := []byte(a.key)
		switch a.kind {
		case get:
			out = append(out, &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestRange{RequestRange: &rpcpb.RangeRequest{Key: key, Serializable: o.req.serializable}}})
		case put:
			out = append(out, &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestPut{RequestPut: &rpcpb.PutRequest{Key: key, Value: []byte(a.value), Lease: a.lease}}})
		default:
			out = append(out, &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestDeleteRange{RequestDeleteRange: &rpcpb.DeleteRangeRequest{Key: key}}})
		}
	}
	return out
}
