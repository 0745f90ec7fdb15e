package mvcc

import "github.com/coordd/coordd/mvcc/backend"

// Revision numbers a change; see the package comment.
type Revision = backend.Revision

// Options of [Open].
type Options struct {
	// OnLive, if set, is called by Open for each key that is attached to a lease, in key order. key is valid
	// during the call only.
	OnLive func(key []byte, lease int64)
	// Pages is how many snapshots of the index are remembered for the next pages of listings. Default 32. Each
	// costs the memory of what has changed since.
	Pages int
}

// RangeOptions say what of an interval to read. The zero value is all of it, now.
type RangeOptions struct {
	// Rev is the main revision to read at; ≤ 0 is the current one.
	Rev int64
	// Limit is the most keys to visit; ≤ 0 is no limit.
	Limit int64
	// CountOnly: visit nothing, only count.
	CountOnly bool
	// KeysOnly: the visitor has no use for values, so rows may come without; whoever wants them surely gone uses
	// [StripValue].
	KeysOnly bool
}

// RangeResult is the outcome of a read.
type RangeResult struct {
	// Rev is the revision of the store at the read, not the one asked for.
	Rev int64
	// Count is the number of keys in the interval at the revision asked for, regardless of Limit.
	Count int64
	// More says that Limit has cut keys off, and Next is the first of them, else nil.
	More bool
	Next []byte
}

// Event is one change of one key.
type Event struct {
	Rev       Revision
	Tombstone bool
	// Key is within Row.
	Key []byte
	// Row is the marshalled kvpb.KeyValue; of a tombstone it has the key only.
	Row []byte
	// Lease is the lease of the key after a put, 0 if none. PrevLease is that before the change. [Store.History]
	// does not give PrevLease.
	Lease, PrevLease int64
	// Create and Version are those of the pair after a put.
	Create, Version int64
	// PrevRev is the revision of the pair before, zero if the key did not exist. [Store.History] does not give it.
	PrevRev Revision
}
