package client

import (
	"bytes"

	"github.com/coordd/coordd/api/rpcpb"
)

// GetOption shapes a Get, a Scan or an OpGet.
type GetOption interface{ applyGet(*rpcpb.RangeRequest) }

// PutOption shapes a Put or an OpPut.
type PutOption interface{ applyPut(*rpcpb.PutRequest) }

// DeleteOption shapes a Delete or an OpDelete.
type DeleteOption interface {
	applyDelete(*rpcpb.DeleteRangeRequest)
}

// CompareOption shapes a condition of a transaction.
type CompareOption interface{ applyCompare(*rpcpb.Compare) }

// CompactOption shapes a Compact.
type CompactOption interface {
	applyCompact(*rpcpb.CompactionRequest)
}

// KeysOption makes an operation mean several keys instead of one. It fits Get, Delete, Watch and conditions. Of
// several the last counts.
type KeysOption struct {
	span func(key []byte) (from, end []byte)
}

// WithPrefix means all keys that begin with the key given; with the empty key, all keys.
func WithPrefix() KeysOption {
	return KeysOption{func(key []byte) (from, end []byte) {
		if len(key) == 0 {
			return []byte{0}, []byte{0}
		}
		return key, PrefixEnd(key)
	}}
}

// WithFromKey means the key given and all after it; with the empty key, all keys.
func WithFromKey() KeysOption {
	return KeysOption{func(key []byte) (from, end []byte) {
		if len(key) == 0 {
			key = []byte{0}
		}
		return key, []byte{0}
	}}
}

// WithRange means the keys from the one given up to but not including end.
func WithRange(end string) KeysOption {
	return KeysOption{func(key []byte) ([]byte, []byte) { return key, []byte(end) }}
}

// PrefixEnd gives the first key after all that begin with prefix, or "\x00", which the API takes for
// no end at all, if there is none.
func PrefixEnd(prefix []byte) []byte {
	n := len(prefix)
	for n > 0 && prefix[n-1] == 0xff { // bytes.TrimRight works on characters, and takes 0xfe for one that fits too
		n--
	}
	if n == 0 {
		return []byte{0}
	}
	end := bytes.Clone(prefix[:n])
	end[n-1]++
	return end
}

func (o KeysOption) applyGet(r *rpcpb.RangeRequest)          { r.Key, r.RangeEnd = o.span(r.Key) }
func (o KeysOption) applyDelete(r *rpcpb.DeleteRangeRequest) { r.Key, r.RangeEnd = o.span(r.Key) }
func (o KeysOption) applyCompare(r *rpcpb.Compare)           { r.Key, r.RangeEnd = o.span(r.Key) }
func (o KeysOption) applyWatch(r *watchConfig)               { r.key, r.end = o.span(r.key) }

// PrevKVOption asks for the pairs as they were before. It fits Put, Delete and Watch.
type PrevKVOption struct{}

// WithPrevKV asks for the pairs as they were before the change.
func WithPrevKV() PrevKVOption { return PrevKVOption{} }

func (PrevKVOption) applyPut(r *rpcpb.PutRequest)            { r.PrevKv = true }
func (PrevKVOption) applyDelete(r *rpcpb.DeleteRangeRequest) { r.PrevKv = true }
func (PrevKVOption) applyWatch(r *watchConfig)               { r.prevKV = true }

// RevOption names a revision. It fits Get and Watch.
type RevOption struct{ rev int64 }

// WithRev has Get read at a revision, and Watch begin with the changes of that revision. 0 is now.
func WithRev(rev int64) RevOption { return RevOption{rev} }

func (o RevOption) applyGet(r *rpcpb.RangeRequest) { r.Revision = o.rev }
func (o RevOption) applyWatch(r *watchConfig)      { r.rev = o.rev }

// getOption is an option of Get alone.
type getOption func(*rpcpb.RangeRequest)

func (f getOption) applyGet(r *rpcpb.RangeRequest) { f(r) }

