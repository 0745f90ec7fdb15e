package apply

import (
	"fmt"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/apply/check"
	"github.com/coordd/coordd/lease"
	"github.com/coordd/coordd/mvcc"
	"github.com/coordd/coordd/mvcc/query"
)

func (x *executor) put(c *Call, r *rpcpb.PutRequest) Result {
	if err := check.Put(r); err != nil {
		return failed(err)
	}
	t := x.kv.Begin()
	if err := x.mayPut(t, r); err != nil {
		t.End()
		return failed(err)
	}
	resp := putIn(t, r, c.Wanted)
	return Result{Events: x.finish(t), Response: resp}
}

// mayPut checks what a put needs of the state: its lease, and the key if something of it is kept.
func (x *executor) mayPut(t *mvcc.Txn, r *rpcpb.PutRequest) error {
	if r.GetLease() != 0 {
		if _, ok := x.leases.Get(lease.ID(r.GetLease())); !ok {
			return errs.ErrLeaseNotFound
		}
	}
	if r.GetIgnoreValue() || r.GetIgnoreLease() {
		if _, ok := t.Get(r.GetKey()); !ok {
			return errs.ErrKeyNotFound
		}
	}
	return nil
}

// putIn puts within t.
func putIn(t *mvcc.Txn, r *rpcpb.PutRequest, wanted bool) *rpcpb.PutResponse {
	resp := new(rpcpb.PutResponse)
	value, leaseID := r.GetValue(), r.GetLease()
	if r.GetIgnoreValue() || r.GetIgnoreLease() || wanted && r.GetPrevKv() {
		prev := previous(t, r.GetKey())
		if r.GetIgnoreValue() {
			value = prev.GetValue()
		}
		if r.GetIgnoreLease() {
			leaseID = prev.GetLease()
		}
		if r.GetPrevKv() {
			resp.PrevKv = prev
		}
	}
	t.Put(r.GetKey(), value, leaseID)
	resp.Header = &rpcpb.ResponseHeader{Revision: t.Rev()}
	return resp
}

// previous decodes the pair a key has within t, nil if it has none.
func previous(t *mvcc.Txn, key []byte) *kvpb.KeyValue {
	row, ok := t.Get(key)
	if !ok {
		return nil
	}
	return decodeRow(row)
}

// decodeRow decodes a row that this package depends on for what it writes. A row that cannot be
// decoded means that the file is damaged: this member has to stop before it comes to differ from
// the others.
func decodeRow(row []byte) *kvpb.KeyValue {
	kv := new(kvpb.KeyValue)
	if err := kv.UnmarshalVT(row); err != nil {
		damaged(fmt.Errorf("row %x: %w", row, err))
	}
	return kv
}

func (x *executor) deleteRange(c *Call, r *rpcpb.DeleteRangeRequest) Result {
	if err := check.DeleteRange(r); err != nil {
		return failed(err)
	}
	t := x.kv.Begin()
	resp := deleteIn(t, r, c.Wanted)
	return Result{Events: x.finish(t), Response: resp}
}

// deleteIn deletes within t.
func deleteIn(t *mvcc.Txn, r *rpcpb.DeleteRangeRequest, wanted bool) *rpcpb.DeleteRangeResponse {
	resp := new(rpcpb.DeleteRangeResponse)
	if wanted && r.GetPrevKv() {
		_, err := t.Range(r.GetKey(), r.GetRangeEnd(), mvcc.RangeOptions{}, func(row []byte) error {
			resp.PrevKvs = append(resp.PrevKvs, decodeRow(row))
			return nil
		})
		mustRead(err)
	}
	resp.Deleted = int64(t.DeleteRange(r.GetKey(), r.GetRangeEnd()))
	resp.Header = &rpcpb.ResponseHeader{Revision: t.Rev()}
	return resp
}

// mustRead ends the machine if reading the present state failed within a write, for the reason given at
// [decodeRow].
func mustRead(err error) {
	if err != nil {
		damaged(err)
	}
}

// rangeInLog is a read that went through the log. Nothing here proposes one; logs of etcd may hold some.
func (x *executor) rangeInLog(c *Call, r *rpcpb.RangeRequest) Result {
	if err := check.Range(r); err != nil {
		return failed(err)
	}
	if err := x.readable(max(r.GetRevision(), 0)); err != nil || !c.Wanted {
		return failed(err)
	}
	t := x.kv.Begin()
	defer t.End()
	resp, err := query.Response(t, r)
	if err != nil {
		return failed(err)
	}
	return Result{Response: resp}
}

// readable says whether a revision can be read as of now; 0 is the current one.
func (x *executor) readable(rev int64) error {
	return readableAt(rev, x.rev, x.compacted)
}

func readableAt(rev, current, compacted int64) error {
	switch {
	case rev == 0:
		return nil
	case rev > current:
		return errs.ErrFutureRev
	case rev < 0 || rev < compacted:
		return errs.ErrCompacted
	}
	return nil
}

func (x *executor) compact(r *rpcpb.CompactionRequest) Result {
	switch rev := r.GetRevision(); {
	case rev <= x.compacted:
		return failed(errs.ErrCompacted)
	case rev > x.rev:
		return failed(errs.ErrFutureRev)
	default:
		if err := x.kv.Compact(rev); err != nil {
			return failed(err)
		}
		x.compacted = rev
	}
	return Result{Response: &rpcpb.CompactionResponse{Header: x.header()}}
}
