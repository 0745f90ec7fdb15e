// Package robustness runs three processes of the program under all faults that package faults can make, for as long as asked, and holds
// what clients saw against what is promised, with the checks of package history.
//
// TestStore has requests to registers and over several keys, watches from random revisions at random members, leases that
// are renewed, left and revoked, and compactions. TestLocksUnderFaults has contenders of four kinds for the same locks and elections, some of
// which are cut off for longer than their lease lives and go on as if they still held the lock.
//
// Both ask all members at each compaction for the hash of what they hold at the compacted revision, which must be the same. So a
// difference is found soon after it arose, also one that a later compaction would take away.
//
// Everything is drawn from one seed, which is printed: what clients do, and the plan of faults. Processes and links keep
// their own time, so a seed gives the same plan and not the same run.
//
// # Goroutines
//
// A run owns one for each client, watch and lane of faults, and one for each member that asks for its hash. All end, before anything is
// judged at the end, with the context of the run, which the first violation ends too. run.mu guards what is known to be wrong, and
// contents.mu what the members have answered; neither is taken under the other.
package robustness
