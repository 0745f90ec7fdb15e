// Package api is the root of the wire API; it holds no code but the tests that pin it. On the wire
// the API is that of etcd v3: field numbers, types and names of methods are facts of that protocol
// and may not change. The .proto files, in api/proto, are our own, with packages and file names of our
// own, so that etcd's modules can be linked into the same program.
//
//	kvpb, authpb, rpcpb, memberpb, lockpb, electionpb  messages of the v3 API
//	coorddpb                                           messages of services of our own
//	requestpb, leasepb                                 what is in the log and in the data file
//	peerpb                                             what members say to each other
//	services                                           gRPC clients and servers of all services
//	codec                                              the gRPC codec for all of it
//	errs, errs/grpcerr                                 everything that can go wrong, for both sides
//
// After a change below api/proto run "go run ./pbgen" in the folder tools and commit what it made.
package api
