// Package member keeps the membership of a cluster: who its members are, under which addresses
// they are reached, which of them vote, and which ids may never come back.
//
// # Nouns
//
//   - [ID]: the 64-bit name of a member or of a cluster, printed in hex without padding. It is a
//     hash of what the member was created with, see [BootstrapID], [AddedID] and [ClusterID].
//   - [Member]: id, peer URLs, learner flag (all three replicated by raft configuration changes),
//     and name and client URLs (replicated by an ordinary entry when the member starts; a member
//     with an empty name has never started).
//   - [Change]: the context of a raft configuration change, that is a Member in JSON together
//     with what the numeric fields of raft cannot say.
//   - [Set]: the replicated state itself.
//
// # Who calls what
//
// The apply loop opens the Set with the backend file and is the only one that changes it
// ([Set.ApplyChange], [Set.SetAttributes], [Set.SetVersion], [Set.SetDowngrade], [Set.Replace]).
// Anyone may read it at any time: the Set publishes an immutable state through one atomic
// pointer, so a reader takes no lock and must treat what it gets as read-only. The package has no
// goroutines and no mutex.
//
// Everything in the Set is computed from replicated input only (no clock, no random source, no
// flag of this process), so all members hold the same Set at the same raft position. A limit
// that is a flag, the number of learners allowed, therefore travels inside the change.
//
// # Format
//
// The Set lives in three buckets of the backend, in the layout of etcd:
//
//	members          hex id          → {"id":10501334649042878790,"peerURLs":["http://…"],
//	                                    "isLearner":true,"name":"…","clientURLs":["http://…"]}
//	                                   (isLearner, name, clientURLs only when set)
//	members_removed  hex id          → removed
//	cluster          clusterVersion  → 3.8.0
//	cluster          downgrade       → {"target-version":"3.7.0","enabled":true}
//
// # Invariants
//
//   - An id in members_removed is never a member again.
//   - Every member that raft counts is in the Set with the same role, so [Set.ConfState] equals
//     the configuration raft computes from the same changes: a change the Set refuses is given to
//     raft as a change of nothing. The configuration is never joint.
//   - There is at least one voter as soon as there is a member.
//
// # Strict reconfiguration
//
// The functions CheckStarted… and CheckConnected… are the arithmetic behind the option
// strict-reconfig-check: pure functions of a member list and of connection counts, for the
// server to ask before it proposes. They are advice at the proposing member, not part of the
// replicated state.
package member
