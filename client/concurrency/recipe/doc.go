// Package recipe has barriers and queues, made of keys, transactions and watches.
//
// A [Barrier] is a gate that one party closes and others wait at. A [DoubleBarrier] has a number of parties begin together and
// end together. A [Queue] hands values from those who enqueue to those who dequeue, each value to one, oldest
// first; a [PriorityQueue] hands out the smallest number first.
//
// # Keys
//
// A Barrier is its key: it is closed while the key exists. A DoubleBarrier named b has b/waiters/ + lease id in hex for each party,
// on its lease, and b/ready while those who entered are inside. A Queue named q has one key q/ + a random number for each value, in the
// order of create revisions. A PriorityQueue has q/ + priority, 5 digits + / + sequence, 16 digits, in the order of keys.
//
// # What can go wrong
//
// Writes whose outcome is unknown are repeated where that is safe. Enqueue is not: after client.ErrUnknownOutcome the value may or may
// not be in the queue. Dequeue gives a value that it may or may not have taken, with that error.
//
// Nothing here has goroutines or locks; the methods may be called from any number of goroutines. One that waits ends with
// its context, whose cause it returns.
package recipe
