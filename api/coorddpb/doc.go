// Package coorddpb holds the messages of the services that have no form in the v3 API: Locks
// (hold a lock with a live stream, list who holds and who waits) and Elections (observe,
// including the times without a leader).
//
// The code is generated from api/proto by tools/pbgen. Beside the usual protobuf methods each
// message has MarshalVT, SizeVT, UnmarshalVT and UnmarshalVTUnsafe, which do not use reflection;
// the last one lets bytes and string fields point into its input, which must not change
// afterwards. A message may be read by many goroutines, and written by one while nobody reads.
package coorddpb
