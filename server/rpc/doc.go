// Package rpc serves the v3 API over gRPC: the services KV, Watch, Lease, Cluster, Maintenance,
// Auth, Lock and Election under the names that etcd's clients call, gRPC's health service, and the services Locks and Elections
// for what the API has no form for.
//
// # Who calls what
//
// [New] makes the services for one member, given as a [Node]: a handful of small interfaces that
// package server's Node satisfies and this package declares, so that it knows no server.
// [Services.NewServer] makes a *grpc.Server with all of them registered and the transport set up;
// the caller serves it on as many listeners as there are. Programs in the same process call the
// services' typed methods instead, without gRPC in between; they get the errors of package errs.
//
// A service checks the form of a request (package apply/check), calls the node, and completes the
// header of the answer. The node knows the revision an operation belongs to; cluster id, member id and
// term are filled in here, and the revision too where it is still 0. Headers inside of transactions
// are left alone, and some answers have none.
//
// # What happens around every call
//
// Every service description is copied, and each of its handlers wrapped (instrument.go), before it is registered.
// The wrapper does what others do in a chain of interceptors, but what depends on the
// method alone is looked up once, at registration, and a call allocates nothing here:
//
//  1. The request is decoded.
//  2. It is counted (metrics.go).
//  3. The gate (gate.go) refuses it if the cluster has no version yet, if this member is a learner and
//     the call is not one of those it may answer, if the metadata "client-api-version" is not text, or if the
//     metadata "hasleader" is "true" and there is no leader.
//  4. The service answers.
//  5. Its error is translated to a status: here and nowhere else.
//  6. The call is counted by its code, and logged if it was slow (slow.go), without values.
//
// A panic of a handler is not caught: it stands for a broken invariant, and going on might damage data.
//
// Streams with "hasleader" are remembered (leader.go). When no leader has been known at three
// checks in a row, an election timeout apart, their contexts end with errs.ErrNoLeader as the cause.
//
// # Reads without decoding
//
// The store keeps pairs as encoded messages. KV.Range does not decode them to encode them again: each row is copied
// once, behind a tag and a length, into a buffer that is the answer (rows.go). Short answers get memory
// of exactly their size; long ones consist of pooled pieces, which gRPC gives back when they are written.
// The same buffers, in portions, make RangeStream.
//
// # Goroutines
//
// gRPC has one for each call. Watch and LeaseKeepAlive streams take a second one, which receives
// and ends with the stream, and Snapshot one that reads the file. The watch for a lost leader runs as long as there are streams that ask for it.
// With the server made here, Stop returns when all of them have ended.
//
// # The end
//
// A client may fall silent at any point, and gRPC lets it hold up two things. A handler that sends waits for flow control until its
// connection is closed, whatever its context says: so it must hold nothing that the member needs to end, such as a read of the
// file. And Stop waits for connections that have not begun HTTP/2 yet: so the caller cuts them first ([Connections.Cut]).
package rpc
