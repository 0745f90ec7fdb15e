// Package peerpb holds what members say to each other on the peer port: frames of consensus
// messages, snapshots, and what a follower asks its leader to do. Both sides are members of one
// cluster, so these may change with its version.
//
// The code is generated from api/proto by tools/pbgen. Beside the usual protobuf methods each
// message has MarshalVT, SizeVT, UnmarshalVT and UnmarshalVTUnsafe, which do not use reflection;
// the last one lets bytes and string fields point into its input, which must not change
// afterwards. A message may be read by many goroutines, and written by one while nobody reads.
package peerpb
