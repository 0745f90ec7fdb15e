// Package watch tells watchers what changes: every put and delete of the keys they watch, in revision
// order, once each, none left out, and all events of one revision together.
//
// # Nouns
//
//   - A [Hub] belongs to one store. The apply loop gives it each batch of events after the store has made
//     them readable ([Hub.Publish]).
//
//   - A [Stream] is what one client connection (or one user in this process) opens on the hub. It carries
//     any number of watchers, each with an id of that stream, and a queue of [Response] values that its
//     reader takes with [Stream.Next].
//
//   - A watcher is one create request: a key or a range, a first revision, filters. It is in one of four states:
//
//     live     has been given everything up to the hub's revision; Publish serves it
//     lagging  has events to come that are older; the catch-up goroutine serves it
//     dead     compaction took what it needed; it has been told so and only holds its id
//     gone     cancelled, or its stream is closed
//
// A watcher whose first revision is in the future is live; Publish passes over it until that revision.
//
// # How an event travels
//
// Publish encodes each event once, as the bytes it has inside a WatchResponse (field 11: tag, length,
// kvpb.Event), into one buffer for the batch. A second encoding with the previous pair is made only when
// a watcher that matches asked for it, and is shared like the first. The event goes to the end of the
// ring. Its key finds the watchers: those of exactly this key in a map, those of ranges in an interval
// tree in which equal ranges share a node. A match costs one queue entry that refers to the shared
// events. When all events of the batch are matched, each stream that got something is locked and
// woken once.
//
// The reader of a stream takes the whole queue at once. When a watcher has several responses in it,
// they become one, so a reader that is behind does less work per event, not more. Nothing is moved
// across an answer or progress notice of the stream, so what a client may conclude from the order holds.
//
// # Falling behind and catching up
//
// A stream's queue has a bound in bytes. When it is full at the beginning of a batch, the watchers that match
// something in that batch become lagging, from the revision of that event on. Nothing is dropped, and no other
// stream notices. The queue may exceed its bound by the one batch, or the one catch-up pass, that was admitted
// when there was room.
//
// One goroutine of the hub serves the lagging watchers whose streams have room, in passes. A pass begins
// at the next revision of the watcher whose turn it is, spans at most 1000 revisions, ends early at the
// revision in which the gathered events exceed a bound in bytes, and takes along every other lagging watcher
// whose next revision lies in the span; so watchers that lag together share one scan. It reads the ring
// if that reaches back far enough, else the store's history. When a pass reaches the hub's revision its
// watchers become live, under the lock of Publish, so no event falls between.
//
// The ring holds the newest events, bounded by bytes, whole revisions only. A lagging watcher that the ring
// still serves does not care about compaction. One that needs older history is cancelled, with the compacted
// revision, when that revision has passed what it needs next. History at exactly the compacted revision is
// complete, deletes included. A create from before the compacted revision is answered as any other,
// and then cancelled in the same way, be the ring as long as it may.
//
// # Revision in the header
//
// Response.Revision is, for an answer to create or cancel and for a progress notice, the hub's revision; for
// events of Publish, the revision of the batch; for events of a pass, the hub's revision at the end of the
// pass, so it may lie ahead of the last event; for a cancellation by compaction 0. An event is never newer
// than the revision it comes with, and a response without events never has a revision whose events are
// still to come.
//
// # Progress
//
// A watcher may ask to be told the revision when it had no events for an interval; each stream that has such
// a watcher runs a ticker of its own, inside Next. A stream may also be asked once, [Stream.RequestProgress]: it
// answers with id -1 if every one of its watchers is live and none starts in the future, and is silent otherwise.
//
// # Goroutines and locks
//
// New starts one goroutine, the catch-up; Close ends it. Streams have none: Next runs on its caller.
//
//	Hub.passMu  held during a pass, and by Swap: after Swap returns nothing reads the old store
//	Hub.mu      all watchers' states, the index, the ring, the revision, what is staged for streams
//	Stream.mu   the stream's queue
//
// They are taken in this order. Hub.mu is held for a time in proportion to the watchers that match; never
// while reading history, and never while anybody writes to a network.
package watch
