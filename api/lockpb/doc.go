// Package lockpb holds the messages of the Lock service. Fields numbered from 100 on are
// additions of coordd (trying, sharing, counting, fencing, lock delay), which clients that do not
// know them skip.
//
// The code is generated from api/proto by tools/pbgen. Beside the usual protobuf methods each
// message has MarshalVT, SizeVT, UnmarshalVT and UnmarshalVTUnsafe, which do not use reflection;
// the last one lets bytes and string fields point into its input, which must not change
// afterwards. A message may be read by many goroutines, and written by one while nobody reads.
package lockpb
