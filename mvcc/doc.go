// Package mvcc is the store of keys with all their versions: an index in memory over rows in a backend file.
//
// # The model
//
// A store has a revision, born as 1. One write transaction that changes anything makes the next one; its changes
// are numbered from 0 within it. So a change is known by a pair, a [Revision]. Each change is a row: the pair as a
// marshalled kvpb.KeyValue, or a tombstone. A key may change several times within one transaction, also by being
// deleted and put again; what it is at a revision is what the last of these made it.
//
// # Compaction
//
// Compaction at revision C makes revisions before C unreadable and removes rows that only they need. For each key
// what remains is: all rows at or after C, and the newest row before C if the key has none at C and it is no
// tombstone. That tombstones exactly at C remain lets a watcher that starts at C see them. The rule is in one
// place, package index, which compaction, the hash and, by way of the rows, a restart follow; so it does not
// matter how far the removal of rows has come.
//
// [Store.Compact] takes effect at once and is durable with the position of the entry that asked for it. The
// removal is done by [Store.CompactStep] in small steps, between the batches of the apply loop: first the index is
// walked, only where there is something to remove, and the rows are noted; then they are removed in the order of
// revisions, so that each page of the file is touched once. A restart begins an unfinished removal anew.
//
// # Who calls what
//
// The apply loop is the writer: Begin, the methods of [Txn], Publish, Compact, CompactStep. All else is for any
// goroutine. Readers see what the last Publish published: an immutable state of revision, compacted revision and
// index snapshot, behind an atomic pointer. Rows are immutable and found by revision, so any view of the backend
// not older than the state will do. There is one thing to care for: removal. A reader takes the state, then the
// view, and begins again if the compacted revision has moved meanwhile; rows that its state needs cannot be
// missing from its view then, since rows are removed only after the compacted revision that allows it was
// published.
//
// Readers must not be nested: a visit function must not read from the store (see package backend on memory maps).
//
// # Locks and goroutines
//
// pages.mu guards the few remembered snapshots, and Store.waits.mu the finished compaction and who waits for it.
// Both are held for some instructions. No reader of the present takes a lock, and none at all takes one that the
// writer holds for long. The package starts goroutines in Open only, and they end before it returns.
package mvcc
