// Package codec turns messages into what gRPC sends and back. It is a gRPC codec of the usual name
// "proto" and of the usual bytes, in three ways faster than the one gRPC brings:
//
//   - Messages of this API are encoded and decoded by generated code (methods ...VT) instead of
//     reflection, into one buffer of exactly the right size.
//   - A message that is already bytes ([Encoded]) is sent as it is. A watch event that goes to a
//     thousand streams is encoded once, and a row read from the store is not decoded at all.
//   - A received message is copied once, into memory of its own, and its bytes and string fields
//     point into that copy instead of each being allocated.
//
// Other messages (those of the health service, for example) are handled by the protobuf library.
//
// # Use
//
// A server takes it with grpc.ForceServerCodecV2(codec.New()), a client with
// grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec.New())). It is never registered globally.
// A Codec has no state; any number of goroutines may use it.
//
// Generated stubs have typed results. To send an Encoded value on a stream call SendMsg; to answer
// a unary call with one, return it from a grpc.MethodDesc handler or from an interceptor, both of
// which deal in any.
//
// # Who owns which bytes
//
// Sending: a message is encoded into a buffer of gRPC's pool, which gRPC gives back after the
// write. The buffers of an Encoded value are shared and must never change again, see there.
//
// Receiving: gRPC's buffers go back to its pool when decoding ends, so nothing points into them. The
// private copy belongs to the message alone: it may be kept, passed on and appended to (fields have
// no spare capacity), for ever. But one field kept keeps the memory of the whole message; whoever
// keeps a small part of a large message for long should clone it.
//
// # Limits
//
// Transactions nest, and the generated decoders recurse without a bound. So the nesting of a
// TxnRequest and a TxnResponse is measured first, and more than [MaxNesting] levels are refused,
// which keeps a hostile request from overflowing the stack.
package codec
