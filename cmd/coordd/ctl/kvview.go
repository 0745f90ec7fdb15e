package ctl

import (
	"context"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

func rangeView(r *rpcpb.RangeResponse, valueOnly bool) view {
	return view{
		simple: func(w *lines) {
			for _, kv := range r.Kvs {
				w.kv(kv, valueOnly)
			}
		},
		fields: func(w *lines) {
			w.header(r.Header)
			for _, kv := range r.Kvs {
				w.kvFields("", kv)
			}
			w.field("More", r.More)
			w.field("Count", r.Count)
		},
		json:    r,
		message: r,
	}
}

func putView(r *rpcpb.PutResponse) view {
	return view{
		simple: func(w *lines) {
			w.line("OK")
			if r.PrevKv != nil {
				w.kv(r.PrevKv, false)
			}
		},
		fields: func(w *lines) {
			w.header(r.Header)
			if r.PrevKv != nil {
				w.kvFields("Prev", r.PrevKv)
			}
		},
		json:    r,
		message: r,
	}
}

func deleteView(r *rpcpb.DeleteRangeResponse) view {
	return view{
		simple: func(w *lines) {
			w.line("%d", r.Deleted)
			for _, kv := range r.PrevKvs {
				w.kv(kv, false)
			}
		},
		fields: func(w *lines) {
			w.header(r.Header)
			w.field("Deleted", r.Deleted)
			for _, kv := range r.PrevKvs {
				w.kvFields("Prev", kv)
			}
		},
		json:    r,
		message: r,
	}
}

func txnView(r *rpcpb.TxnResponse) view {
	return view{
		simple: func(w *lines) {
			if r.Succeeded {
				w.line("SUCCESS")
			} else {
				w.line("FAILURE")
			}
			for _, op := range r.Responses {
				w.line("")
				opView(op).simple(w)
			}
		},
		fields: func(w *lines) {
			w.header(r.Header)
			w.field("Succeeded", r.Succeeded)
			for _, op := range r.Responses {
				opView(op).fields(w)
			}
		},
		json:    txnJSON(r),
		message: r,
	}
}

// opView gives the view of one operation of a transaction.
func opView(op *rpcpb.ResponseOp) view {
	switch {
	case op.GetResponseRange() != nil:
		return rangeView(op.GetResponseRange(), false)
	case op.GetResponsePut() != nil:
		return putView(op.GetResponsePut())
	case op.GetResponseDeleteRange() != nil:
		return deleteView(op.GetResponseDeleteRange())
	case op.GetResponseTxn() != nil:
		return txnView(op.GetResponseTxn())
	}
	return view{simple: func(*lines) {}, fields: func(*lines) {}}
}

// txnJSON gives a transaction in the form etcdctl encodes it: oneof fields by their names in the protocol.
func txnJSON(r *rpcpb.TxnResponse) any {
	type response struct {
		Response map[string]any
	}
	out := struct {
		Header    *rpcpb.ResponseHeader `json:"header,omitempty"`
		Succeeded bool                  `json:"succeeded,omitempty"`
		Responses []response            `json:"responses,omitempty"`
	}{r.Header, r.Succeeded, nil}
	for _, op := range r.Responses {
		one := map[string]any{}
		switch {
		case op.GetResponseRange() != nil:
			one["response_range"] = op.GetResponseRange()
		case op.GetResponsePut() != nil:
			one["response_put"] = op.GetResponsePut()
		case op.GetResponseDeleteRange() != nil:
			one["response_delete_range"] = op.GetResponseDeleteRange()
		case op.GetResponseTxn() != nil:
			one["response_txn"] = txnJSON(op.GetResponseTxn())
		}
		out.Responses = append(out.Responses, response{one})
	}
	return out
}

// scan prints pairs as they come. Only the simple format can be printed piece by piece; the others are collected.
func scan(ctx context.Context, c *client.Client, p *printer, key string, opts []client.GetOption, valueOnly bool) error {
	s, err := c.Scan(ctx, key, opts...)
	if err != nil {
		return err
	}
	all := &rpcpb.RangeResponse{Header: s.Header(), Count: s.Count()}
	for kv, err := range s.All() {
		if err != nil {
			return err
		}
		if p.format != "simple" {
			all.Kvs = append(all.Kvs, kv)
			continue
		}
		if err := p.show(view{simple: func(w *lines) { w.kv(kv, valueOnly) }}); err != nil {
			return err
		}
	}
	if p.format == "simple" {
		return nil
	}
	all.More = int64(len(all.Kvs)) < all.Count
	return p.show(rangeView(all, false))
}
