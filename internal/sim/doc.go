// Package sim runs whole clusters in one process, in virtual time, on disks and a network that fail, and judges what their clients
// were told. It is what stands behind the promises of the product.
//
// # Parts
//
//   - A run (Run) is one seed: a shape (how many members, how fast their clocks and disks, how soon log is released),
//     a Plan of faults, and a workload. It needs a bubble of testing/synctest.
//   - A member is a server.Node, the product's own, over several lives. Its log is on a vfs.Mem, its data file on the operating
//     system's files, because bbolt needs them. When a life ends without order, the next finds a copy of the data directory as it
//     was at that moment, and of the log what a power cut leaves of it (vfs.Mem.Crash) or what a killed process leaves (Kill).
//   - The network replaces package peer by way of server.Config.NewTransport. It encodes and decodes each message as the product does, and
//     loses, doubles, delays and reorders them; forwarded proposals alone are not doubled, since the product's streams deliver once
//     and raft would make two entries of one.
//   - Time is virtual and the same for all, but in every second run each member's clock has a rate of its own: its ticks come at that rate,
//     and by server.Config.Clock its leases are timed by it.
//   - Faults (Fault) are drawn before the run, so a plan can be printed, cut down (shrink) and played again. A pause stops a member where
//     it sends (end.Send), so its drive loop stands still, and with that all that waits for it; calls of clients wait until it goes on, and
//     so do answers on their way out.
//   - Clients of registers put, get, delete and run transactions over several keys; holders make leases, renew, question, end and leave
//     them, each with a habit of its own; watchers follow all of it from any revision, on one member after another; the compactor
//     forgets history and compares checksums.
//   - Contenders want a few locks, candidates an election, by the service of package lock of each member: they wait, try, hold streams, share,
//     give up, lose their connection or their lease, revoke it while they wait, give back twice, late and elsewhere, and go on writing when they
//     have lost. Some queue up with transactions, as package concurrency of the client does. Observers follow the election on both kinds of
//     streams. The lockBook has all of it.
//
// # What is checked
//
//   - Watches, each by itself: whole revisions, in order, once, none ahead of its header, no event at or before a revision that was
//     told to be complete, cancelled by compaction only if that hurts; and in the end against the ledger: nothing left out,
//     nothing invented, the pair before right.
//   - The ledger is what four watchers that begin at the first revision were told. They must agree. Played from the beginning, each event
//     must follow from the one before: creation, version, lease.
//   - Each answer against the ledger (verdict): what was acknowledged is there, at that revision and nowhere else; reads, also
//     stale ones, give what was there; conditions were decided rightly; and revisions follow real time.
//   - The registers once more, by porcupine and a specification that shares no code with the rest (registersModel).
//   - Leases: none ends, and none is said to be gone or to have less left, before its time since the last renewal's call is over; none later
//     than leaseSlack after that time has passed without a disturbance; and none is renewed once its end was acknowledged. Clocks at
//     different rates are allowed what they may make of it (shape.shortest, shape.longest).
//   - Locks and elections against the ledger (lockJudge). Who was told that it holds a lock stood, at the revision of the answer, among the first of
//     those whose places were there; places were asked for, and are deleted only by whoever has them, or when the lease may have ended,
//     which is not before it was said to; who gave up has left none; who waits is told of its turn, and of its place's end, in time
//     (tellWithin); lists, leaders and proclaimed values are those of their revision; observers are told each change in order, once,
//     and never one who does not lead.
//   - What an exclusive lock guards (resource) takes no token after a larger one, and refuses none that still holds.
//   - The locks once more, by porcupine and a specification that knows nothing of the ledger (lockModel): a holder's time ends with what its owner
//     did, or with the time that its lease was said to last.
//   - Checksums of all members at the same revision; all content of all members at the end.
//   - A member never ends by itself while its disk is well, always starts again, and all serve within recovery after the last fault.
//   - A member whose log has a flipped bit refuses to start and says where, or has lost nothing (flip).
//   - A member that has lost its files ends by itself each time it is started, and says why (wipe).
//
// # What a seed determines
//
// The shape, the plan, what each client asks for and when it pauses, what each link does to its messages, and what a power cut leaves are
// drawn from sources of their own, all from the seed. Not determined are the order of goroutines that are ready at the same instant, raft's
// election timeouts and choices of select. So a seed that failed fails again in most runs, not in all; with GOMAXPROCS=1,
// as TestSeeds has it, more often. Time that is not virtual plays no part.
//
// # Many seeds
//
// TestSeeds runs each seed in a process of its own, which is the test's own program with GOMAXPROCS=1: members of one process hand over to
// each other all the time, and with a second P each time a thread is woken for nothing. A process that dies or hangs is the
// failure of its seed, reported with what it has written. The first process (series) hands out seeds and adds up what they counted.
//
// # Limits
//
// Time stands still while a goroutine waits for a sync.Mutex, so nobody may hold one who sleeps: the log's own locks are channels for that
// reason, and slow are flushes and removals of the log's files, not those of the data file. In a pause a member's timers go on, so
// a request may time out in it; its ticks do not. The data file never loses what bbolt has flushed, nor gets half of a commit other than
// by being copied in the middle of one, and its bits are not flipped: it has no checksums that would tell. One member at most loses its
// files (wipe), and none comes in its place until members can be replaced.
//
// Of locks: a place whose write had an unknown outcome may stand until its lease ends. That waiters are told in
// time is judged when no fault is left, in the last seconds of work (peace); before that faults follow too closely.
//
// # The page of a failure
//
// A failed run leaves a page (Result.WritePage) for somebody who was not there: what is broken; a lane for each member, when it was up and led and
// when it was cut off, paused or had a bad disk; below, who had operations under way around the violation, with those marked that it is
// about; and the timeline. It is one file without scripts. If porcupine found what is broken with the registers, its own page is beside it.
//
// # More workloads
//
// Membership, defragments and restores take their place in workload: a loop that ends with cluster.stop, using cluster.pick
// for a node, and a check called by workload.verify. cluster.pickLocks gives a member with its service of locks. A further kind of fault is a case in cluster.begin and cluster.end, and a
// name in drawFault.
//
// # Goroutines and locks
//
// One goroutine, Run's caller, plays the faults; it alone starts and stops members. All others are counted in cluster.wg and have
// ended when Run returns. member.mu guards a member's present life and is never held while a node opens or closes; cluster.mu what has been found
// and counted; network.mu the network; ledger.mu, history.mu, timeline.mu and lockBook.mu their lists. member.mu is taken before the others, and no other two
// together.
package sim
