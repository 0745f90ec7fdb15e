// Package kvpb holds the stored pair and its changes. The encoding of KeyValue is also the format
// of rows in the data file, so numbers and types of its fields may never change.
//
// The code is generated from api/proto by tools/pbgen. Beside the usual protobuf methods each
// message has MarshalVT, SizeVT, UnmarshalVT and UnmarshalVTUnsafe, which do not use reflection;
// the last one lets bytes and string fields point into its input, which must not change
// afterwards. A message may be read by many goroutines, and written by one while nobody reads.
package kvpb
