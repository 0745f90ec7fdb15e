// Package wal is the write-ahead log: the entries of the raft log and the hard
// state (term, vote, commit) of one member, on disk before anybody is told that
// they are.
//
// A [Log] is a directory of segment files that are written one after the other.
// Each [Log.Append] is one frame: at most one hard state and any number of
// entries, written by one call and made durable by at most one flush. A frame
// is there wholly or not at all after a crash. [Open] reads the segments,
// checks everything, removes the remains of an append that was cut short, and
// refuses whatever a crash cannot explain. [Log.Reset] makes the log continue
// after a snapshot; [Log.Release] removes segments that only hold entries no
// longer needed. Later frames win: an entry with an index that exists replaces
// it and all that followed.
//
// The drive loop of raftnode writes; whoever persists the applied state calls
// Release. The log knows nothing of what entries mean.
//
// README.md beside this file has the format byte by byte, what is assumed of
// disks, and the argument why recovery is right.
//
// # Failures
//
// The first error of a write, a flush or of beginning a segment ends the log:
// the same error comes back from every later call, and nothing is tried again,
// because after a failed flush nobody knows what is on disk. No acknowledged
// append is lost by that; the member has to be restarted, and [Open] tells what
// is there. Wrong arguments ([ErrNotContiguous], [ErrTooLarge]) change nothing.
//
// # Goroutines and locks
//
// When the current segment is half full, one goroutine makes the file of the
// next one, so that moving on costs no more than any append. The Log owns it; it
// blocks on the file system only, ends when the file is there, and Close waits
// for it. Log.releaseMu serialises Release and Close; Log.mu guards all
// state and is held during writes and flushes, but not while Release removes
// files. releaseMu is taken before mu.
package wal
