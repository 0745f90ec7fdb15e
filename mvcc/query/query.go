package query

import (
	"context"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/mvcc"
)

// Source is what can be read: an mvcc.Store, or an mvcc.Txn, which sees its own changes.
type Source interface {
	Range(key, end []byte, o mvcc.RangeOptions, visit func(row []byte) error) (mvcc.RangeResult, error)
}

// Result is what a Range response says besides its rows.
type Result struct {
	// Rev is the revision of the store at the read, not the one that was asked for.
	Rev int64
	// Count is the number of keys in the interval, regardless of limit and filters.
	Count int64
	// More: the limit has cut rows off.
	More bool
}

// Range answers r from src, passing each row of the answer to visit in order. r has been checked
// for form. An error of visit ends the read and is returned as it is; other errors are
// errs.ErrCompacted and errs.ErrFutureRev. Rows are valid during the call of visit only.
func Range(src Source, r *rpcpb.RangeRequest, visit func(row []byte) error) (Result, error) {
	byTarget := r.GetSortTarget() != rpcpb.RangeRequest_KEY
	switch {
	case r.GetCountOnly():
		return plain(src, r, visit)
	case byTarget || r.GetSortOrder() == rpcpb.RangeRequest_DESCEND:
		return sorted(src, r, visit)
	case hasFilter(r):
		return filtered(src, r, visit)
	default:
		return plain(src, r, visit)
	}
}

// Response answers r from src as a message with all rows decoded. Of the header only the revision
// is set. The message shares no memory with the store.
func Response(src Source, r *rpcpb.RangeRequest) (*rpcpb.RangeResponse, error) {
	resp := new(rpcpb.RangeResponse)
	res, err := Range(src, r, func(row []byte) error {
		kv := new(kvpb.KeyValue)
		if err := kv.UnmarshalVT(row); err != nil {
			return err
		}
		resp.Kvs = append(resp.Kvs, kv)
		return nil
	})
	if err != nil {
		return nil, err
	}
	resp.Header = &rpcpb.ResponseHeader{Revision: res.Rev}
	resp.Count, resp.More = res.Count, res.More
	return resp, nil
}

// options translates what the store itself understands.
func options(r *rpcpb.RangeRequest) mvcc.RangeOptions {
	return mvcc.RangeOptions{Rev: max(r.GetRevision(), 0)}
}

// plain streams rows in the order of the store.
func plain(src Source, r *rpcpb.RangeRequest, visit func(row []byte) error) (Result, error) {
	o := options(r)
	if r.GetCountOnly() {
		o.CountOnly = true
		res, err := src.Range(r.GetKey(), r.GetRangeEnd(), o, visit)
		return Result{Rev: res.Rev, Count: res.Count}, err
	}
	o.Limit = max(r.GetLimit(), 0)
	o.KeysOnly = r.GetKeysOnly()
	res, err := src.Range(r.GetKey(), r.GetRangeEnd(), o, stripping(r, visit))
	return Result{Rev: res.Rev, Count: res.Count, More: res.More}, err
}

// filtered streams the rows that pass the filters, in the order of the store.
func filtered(src Source, r *rpcpb.RangeRequest, visit func(row []byte) error) (Result, error) {
	visit = stripping(r, visit)
	limit, passed := r.GetLimit(), int64(0)
	var kv kvpb.KeyValue
	res, err := src.Range(r.GetKey(), r.GetRangeEnd(), options(r), func(row []byte) error {
		if err := decode(&kv, row); err != nil {
			return err
		}
		if !passes(&kv, r) {
			return nil
		}
		passed++
		if limit > 0 && passed > limit {
			return nil
		}
		return visit(row)
	})
	return Result{Rev: res.Rev, Count: res.Count, More: limit > 0 && passed > limit}, err
}

// stripping makes a visitor that takes the values off the rows, if r is keys_only.
func stripping(r *rpcpb.RangeRequest, visit func(row []byte) error) func(row []byte) error {
	if !r.GetKeysOnly() {
		return visit
	}
	var buf []byte
	return func(row []byte) error {
		buf = mvcc.StripValue(row, buf[:0])
		return visit(buf)
	}
}

func hasFilter(r *rpcpb.RangeRequest) bool {
	return r.GetMinModRevision() != 0 || r.GetMaxModRevision() != 0 ||
		r.GetMinCreateRevision() != 0 || r.GetMaxCreateRevision() != 0
}

// passes reports whether a pair is within all bounds that are set; bounds are inclusive.
func passes(kv *kvpb.KeyValue, r *rpcpb.RangeRequest) bool {
	return within(kv.ModRevision, r.GetMinModRevision(), r.GetMaxModRevision()) &&
		within(kv.CreateRevision, r.GetMinCreateRevision(), r.GetMaxCreateRevision())
}

func within(rev, low, high int64) bool {
	return (low == 0 || rev >= low) && (high == 0 || rev <= high)
}

// decode reads a row into kv, whose key and value then point into the row.
func decode(kv *kvpb.KeyValue, row []byte) error {
	kv.Key, kv.Value = nil, nil
	kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease = 0, 0, 0, 0
	return kv.UnmarshalVTUnsafe(row)
}

// WithContext returns a Source that reads from src until ctx ends, and then fails with
// ctx.Err(). It bounds the work for a caller who has gone, also where rows are read that never
// reach the caller's visitor.
func WithContext(ctx context.Context, src Source) Source {
	return contextSource{ctx: ctx, src: src}
}

type contextSource struct {
	ctx context.Context
	src Source
}

// checkEvery is how many rows are read between two looks at the context.
const checkEvery = 256

// Range implements [Source].
func (c contextSource) Range(key, end []byte, o mvcc.RangeOptions, visit func(row []byte) error) (mvcc.RangeResult, error) {
	if err := c.ctx.Err(); err != nil {
		return mvcc.RangeResult{}, err
	}
	n := 0
	return c.src.Range(key, end, o, func(row []byte) error {
		if n++; n%checkEvery == 0 {
			if err := c.ctx.Err(); err != nil {
				return err
			}
		}
		return visit(row)
	})
}
