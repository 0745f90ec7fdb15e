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
//   - Faults (Fault) are drawn before the run, so a plan can be printed, cut down (shrink) and played again.
//   - Clients of registers put, get, delete and run transactions over several keys; holders make leases, renew and leave them;
//     watchers follow all of it from any revision, on one member after another; the compactor forgets history and compares checksums.
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
//   - Leases: none ends, and none is said to be gone, before its time since the last renewal's call is over; and none later than leaseSlack
//     after that time has passed without a disturbance.
//   - Checksums of all members at the same revision; all content of all members at the end.
//   - A member never ends by itself while its disk is well, always starts again, and all serve within recovery after the last fault.
//
// # What a seed determines
//
// The shape, the plan, what each client asks for and when it pauses, what each link does to its messages, and what a power cut leaves are
// drawn from sources of their own, all from the seed. Not determined are the order of goroutines that are ready at the same instant, raft's
// election timeouts and choices of select. So a seed that failed fails again in most runs, not in all; with GOMAXPROCS=1
// more often. Time that is not virtual plays no part.
//
// # Limits
//
// Time stands still while a goroutine waits for a mutex. A slow flush holds the log's, and releasing log waits for it, so a run has either slow
// disks or released log. A pause holds a member's messages back; its goroutines go on. Clocks of raft run at different rates, clocks of
// leases do not. The data file never loses what bbolt has flushed, nor gets half of a commit other than by being copied in the middle of
// one. Members are not wiped, and bits not flipped: both need a member to be replaced while the cluster runs.
//
// # More workloads
//
// Locks, elections, membership, defragments and restores take their place in workload: a loop that ends with cluster.stop, using cluster.pick
// for a node, and a check called by workload.verify. A further kind of fault is a case in cluster.begin and cluster.end, and a
// name in drawFault.
//
// # Goroutines and locks
//
// One goroutine, Run's caller, plays the faults; it alone starts and stops members. All others are counted in cluster.wg and have
// ended when Run returns. member.mu guards a member's present life and is never held while a node opens or closes; cluster.mu what has been found
// and counted; network.mu the network; ledger.mu, history.mu and timeline.mu their lists. member.mu is taken before the others, and no other two
// together.
package sim