// WithLimit bounds the number of pairs; the More of the answer tells whether there are others. 0 is no bound.
func WithLimit(n int64) GetOption { return getOption(func(r *rpcpb.RangeRequest) { r.Limit = n }) }

// WithSerializable has the member asked answer from what it knows, without the leader: quicker, possible without a
// quorum, and perhaps outdated.
func WithSerializable() GetOption {
	return getOption(func(r *rpcpb.RangeRequest) { r.Serializable = true })
}

// WithKeysOnly leaves the values out.
func WithKeysOnly() GetOption { return getOption(func(r *rpcpb.RangeRequest) { r.KeysOnly = true }) }

// WithCountOnly asks only how many keys there are.
func WithCountOnly() GetOption { return getOption(func(r *rpcpb.RangeRequest) { r.CountOnly = true }) }

// WithModRevBetween keeps only the pairs last changed at revisions min to max; 0 is no bound.
func WithModRevBetween(min, max int64) GetOption {
	return getOption(func(r *rpcpb.RangeRequest) { r.MinModRevision, r.MaxModRevision = min, max })
}

// WithCreateRevBetween keeps only the pairs created at revisions min to max; 0 is no bound.
func WithCreateRevBetween(min, max int64) GetOption {
	return getOption(func(r *rpcpb.RangeRequest) { r.MinCreateRevision, r.MaxCreateRevision = min, max })
}

// SortTarget is what pairs are ordered by.
type SortTarget = rpcpb.RangeRequest_SortTarget

// SortOrder is in which direction.
type SortOrder = rpcpb.RangeRequest_SortOrder

// Values for WithSort.
const (
	SortByKey            SortTarget = rpcpb.RangeRequest_KEY
	SortByVersion        SortTarget = rpcpb.RangeRequest_VERSION
	SortByCreateRevision SortTarget = rpcpb.RangeRequest_CREATE
	SortByModRevision    SortTarget = rpcpb.RangeRequest_MOD
	SortByValue          SortTarget = rpcpb.RangeRequest_VALUE

	SortNone    SortOrder = rpcpb.RangeRequest_NONE
	SortAscend  SortOrder = rpcpb.RangeRequest_ASCEND
	SortDescend SortOrder = rpcpb.RangeRequest_DESCEND
)

// WithSort orders the pairs. Without it they are in the order of their keys. A limit takes the first of the
// order.
func WithSort(by SortTarget, order SortOrder) GetOption {
	return getOption(func(r *rpcpb.RangeRequest) {
		r.SortTarget, r.SortOrder = by, order
		if by == SortByKey && order == SortAscend {
			r.SortOrder = SortNone // the natural order, which the server can page through
		}
	})
}

// putOption is an option of Put alone.
type putOption func(*rpcpb.PutRequest)

func (f putOption) applyPut(r *rpcpb.PutRequest) { f(r) }

// WithLease ties the key to a lease: it is deleted when the lease ends.
func WithLease(id LeaseID) PutOption {
	return putOption(func(r *rpcpb.PutRequest) { r.Lease = int64(id) })
}

// WithIgnoreValue keeps the value the key has; the value given must be empty and the key must exist.
func WithIgnoreValue() PutOption {
	return putOption(func(r *rpcpb.PutRequest) { r.IgnoreValue = true })
}

// WithIgnoreLease keeps the lease the key has; the key must exist.
func WithIgnoreLease() PutOption {
	return putOption(func(r *rpcpb.PutRequest) { r.IgnoreLease = true })
}

// compactOption is an option of Compact.
type compactOption func(*rpcpb.CompactionRequest)

func (f compactOption) applyCompact(r *rpcpb.CompactionRequest) { f(r) }

// WithPhysical has Compact wait until the member asked has removed the old revisions.
func WithPhysical() CompactOption {
	return compactOption(func(r *rpcpb.CompactionRequest) { r.Physical = true })
}
