// Package inproc calls gRPC services that are in the same process, without a connection: no sockets, no
// HTTP/2, no framing. A [Conn] is both sides in one: services are registered with it as with a
// grpc.Server, and it is a grpc.ClientConnInterface, so generated clients and package client use it.
//
// # What stays the same
//
// A caller cannot tell it from a connection, but for the speed. Interceptors of the server run, and see the
// caller's outgoing metadata as incoming metadata. The handler's context ends with the caller's, has its
// deadline, and none of its values. Errors arrive as status errors with code, text and details and nothing
// else; an error that is no status has code Unknown, as over gRPC. Headers and trailers arrive. Requests and
// responses are encoded and decoded with package codec, so neither side can see the other change a
// message, messages that are already encoded ([codec.Encoded]) go the same way as over the network, and
// what the wire could not carry is refused here too.
//
// # What is different
//
// A unary call runs on the caller's goroutine and returns when the handler does, so it relies on handlers heeding
// their context. Call options that concern the transport (compression, waiting for readiness) mean nothing
// and are ignored. The remote address is "in-process".
//
// # Streams
//
// The handler runs on a goroutine of its own, which the Conn owns. Each direction is a queue of up to
// queueLen encoded messages; a side that is faster waits, as with flow control. The stream's context ends when
// the caller's does, when the handler has returned, and when the Conn is closed.
//
// # Goroutines and locks
//
// One goroutine per open stream; Close ends their contexts and waits for them, and for unary calls in
// flight, whose contexts it leaves alone: the owner of the services ends those. Conn.mu guards the
// count of calls and the state closed; stream.mu guards headers and trailers. Both are leaves.
package inproc
