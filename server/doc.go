// Package server is one node of a coordd cluster: it joins the storage, the
// raft loop, the peers, the state machine and the watch hub, and offers the
// operations that the gRPC services, the HTTP pages and the in-process client
// call.
//
// # A write
//
// A caller's request gets an id from pkg/idutil, is encoded once and put into
// raft's proposal queue; the caller waits in pkg/wait under that id
// (propose.go). Every member's apply loop takes the committed entry to
// apply.Machine; the member on which somebody waits for the id hands over the
// result (applyloop.go). A caller that gives up leaves its entry behind: it may
// still commit, so a failed write is one whose outcome is unknown.
//
// # A read
//
// A serializable read runs on the machine's published view at once. A
// linearizable read first joins a round: all readers that wait at this moment
// share one ReadIndex request, and go on when the applied index has reached the
// answer (read.go). Rounds are strictly one after another, so a round begins
// only after each of its readers has arrived.
//
// # A new member
//
// A member that holds nothing but what it was founded with asks the others before its raft runs: it may be new, or have lost its files,
// and then it must not vote again (founding.go).
//
// # A snapshot
//
// A member that fell too far behind receives the leader's whole file. The peer
// layer stores it, raft marks it in the log, and the apply loop then opens it
// with the same apply.Open as at boot, and swaps one pointer (snapshot.go).
// Readers that hold the old machine finish on the old file.
//
// # Leases
//
// The table of leases is replicated; the deadlines are the leader's own
// (lease.Expirer). A member that becomes leader starts its expirer when it has
// applied the first entry of its term, so it knows every lease of the terms
// before. Its revokes carry its term and are refused by every replica once a
// newer leader has written to the log (leases.go, expire.go).
//
// # Goroutines
//
// All are started by Open and have ended when Close returns:
//
//	raft     asks the others first, if the member is new; then raftnode.Node.Run: the drive loop
//	tick     hands raft its ticks
//	first    asks for votes early after the start, when no leader is heard
//	apply    applies committed entries, publishes them, commits the file, removes compacted rows
//	read     runs the rounds of linearizable reads
//	expire   proposes revokes and checkpoints while this member leads
//	forward  sends lease renewals to the leader, many in one call, while this member follows
//	publish  announces this member's name and URLs, and the cluster version, until it is done
//	space    watches the quota and clears this member's own NOSPACE alarm
//
// # Locks
//
// No mutex of this package is held while calling another package's blocking
// operation. Node.machine is an atomic pointer, replaced only by the apply
// loop. readRounds.mu guards the round that readers join; forwarder.mu the
// renewals that wait; leaderWatch.mu the channel that ends with a leadership.
package server
