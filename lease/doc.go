// Package lease keeps leases: grants of a time to live to which keys are attached, and which take
// the keys with them when they end.
//
// # Two halves
//
// [Table] is the replicated half: which leases exist, how long they were granted for, what was
// left of them at the last checkpoint, and which keys are attached. It is changed only by the
// apply loop, from log entries, and never reads a clock, so every member has the same one.
//
// [Expirer] is the leader's private half: an estimate of when each lease ends, by the monotonic
// clock of this process (expirer.go is the only file here that reads a clock). It changes nothing itself. It names leases
// whose time is over, and the server proposes to revoke them; only the applied revoke
// deletes keys. On members that do not lead it is empty.
//
// The two are tied together by data: each change of the Table returns a [Change], which the
// server hands to the Expirer after applying the entry.
//
// # Identity
//
// A lease id is any int64 except 0; negative ids are as good as others and are stored,
// recovered and ordered as the same number. In the backend's bucket "lease" the key is the id as 8
// bytes big endian (two's complement), the value a leasepb.Lease. Which keys are attached is not
// stored there: it is recovered from the lease field of the live rows when the store is opened.
//
// # Promises about time
//
// Write T for the granted TTL, and E for the extension the server passes to [Expirer.Promote].
//
//   - Never early: no leader names a lease as expired before T has passed since it was granted or since
//     the last renewal that was acknowledged, whatever the leader changes in between. What is
//     needed of the server: acknowledge a renewal with Reset set only after the checkpoint
//     that clears the remaining time has been applied (see [Renewal]), and put the Term of a [Batch] in
//     the header of what it proposes, so that the state machine refuses it when another leader has
//     taken over.
//   - Late, under one leader: at most [PollInterval] plus the time the revoke takes through the log;
//     more only when leases end faster than [RevokeRate].
//   - Late, across leader changes: a change adds at most E plus the step below, plus the time without
//     a leader. So a lease of 600 s, aged 300 s, has about 300 s left after three
//     changes, and at most 3·(60 s + E) more than that.
//
// # Checkpoints
//
// What is left of a lease is written to the log, coarsely, so that the next leader can go on from
// there. The rule: a lease is checkpointed when what is left has dropped by one step since the last value
// that the log has (at first, T). One step is a tenth of T, but at least 10 s. A lease that has been
// renewed under this leader waits for two fifths of T, and at least 10 s, before the first
// checkpoint: clients renew after a third, so leases that are kept alive cost no log
// entries at all, and for them the step in the promise above is two fifths of T. Leases with T
// below 20 s are not checkpointed. A batch has at most [MaxCheckpoints] leases. Before a planned change of
// leader the server has everything written down that the rule leaves out ([Expirer.Settle]).
//
// # Locks and goroutines
//
// The Table is split in shards by id; each shard's RWMutex guards its map and the entries in it,
// and is held for no longer than it takes to copy one lease's key list. One mutex guards all of the
// Expirer; a renewal holds it for one map lookup, because queues are
// put in order lazily. Lock order: Expirer, then a shard. The package starts no goroutine;
// [Expirer.Run] is run by the server and ends with its context.
package lease
