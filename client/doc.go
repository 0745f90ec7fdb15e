// Package client talks to a cluster that serves the v3 API: coordd itself, over the network or
// inside the same process, and any server with the same wire protocol.
//
//	c, err := client.New([]string{"10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	if _, err := c.Put(ctx, "greeting", "hello"); err != nil {
//		return err
//	}
//
// A [Client] is safe for use by many goroutines and is meant to live as long as the program. Keys
// and values are Go strings that may hold any bytes; answers are the messages of package rpcpb.
//
// # Endpoints and failover
//
// Every endpoint has a connection of its own. A call goes to the next healthy endpoint in turn. An
// endpoint that refuses connections, breaks them, stays silent, has no leader or is a learner is
// set aside, and a probe asks it with growing pauses whether it is well again, so that calls of
// the user do not pay for finding out. If a probe gets no answer, the watches and keepalives that
// run over that endpoint move to another one. If all are set aside they are used all the same.
//
// A member that hangs without closing its connections is found in two ways: a read that has no
// answer within [RetryPolicy].PerTry is tried at another endpoint, and pings on connections with
// something in flight break a connection that is dead for long ([WithKeepAlive]).
//
// # Retries, and writes with an unknown outcome
//
// Reads, and writes that may run twice without harm, are repeated with growing, jittered pauses until
// they have an answer or their context ends. There is no other limit by default, so give every call a
// context with a deadline.
//
// Put, Delete, Compact, membership changes and any Txn that is not only reads run at most once. They are
// repeated only when it is certain that they did not happen: the request was never handed to a
// connection, or the server refused it before doing anything. In all other cases the error satisfies
//
//	errors.Is(err, client.ErrUnknownOutcome)
//
// and means: the write may have happened, may still happen, or may not. Read the key, or make the
// write a Txn on the ModRevision you saw, to find out. An error without that mark means that the
// write did not happen and will not.
//
// # Errors
//
// Conditions the server reports are those of package errs, so errors.Is(err, errs.ErrCompacted)
// holds. Trouble on the way is a [*CallError], which wraps a context error, a condition or a gRPC
// status error, and names the endpoint.
//
// # Watches
//
// All watchers of a client share one stream. A [Watcher] resumes by itself after any interruption at
// the revision after the last one it has delivered, so no event is lost or seen twice, and the events
// of one revision always come together. A slow reader of one watcher delays nobody else and never
// holds more than its buffer in memory: when the buffer is full the watch is given back to the
// server and taken up again from the next revision once the reader has caught up.
//
// # Leases
//
// [Client.KeepAlive] renews a lease over one stream shared by all leases, three times in each time to
// live, and survives elections, restarts and moves between endpoints. It ends when the server says
// that the lease is gone; a holder of a lock who must stop earlier, as soon as it cannot be sure any
// more, asks for that with [EndWhenUnconfirmed].
//
// # Goroutines
//
// The client owns them all and Close waits for them: for each endpoint that is set aside one probe; for the
// shared watch stream, while there are watchers, a receiver and a sender; for the keepalive stream,
// while there are leases, a sender and a receiver; and one for [WithAutoSync]. Locks: Client.mu and pool.mu are
// leaves; watchMux.mu is taken before Watcher.mu; leaseMux.mu is a leaf but for pool.mu.
package client
