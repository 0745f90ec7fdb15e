// Package ordering keeps a client from reading the past after it has seen the present.
//
//	c, err := client.New(endpoints, ordering.Option())
//
// Reads are in order by themselves, but for those with client.WithSerializable, which the member asked answers from what it knows: if the client
// has read from one member and then moves to another that lags, keys go back in time. With this package the client notes
// the largest revision it has seen, and an answer to a read that began after that and is older is not accepted: the member is set
// aside, as one in trouble is, and the read goes to the next. It is repeated until a member has caught up, its context
// ends, or client.RetryPolicy.MaxAttempts is reached. The error then has [ErrStale] for errors.Is and a [*Violation] for errors.As. With
// [OnViolation] the program hears of each such answer and decides itself.
//
// # What it promises
//
// For all goroutines of a client together: once a call has returned an answer of revision r, no read that begins after that returns an
// answer from before r, whichever members they ask. What has been seen are the answers of Get, Scan, Put, Delete and Txn, and the events of
// watches as soon as they have arrived. Reads are Get and Scan without client.WithRev, which asks for a revision by name and gets that one, and
// transactions that only read.
//
// # What it does not promise
//
//   - That reads see what others have written: a serializable read may still be outdated, as long as this client has not seen
//     anything newer. For that leave client.WithSerializable out, and this package is not needed.
//   - An order among several clients. Share one among those who have to agree.
//   - Anything over a restart of the program, since the revision is kept in memory.
//   - Progress: if all members that can be reached lag behind, reads wait. After a cluster was restored from a snapshot of
//     an older revision they wait until it has grown beyond that, unless the client is made anew.
//
// It works below package client, on the messages. There are no goroutines; the revision is one atomic number.
package ordering
