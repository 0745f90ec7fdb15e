// Package requestpb holds the envelope in which requests go through the log: InternalRaftRequest,
// with who asked in its header. Field numbers below 20000 are those of etcd's log, those from
// 20000 on are our own. The encoding is stored for as long as the log is, so it may only be added
// to.
//
// The code is generated from api/proto by tools/pbgen. Beside the usual protobuf methods each
// message has MarshalVT, SizeVT, UnmarshalVT and UnmarshalVTUnsafe, which do not use reflection;
// the last one lets bytes and string fields point into its input, which must not change
// afterwards. A message may be read by many goroutines, and written by one while nobody reads.
package requestpb
