// Package linearizability runs requests through etcd's client against three processes that are killed and held meanwhile, and
// checks what the clients saw (package history).
//
// The test makes everything random from one seed, which it prints: what the clients ask for, and which fault comes after
// which. Processes and the network keep their own time, so a seed gives the same plan but not the same run; the histories
// of a failed run are kept as HTML pages.
//
// Goroutines: one for each client, one that makes faults, one that watches; all end before the test checks anything.
package linearizability
