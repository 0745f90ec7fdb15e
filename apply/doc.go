// Package apply is the replicated state machine: a log entry goes in, a result and the events it
// caused come out. Members that apply the same entries hold the same state.
//
// # Nouns
//
//   - [Machine]: the whole state at a position of the log: key-value store, lease table,
//     membership, alarms, and the file they live in. [Open] builds it from a file, be it the
//     member's own at boot or a snapshot from the leader: the two are the same thing.
//   - [Call]: one request with its position and everything else its outcome may depend on, the
//     caller included.
//   - [Applier]: one link of the chain a Call goes through. Links that refuse calls are structs
//     with a next; the last one, the executor, does the work. Which links there are follows from the
//     active alarms, so an alarm changes the chain and the executor has no ifs about it.
//   - [Result]: response, error, events and lease changes. What the rest of a node has to do is
//     returned as data; nothing here calls back.
//
// # Determinism
//
// Nothing here reads a clock, a random source, the network, an option of this process or the size of a
// local file. Results depend on the entries only, and not on how they are cut into batches: what
// is visible to readers ([Machine.Publish]), durable ([Machine.Commit]) or physically compacted
// ([Machine.CompactStep]) at the moment plays no part. That is why the executor counts
// revisions by itself. Ids and times to live of leases are chosen before proposing. What a leader
// proposes by its clock carries its term and is refused when another leader has
// taken over (lease revokes and checkpoints).
//
// An error of a request is an outcome like any other: all members have it, and it leaves no
// trace. Damage that only this member has (a row that cannot be read) while writing must not become such an
// outcome; it panics and so ends the member.
//
// # Transactions
//
// A transaction runs in three steps. First the path is decided: which branch at every level, all compares
// against the state before the transaction. Then everything on the path that may fail is checked,
// against the same state: revisions of reads, leases and keys of puts. Then the operations run, in
// order, each seeing the effects of those before. Nothing fails in the third step, so a transaction
// happens as a whole or not at all. All its changes share one main revision.
//
// # Use by the apply loop
//
//	m, err := apply.Open(path, opts)
//	// raft delivers entries after m.Position().Index
//	for each batch:
//	    for each entry: id, res := m.Apply(e, wanted)      // or m.ApplyConf(e) → give to raft
//	    rev, events := m.Publish()                         // then hub.Publish(rev, events),
//	                                                       // then wake the waiters
//	    m.CommitIfDue()
//	    m.CompactStep(n)
//
// The position, the configuration and every bucket a batch touched go to the file in one
// transaction, so after a crash the machine opens at a position that fits its state, and the
// log is applied again from there, to the same end.
//
// # Goroutines and locks
//
// The package starts no goroutine and has no lock. Methods of Machine belong to the apply loop;
// the parts it exports say themselves what others may call. [ReadTxn] may be called by anyone.
package apply
