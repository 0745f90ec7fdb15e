package server

import (
	"context"
	"errors"
	"time"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/requestpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/apply"
	"github.com/coordd/coordd/apply/check"
	"github.com/coordd/coordd/mvcc/query"
)

// Range reads keys. visit is called for each row, a marshalled kvpb.KeyValue
// that is valid during the call only. The requests of this and the following
// methods must have passed package apply/check.
func (n *Node) Range(ctx context.Context, r *rpcpb.RangeRequest, visit func(row []byte) error) (res query.Result, err error) {
	begin := time.Now()
	defer func() { n.metrics.request.observe("Range", begin, err) }()
	if !r.Serializable {
		if err := n.LinearizableWait(ctx); err != nil {
			return query.Result{}, err
		}
	}
	n.metrics.ranges.Inc()
	reading := time.Now()
	defer func() { n.metrics.rangeTime[int(bit(err == nil))].Observe(time.Since(reading).Seconds()) }()
	for {
		m := n.machine.Load()
		if res, err = query.Range(m.KV, r, visit); !n.replaced(m, err) {
			return res, err
		}
	}
}

// replaced reports whether a read of m failed only because a snapshot took its
// place meanwhile: a closed machine refuses reads before it gives the first row.
func (n *Node) replaced(m *apply.Machine, err error) bool {
	return errors.Is(err, errs.ErrStopped) && n.machine.Load() != m
}

// Put writes one key.
func (n *Node) Put(ctx context.Context, r *rpcpb.PutRequest) (*rpcpb.PutResponse, error) {
	if err := n.admit(ctx, check.PutCost(r), r); err != nil {
		return nil, err
	}
	resp, err := n.propose(ctx, &requestpb.InternalRaftRequest{Put: r})
	if err != nil {
		return nil, err
	}
	return resp.(*rpcpb.PutResponse), nil
}

// DeleteRange deletes keys.
func (n *Node) DeleteRange(ctx context.Context, r *rpcpb.DeleteRangeRequest) (*rpcpb.DeleteRangeResponse, error) {
	resp, err := n.propose(ctx, &requestpb.InternalRaftRequest{DeleteRange: r})
	if err != nil {
		return nil, err
	}
	return resp.(*rpcpb.DeleteRangeResponse), nil
}

// Txn runs a transaction. One that only reads is answered from the published
// view of this member, after a linearizable wait unless all of it is
// serializable; it does not go through the log.
func (n *Node) Txn(ctx context.Context, r *rpcpb.TxnRequest) (resp *rpcpb.TxnResponse, err error) {
	if check.ReadOnly(r) {
		begin := time.Now()
		defer func() { n.metrics.request.observe("ReadonlyTxn", begin, err) }()
		if !check.Serializable(r) {
			if err := n.LinearizableWait(ctx); err != nil {
				return nil, err
			}
		}
		for {
			m := n.machine.Load()
			if resp, err = apply.ReadTxn(ctx, m.KV, r); !n.replaced(m, err) {
				return resp, err
			}
		}
	}
	if err := n.admit(ctx, check.TxnCost(r), r); err != nil {
		return nil, err
	}
	got, err := n.propose(ctx, &requestpb.InternalRaftRequest{Txn: r})
	if err != nil {
		return nil, err
	}
	return got.(*rpcpb.TxnResponse), nil
}

// TxnLater is Txn for a caller who gains nothing by a quick answer: the transaction, which must write, becomes a log entry together
// with the next request of whatever member, so that it costs no flush of the log of its own, and a tick or two later at the latest.
func (n *Node) TxnLater(ctx context.Context, r *rpcpb.TxnRequest) (*rpcpb.TxnResponse, error) {
	if err := n.admit(ctx, check.TxnCost(r), r); err != nil {
		return nil, err
	}
	got, err := n.proposeBy(ctx, &requestpb.InternalRaftRequest{Txn: r}, n.raft.ProposeLater)
	if err != nil {
		return nil, err
	}
	return got.(*rpcpb.TxnResponse), nil
}

// Compact forgets the history before a revision. With Physical set it returns
// when the old rows are gone from this member's file.
func (n *Node) Compact(ctx context.Context, r *rpcpb.CompactionRequest) (*rpcpb.CompactionResponse, error) {
	resp, err := n.propose(ctx, &requestpb.InternalRaftRequest{Compaction: r})
	if r.Physical && (err == nil || errors.Is(err, errs.ErrCompacted)) {
		if err := n.waitCompacted(ctx); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	return resp.(*rpcpb.CompactionResponse), nil
}

// waitCompacted waits until the removal of rows that is under way is done and
// in the file.
func (n *Node) waitCompacted(ctx context.Context) error {
	m := n.machine.Load()
	select {
	case <-m.KV.CompactDone(m.KV.CompactedRevision()):
	case <-ctx.Done():
		return ctx.Err()
	case <-n.ending:
		return errs.ErrStopped
	}
	return n.onApplyLoop(ctx, func() error { return n.machine.Load().Commit(true) })
}
