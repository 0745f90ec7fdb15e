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
// those of acknowledged requests with just their writes, and all others are of requests with unknown outcome.
package history
