// Package ordering keeps a client from reading the past after it has seen the present.
//
//	c, err := client.New(endpoints, ordering.Option())
//
// Reads are in order by themselves, but for those with client.WithSerializable, which the member asked answers from what it knows: if the client
// has read from one member and then moves to another that lags, keys go back in time. With this package the client notes
// the largest revision it has seen, in the replies to reads and writes, and a reply to a read that began after that and is older is not accepted: the
// member is set aside, as one in trouble is, and the read goes to the next. Each client has its own order; share one client
// among those who have to agree.
//
// A read is repeated until a member has caught up, its context ends, or client.RetryPolicy.MaxAttempts is reached. The error then holds
// [ErrStale] for errors.Is.
//
// It works below package client, on the messages. There are no goroutines; the revision is one atomic number.
package ordering
