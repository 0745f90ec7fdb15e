// Package history judges what clients saw of a cluster: whether it is linearizable, and whether watches told all of it, once and in order.
//
// # Requests
//
// The keys are put into groups of [GroupKeys], and a [Request] touches one group: it is a transaction of reads, puts and
// deletes, behind a condition or not. Puts, gets and deletes alone are requests of one step. Every put writes a value that no other put
// ever writes, so a value tells which request wrote it. What the client got is an [Output].
// Requests and outputs stand in porcupine.Operation, with the times of call and return.
//
// # The model
//
// [Model] is the sequential specification of one group: three cells, and the newest revision the group has been seen at. A
// request is legal after another only if it reads what is there, and if its revision is above that of all writes before it, or,
// for one that writes nothing, not below. Groups share the revision counter and nothing else, so each group is checked by itself,
// and revisions leave so few orders open that histories of thousands of requests take a moment.
//
// # Requests with unknown outcome
//
// A request that failed may have been applied, may be applied later, or never. [Resolve] settles that with the events that a watch delivered
// after the end: a value that was written at some revision was applied there; a value that was never written was not
// applied, and the request is left out. That chooses one of the outcomes which are possible, so a history found linearizable is
// linearizable; and one that is not shows an error either of the store or of the watch. What this cannot settle, deletes, stays open: such a
// request may take effect at any time after its call.
//
// # Watches
//
// [CheckEvents] holds the events of a watch from the first revision on against the history: every revision is there, in order and once,
// those of acknowledged requests with just their writes, and all others are of requests with unknown outcome. [CheckChanges] is the same
// where other keys use up revisions, too.
//
// Several watches over any keys write one [Ledger], which holds each revision against what is before it by the rules of revisions and
// versions, and says what each key held when, and from when until when a key lived. A [Session] is one watch, with checks of
// what it is told (order, whole revisions, progress never ahead, no needless end by a compaction) and, once the ledger is complete, that it
// was told just what it watches.
//
// # Leases and locks
//
// A [Tenure] is a lease as its holder knows it; it must not end early, and not late where nothing was disturbed. [LockModel] is the specification
// of one lock with the resource it guards, for porcupine: who asks, what is done under the lock, and when its key is gone, which the
// ledger says, within the bounds of a [Clock]. [CheckGrants] holds what holders were told against the keys: first come, first
// served. [CheckSightings] holds what observers of an election were told against who led.
package history
