// Package wait connects goroutines that wait for something with the goroutine that makes it happen.
//
// It has two parts, both safe for any number of goroutines:
//
//   - [Wait] takes a result to the one caller who asked for it. A proposer registers the id of its
//     request and receives from the channel it gets; the apply loop triggers that id with the result.
//     The table is cut into 64 shards by the low bits of the id, so that proposers on many cores seldom
//     meet at one mutex. Ids from package idutil count up by one, so neighbours fall into different shards.
//   - [WaitTime] wakes everybody who waits for a logical clock, usually the applied index, to reach a
//     deadline. All waiters of one deadline share one channel, and all waiters of deadlines already
//     passed share one closed channel, so the common case of a reader who need not wait costs one
//     atomic load and no allocation.
//
// Neither part starts a goroutine, knows about contexts or needs closing: a waiter selects on its own
// context or stop channel beside the channel it got here, and then gives the registration back.
//
// Locks: each shard's mutex guards its map, and WaitTime's mutex guards its list of deadlines. No
// lock is held while a value is sent, and no two locks are ever held together.
package wait
