// Package memberpb holds the changes of membership facts that go through the log: names and URLs
// of members, the version of the cluster, downgrades.
//
// The code is generated from api/proto by tools/pbgen. Beside the usual protobuf methods each
// message has MarshalVT, SizeVT, UnmarshalVT and UnmarshalVTUnsafe, which do not use reflection;
// the last one lets bytes and string fields point into its input, which must not change
// afterwards. A message may be read by many goroutines, and written by one while nobody reads.
package memberpb
