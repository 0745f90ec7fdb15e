// Package index keeps, in memory, every key with the revisions of its versions: which rows there are, and which of
// them a read at some revision wants.
//
// # Nouns
//
// An [Entry] says all about one key: its newest change and, if there are any, the older ones that compaction has
// left. An entry never changes; a put or delete makes a new one. A key whose newest change is a deletion is dead;
// its entry stays until compaction, for reads of the past.
//
// A [Tree] is the index as the writer has it: a B+-tree from key to entry in which each branch knows of each child
// how many live keys it holds, how many entries compaction may shorten, and a bound of the newest main revision in
// it. So counting the keys of an interval costs O(log n), reading passes over dead regions, counting at a past
// revision only looks into what has changed since, and compaction visits what there is to remove.
//
// A [Snapshot] is a tree frozen at some moment.
//
// # Copy on write
//
// Each node carries the epoch it was made in. The writer changes nodes of its own epoch in place, and copies
// others, with all above them, before it changes them. Taking a snapshot is starting a new epoch: O(1). So readers
// of a snapshot need no lock, and a batch of writes copies each node once.
//
// The older changes of a key are an append-only slice that its successive entries share: each sees its own length
// of it. The writer appends behind what any published entry sees.
//
// # Who calls what
//
// One goroutine, the apply loop, calls the methods of Tree. Snapshots and entries may be used by any goroutine
// once they have been handed over in an ordered way, as by an atomic pointer.
package index
