package lock

import (
	"context"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/mvcc/query"
)

// Store is the member that the queues live on. Package server's Node is one. Of the headers of answers only the revision
// is used. Any goroutine may call it.
type Store interface {
	// Range reads; visit gets each row, an encoded kvpb.KeyValue that is valid during the call only.
	Range(ctx context.Context, r *rpcpb.RangeRequest, visit func(row []byte) error) (query.Result, error)
	// Txn runs a transaction. When it returns, a serializable Range sees what it did.
	Txn(ctx context.Context, r *rpcpb.TxnRequest) (*rpcpb.TxnResponse, error)
	// TxnLater is Txn for a transaction that writes and is in no hurry: it is put into the log together with the next that is, or
	// some tenths of a second later.
	TxnLater(ctx context.Context, r *rpcpb.TxnRequest) (*rpcpb.TxnResponse, error)
	LeaseGrant(ctx context.Context, r *rpcpb.LeaseGrantRequest) (*rpcpb.LeaseGrantResponse, error)
	LeaseRevoke(ctx context.Context, r *rpcpb.LeaseRevokeRequest) (*rpcpb.LeaseRevokeResponse, error)
	// LeaseRenew gives a lease its whole time again and returns it, in seconds.
	LeaseRenew(ctx context.Context, id int64) (ttl int64, err error)
	// LeaseTimeToLive tells what is left of a lease, TTL -1 when there is none.
	LeaseTimeToLive(ctx context.Context, r *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error)
	// Revision is the store's, as readers see it.
	Revision() int64
}

// prefixOf is the first key, and endOf the key behind the last, of the queue of a name.
func prefixOf(name []byte) []byte { return append(name[:len(name):len(name)], '/') }
func endOf(name []byte) []byte    { return append(name[:len(name):len(name)], '/'+1) }

// read reads the queue of a name, or with a limit some of it, in the order of keys. It returns the revision it was read at.
func (s *Service) read(ctx context.Context, r *rpcpb.RangeRequest) (kvs []*kvpb.KeyValue, rev int64, err error) {
	res, err := s.store.Range(ctx, r, func(row []byte) error {
		kv := new(kvpb.KeyValue)
		kvs = append(kvs, kv)
		return kv.UnmarshalVT(row)
	})
	return kvs, res.Rev, err
}

// get reads one key as this member has it; nil if there is none.
func (s *Service) get(ctx context.Context, key []byte, serializable bool) (*kvpb.KeyValue, int64, error) {
	kvs, rev, err := s.read(ctx, &rpcpb.RangeRequest{Key: key, Serializable: serializable})
	if err != nil || len(kvs) == 0 {
		return nil, rev, err
	}
	return kvs[0], rev, nil
}

func ifCreate(key []byte, rev int64) *rpcpb.Compare {
	return &rpcpb.Compare{
		Key: key, Target: rpcpb.Compare_CREATE, Result: rpcpb.Compare_EQUAL,
		TargetUnion: &rpcpb.Compare_CreateRevision{CreateRevision: rev},
	}
}

func ifMod(key []byte, rev int64) *rpcpb.Compare {
	return &rpcpb.Compare{
		Key: key, Target: rpcpb.Compare_MOD, Result: rpcpb.Compare_EQUAL,
		TargetUnion: &rpcpb.Compare_ModRevision{ModRevision: rev},
	}
}

func ifOtherValue(key, value []byte) *rpcpb.Compare {
	return &rpcpb.Compare{
		Key: key, Target: rpcpb.Compare_VALUE, Result: rpcpb.Compare_NOT_EQUAL,
		TargetUnion: &rpcpb.Compare_Value{Value: value},
	}
}

func ifLease(key []byte, id int64) *rpcpb.Compare {
	return &rpcpb.Compare{
		Key: key, Target: rpcpb.Compare_LEASE, Result: rpcpb.Compare_EQUAL,
		TargetUnion: &rpcpb.Compare_Lease{Lease: id},
	}
}

func opPut(r *rpcpb.PutRequest) *rpcpb.RequestOp {
	return &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestPut{RequestPut: r}}
}

func opRange(r *rpcpb.RangeRequest) *rpcpb.RequestOp {
	return &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestRange{RequestRange: r}}
}

func opTxn(r *rpcpb.TxnRequest) *rpcpb.RequestOp {
	return &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestTxn{RequestTxn: r}}
}

func opDelete(key []byte) *rpcpb.RequestOp {
	return &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &rpcpb.DeleteRangeRequest{Key: key, PrevKv: true},
	}}
}
