// Package mirror keeps a copy of keys in another cluster, or under another prefix.
//
//	m := mirror.New(from, to, mirror.Keys("config/"), mirror.Into("copy/config/"), mirror.Progress("mirror/config"))
//	err := m.Run(ctx) // until ctx ends
//
// # What is copied
//
// Keys and values. The copy of a key has the same name with the prefix of [Keys] replaced by that of [Into]. Whatever else is below the prefix of
// Into is deleted, unless KeepExtra is set: it belongs to the mirror. Leases stay behind; a key that ends with its lease is deleted in the copy when that has
// happened. Revisions are those of the cluster of the copy.
//
// # How it works
//
// A mirror is either comparing or following. Comparing, it reads both sides in the order of keys, the source at one revision, and writes what differs
// and deletes what is too much: so what was deleted at the source while no mirror was running is deleted in the copy, too, and what is
// right is not written again. Then it follows the source from that revision on by a watch. If the source has
// compacted what a mirror has to read it compares again.
//
// With [Progress] it notes in the copy's cluster, in the same transactions as the changes, up to which revision the copy is complete, and
// the next Run follows from there without comparing. The note carries an id of the Run, which each transaction checks: a
// transaction whose reply was lost cannot be done late, over a newer one, and of two mirrors that run with one note the older ends with
// [ErrSuperseded].
//
// # Atomicity
//
// The changes of one revision are done in one transaction, as long as they are no more than [MaxOps]. Several small revisions
// may be done together. While it compares, and in larger revisions, the copy is in between; it never goes back in time.
//
// # Goroutines
//
// Run works on the caller's goroutine. Stats may be called from any; its numbers are atomic.
package mirror
