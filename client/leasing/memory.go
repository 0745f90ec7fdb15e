package leasing

import (
	"bytes"
	"cmp"
	"time"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
)

// single tells whether a read is of one key as it is now, whatever its revisions.
func single(r *rpcpb.RangeRequest) bool {
	return len(r.Key) > 0 && len(r.RangeEnd) == 0 && r.Revision == 0 &&
		r.MinModRevision == 0 && r.MaxModRevision == 0 && r.MinCreateRevision == 0 && r.MaxCreateRevision == 0
}

// memory is what is known while KV.mu is held for reading.
type memory struct {
	kv  *KV
	now time.Time // read under the lock: at this instant the pairs are what the server has
}

// fromMemory answers a read if it can, else nil.
func (kv *KV) fromMemory(r *rpcpb.RangeRequest) *rpcpb.RangeResponse {
	kv.mu.RLock()
	defer kv.mu.RUnlock()
	return memory{kv, time.Now()}.read(r)
}

// txnFromMemory answers a transaction if it can, else nil.
func (kv *KV) txnFromMemory(t *rpcpb.TxnRequest) *rpcpb.TxnResponse {
	kv.mu.RLock()
	defer kv.mu.RUnlock()
	return memory{kv, time.Now()}.txn(t)
}

// pair gives a key, nil if it does not exist; known tells whether it is known.
func (m memory) pair(key []byte) (pair *kvpb.KeyValue, known bool) {
	h := m.kv.held[string(key)]
	if h == nil || h.writing > 0 || !h.session.trusted(m.now) {
		return nil, false
	}
	return h.pair, true
}

// read answers a read, nil if it cannot.
func (m memory) read(r *rpcpb.RangeRequest) *rpcpb.RangeResponse {
	if !single(r) {
		return nil
	}
	pair, known := m.pair(r.Key)
	if !known {
		return nil
	}
	resp := &rpcpb.RangeResponse{Header: m.header()}
	if pair == nil {
		return resp
	}
	resp.Count = 1
	if r.CountOnly {
		return resp
	}
	own := &kvpb.KeyValue{ // the caller may change it; copied by hand, since proto.Clone takes longer than all the rest
		Key: bytes.Clone(pair.Key), CreateRevision: pair.CreateRevision, ModRevision: pair.ModRevision, Version: pair.Version, Lease: pair.Lease,
	}
	if !r.KeysOnly {
		own.Value = bytes.Clone(pair.Value)
	}
	resp.Kvs = []*kvpb.KeyValue{own}
	return resp
}

// header gives the header of an answer.
func (m memory) header() *rpcpb.ResponseHeader {
	h := m.kv.header
	return &rpcpb.ResponseHeader{ClusterId: h.ClusterId, MemberId: h.MemberId, Revision: h.Revision, RaftTerm: h.RaftTerm}
}

// txn answers a transaction, nil if it cannot.
func (m memory) txn(t *rpcpb.TxnRequest) *rpcpb.TxnResponse {
	resp := &rpcpb.TxnResponse{Header: m.header(), Succeeded: true}
	for _, c := range t.Compare {
		pair, known := m.pair(c.Key)
		if !known || len(c.RangeEnd) > 0 {
			return nil
		}
		resp.Succeeded = resp.Succeeded && holds(c, pair)
	}
	branch := t.Failure
	if resp.Succeeded {
		branch = t.Success
	}
	for _, op := range branch {
		answer := m.op(op)
		if answer == nil {
			return nil
		}
		resp.Responses = append(resp.Responses, answer)
	}
	return resp
}

// op answers an operation, nil if it cannot.
func (m memory) op(op *rpcpb.RequestOp) *rpcpb.ResponseOp {
	switch r := op.GetRequest().(type) {
	case *rpcpb.RequestOp_RequestRange:
		if resp := m.read(r.RequestRange); resp != nil {
			return &rpcpb.ResponseOp{Response: &rpcpb.ResponseOp_ResponseRange{ResponseRange: resp}}
		}
	case *rpcpb.RequestOp_RequestTxn:
		if resp := m.txn(r.RequestTxn); resp != nil {
			return &rpcpb.ResponseOp{Response: &rpcpb.ResponseOp_ResponseTxn{ResponseTxn: resp}}
		}
	}
	return nil
}

// holds tells whether a condition holds for a pair, nil if the key does not exist.
func holds(c *rpcpb.Compare, pair *kvpb.KeyValue) bool {
	var order int
	switch c.Target {
	case rpcpb.Compare_VALUE:
		if pair == nil {
			return false
		}
		order = bytes.Compare(pair.Value, c.GetValue())
	case rpcpb.Compare_VERSION:
		order = cmp.Compare(pair.GetVersion(), c.GetVersion())
	case rpcpb.Compare_CREATE:
		order = cmp.Compare(pair.GetCreateRevision(), c.GetCreateRevision())
	case rpcpb.Compare_MOD:
		order = cmp.Compare(pair.GetModRevision(), c.GetModRevision())
	case rpcpb.Compare_LEASE:
		order = cmp.Compare(pair.GetLease(), c.GetLease())
	}
	switch c.Result {
	case rpcpb.Compare_EQUAL:
		return order == 0
	case rpcpb.Compare_NOT_EQUAL:
		return order != 0
	case rpcpb.Compare_GREATER:
		return order > 0
	default:
		return order < 0
	}
}
