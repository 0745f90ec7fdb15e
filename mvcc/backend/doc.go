// Package backend keeps the rows of the store and its small tables in one bbolt file, and the newest of them in
// memory until they are in that file.
//
// # Nouns
//
// A row is one version of one key: a marshalled kvpb.KeyValue, stored under its [Revision]. Rows never change.
// They are appended in strictly increasing revision order and removed by compaction only. What a row says is the
// business of package mvcc; here it is a string of bytes.
//
// The tail is what has been written but is not in the file yet: rows, changes of small buckets, removals. It
// consists of the active batch, which grows, and at most one sealed batch, which the committer is writing.
//
// A [Position] is a place in the raft log. It is an argument of [Backend.Commit] and is written in the same bbolt
// transaction as the batch it belongs to, so the file never has a position without its data nor data without its
// position.
//
// # Who calls what
//
// The writer is one goroutine, the apply loop: AppendRow, Put, Delete, DeleteRows, Publish, CommitIfDue, Commit,
// WriterView. The committer is one goroutine of this package; Open starts it and Close ends it. It writes sealed
// batches and renews the read transaction. Readers are any goroutines: View, Snapshot, Hash, ForEach, Get, Size,
// Position, Err.
//
// The writer does not wait for the disk, with two exceptions: it asked to (Commit with wait), or the tail
// has reached [Options].MaxTailBytes because the disk is slower than the log.
//
// # How readers see a consistent whole
//
// A state is immutable: the published part of the active batch, the sealed batch, and a read transaction of the
// file. An atomic pointer holds the present one. Publishing replaces the first part, sealing moves it to the
// second, and when the batch is in the file one new state drops the second part and brings a read transaction that
// contains it. So each state holds every row exactly once, and a reader takes no lock. The read transaction is
// shared and counted; whoever releases it last ends it.
//
// bbolt must move its memory map when the file outgrows it, and waits for all read transactions to end before it
// does. Therefore a commit near the end of the map that takes long retires the shared read transaction: readers
// then wait for that commit. With the default map of at least 10 GiB, and four times the file, this next to never
// happens. It has a consequence for readers all the same: a goroutine that holds a View must not ask for another
// one.
//
// # Locks
//
// Backend.mu guards the replacement of the state, which the writer and the committer both do. It is held for
// some instructions only, never during a system call. Readers never take it.
//
// # Files
//
// The layout is etcd's, so that a snapshot of either system restores in the other.
//
//	bucket           key                                              value
//	key              main revision (8 bytes, big endian), '_',        marshalled kvpb.KeyValue; of a
//	                 sub revision (8 bytes); tombstones one more: 't'  tombstone only the key is set
//	meta             consistent_index, term                           8 bytes, big endian
//	                 confState                                        JSON of raftpb.ConfState
//	                 storageVersion                                   "3.7.0"
//	                 scheduledCompactRev, finishedCompactRev          17 bytes, as a row key
//	lease            lease id (8 bytes, big endian)                   marshalled leasepb.Lease
//	alarm            marshalled alarm                                 empty
//	members          member id in hex                                 JSON
//	members_removed  member id in hex                                 "removed"
//	cluster          clusterVersion, downgrade                        text, JSON
//	auth             authEnabled, authRevision                        1 byte, 8 bytes
//	authUsers        name                                             marshalled authpb.User
//	authRoles        name                                             marshalled authpb.Role
//
// # Faults
//
// An error of a commit (disk full, I/O error) poisons the backend: Err reports it, the channel of Fatal is closed,
// and nothing is written any more. Nothing is lost: the log holds all that came after the durable position.
// Reading goes on.
//
// bbolt trusts its file and would panic, some of it in goroutines of its own, on a damaged one. So Open checks the
// structure of all pages first (see check.go) and gives an error that names the file.
package backend
