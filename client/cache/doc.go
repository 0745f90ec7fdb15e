// Package cache keeps the keys below a prefix in memory, as they change, and answers reads and watches from there.
//
//	k := cache.New(c, "config/")
//	defer k.Close()
//	r, err := k.Get(ctx, "config/color")
//
// It is for programs in which many parts read or watch the same keys: however many there are, the cluster sees one read and one
// watch.
//
// # Nouns
//
// A [Cache] has the present pairs below its prefix, and a history: the changes of the last revisions, as many as [History] says, in a ring
// buffer. A [Watcher] is a position in the history; it has no buffer and no goroutine, so any number of them cost nothing while nothing changes,
// and a slow one delays nobody.
//
// # What reads promise
//
// Get is linearizable: it asks the cluster for its present revision, a request without keys, and waits until the cache has seen
// that. Present asks nobody, and gives a state that was true at the revision it comes with; it never goes back.
//
// # Watches
//
// A watcher sees each change once, and those of one revision together. One that begins before the history, or has fallen behind it, ends
// with a [client.CompactedError], as one does whose revision was compacted by the server: read anew, and watch from the revision after
// that read. This happens to all watchers that have not seen everything, too, when the cache itself could not follow the cluster without
// a gap and had to read anew.
//
// # Goroutines and locks
//
// One goroutine for each cache, from New to Close, follows the cluster. Cache.mu guards what is there; it is held for no longer than
// it takes to copy a range. Pairs and events are shared and must not be changed.
package cache
