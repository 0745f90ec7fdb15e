// Package raftnode drives one member of a Raft group: it owns a raft.RawNode
// and moves everything in and out of it.
//
// # Nouns
//
//   - Node: the member. Its drive loop (Run) is the only goroutine that touches
//     RawNode, the in-memory log and the write-ahead log.
//   - inbox: what other goroutines left for the drive loop since it last looked:
//     messages of other members, proposals, read requests, a tick, calls.
//   - Batch: committed entries, or a snapshot to install, for the apply loop.
//   - Start: what storage held when the member started.
//
// # Who calls what
//
// package server calls Propose, Withdraw, ReadIndex, Tick and the rest from any
// goroutine; none of them blocks except ApplyConf and Progress, which wait for
// the drive loop. Package peer calls Step with what it received, and is called
// through Config.Send with what is to leave. The apply loop receives from
// Committed and answers each batch with Applied.
//
// # One turn of the loop
//
// A turn takes the whole inbox at once and steps it into raft: acknowledgements
// of the apply loop, messages, calls, the tick, reads, and as many proposals as
// fit into MaxBatchBytes, all of them as one MsgProp. Then it works off raft's
// Ready until there is none. So the batch is whatever arrived while the turn
// before waited for the disk: nothing waits for a timer to fill a batch.
// Messages come before the tick, so that a loop that was held up by the disk
// hears the leader before it doubts it; and of several ticks that came
// meanwhile only one counts (as with time.Ticker), so that a pause of the
// process does not look like a leader's silence.
//
// A proposal may be for later (ProposeLater): it does not wake the loop, and alone it makes no batch but at a tick. A follower
// forwards such as a MsgProp with a context that says so; a leader that does not know the mark takes them at once.
//
// # What may leave before the disk
//
// RawNode runs with AsyncStorageWrites, although the log is written right here:
// in that mode raft itself says which messages depend on the write (they are the
// responses of its MsgStorageAppend), it never hands out a committed entry
// that is not in this member's own stable log, and it keeps "stored" and
// "applied" apart. One Ready is served in this order:
//
//  1. role changes are published (Status, OnLeader);
//  2. MsgApp, MsgHeartbeat and its answer, MsgSnap, forwarded MsgProp and MsgReadIndex, and answers to the
//     latter are sent: they promise nothing about this member's disk;
//  3. read states are delivered, committed entries queued for apply: all of
//     them were stored by an earlier Ready;
//  4. the log is written: one Append, one flush if anything but the commit
//     index changed;
//  5. all other messages are sent, above all MsgAppResp and MsgVoteResp; raft's own
//     acknowledgements are stepped back, which is where the entries of a
//     single member become committed.
//
// Of the acknowledgements in step 5 those wait for the tick, and are superseded by the next, that only answer to a higher commit index: they tell
// the leader nothing new (quiet.go).
//
// MsgVote waits for step 5 although raft would let it go: it states the last
// entry of the candidate's log, and a candidate that lost that entry in a crash
// could collect votes given for it. A write with only a new commit index is kept
// back and joins the next write; losing it in a crash is harmless, since a
// member learns the commit index anew from the leader, or from its own vote.
//
// # Failure
//
// The first error of the write-ahead log (a failed flush, a full disk) ends
// Run with that error. The loop does not retry: after a failed flush the
// kernel may have dropped the pages, so a second call proves nothing. Steps 5
// and later do not happen for that Ready, so nothing that depended on the
// write was acknowledged to anybody.
//
// # Applied
//
// A batch counts as applied only when the apply loop says so (Applied). Until
// then raft neither starts an election over an unapplied change of members nor
// proposes a second one, which its safety proof needs; and it hands out at most
// MaxApplyingBytes more, so a slow apply loop does not pile up batches. The loop takes a turn for that only if something
// waits for it; otherwise the next turn looks at it, whatever brings that. When more than
// MaxUnapplied entries are committed but not applied, no proposals are taken.
//
// # Proposals without a leader
//
// raft drops a proposal when no leader is known, while leadership is being
// transferred, and when too much is uncommitted. The Node keeps it at the head of
// the queue and tries again when the reason may have gone. A caller that no
// longer waits takes it out with Withdraw. A proposal that was forwarded to a
// leader which then vanishes is lost, never repeated: the caller's timeout
// decides, so no request is executed twice.
//
// # Reads
//
// ReadIndex asks for an index that a linearizable read has to wait for. Requests
// of one turn share one MsgReadIndex. raft drops such a message silently when no
// leader is known, and the network may lose it or its answer, so unanswered requests are asked
// again at every change of leader or term and after some ticks. An answer
// to a question asked later serves all requests made before that question, since
// its index was the commit index after they were made. Answers are told
// apart by the newest request's id and a counter, so an answer meant for the
// process before a restart is never taken for a new one; ids must therefore be
// unique across restarts (pkg/idutil gives such).
//
// A follower's question costs one round trip instead of two in groups of up to three voters. raft would have the leader
// confirm by heartbeats that it still leads; but the question itself says as much. It carries the term that the asker was in when it
// sent it, after its reads began. If that is the term of the leader, then neither had acknowledged
// anything to a later leader when the reads began, and as any two of three are a majority, no
// later leader can have committed anything by then. So the leader answers with its commit index right away, if it
// has handed out an entry of its own term and so knows all that was committed before. The question vouches for the asker's own
// reads alone: it may have been sent before others began. All other questions, and those of larger groups, of learners, during joint
// configurations, or without a term, are left to raft.
//
// # Snapshots
//
// When a member needs entries that are compacted away, raft asks
// Config.Snapshot for a position and sends MsgSnap. The peer layer then sends
// the backend's file as it is at that time, whose position may be newer, and
// writes the file's own position into the message. That is legal: the leader
// leaves the state "snapshot" of its progress tracking on any MsgAppResp that lets
// it continue from its log, whatever index the snapshot had (stepLeader, case
// StateSnapshot, "no matter at which index a snapshot was actually applied"); and
// a backend's position is never ahead of the leader's commit index. Compact keeps the
// entries after a snapshot that is on its way.
//
// The receiver stores the file durably and only then steps MsgSnap. The drive
// loop restarts the write-ahead log at the snapshot (durable), answers the leader, and hands Batch.Snapshot
// to the apply loop, which installs the file.
//
// # First start
//
// A new cluster has no configuration entries in its log. Every founding member
// starts from the same invented snapshot at index 1, term 1 that holds the
// founding members (Bootstrap), so they agree from the first message on. A
// member that joins later starts with nothing, and gets its configuration
// with the leader's snapshot, because no log reaches back before index 2.
//
// # Goroutines and locks
//
// Run is the only goroutine, owned by the caller. inbox.mu guards the inbox and
// is held for a few assignments; outbox.mu guards the batches that wait for the apply
// loop. Neither is held while calling out. The package knows no clock and starts no
// timer: ticks come from outside, so it runs in virtual time.
package raftnode
