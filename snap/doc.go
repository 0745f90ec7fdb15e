// Package snap keeps snapshot files received from the leader and moves them
// between members. A snapshot file is a whole backend file (bbolt) at one
// [Position] of the raft log; this package never looks inside.
//
// A [Store] is a directory. [Store.Receive] reads a stream made by [Send],
// checks it, makes the file durable and only then gives it its name; so a file
// with its name is whole. Beside each file lies a small description with its
// position, size and checksum, by which [Store.Find] tells whether the file is
// the one wanted and [Store.Verify] whether its bytes are still the ones
// received. [Store.Purge] and [Store.CleanTemp] tidy up.
//
//	0000000000001388.snap.db    the backend file at index 0x1388
//	0000000000001388.snap.meta  its description
//	*.tmp                       something being received, or left by a crash
//
// The peer package calls Send and Receive, the node calls the rest. README.md
// beside this file has the formats, what is assumed of disks, and the argument
// why a crash leaves no half file.
//
// # Goroutines and locks
//
// No goroutines. All methods may be called from any goroutine; Store.mu guards
// the set of positions being received, and is never held during file
// operations.
package snap
