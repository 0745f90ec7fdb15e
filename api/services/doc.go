// Package services holds the gRPC clients and servers of all services: KV, Watch, Lease, Cluster,
// Maintenance, Auth, Lock and Election of the v3 API, Locks and Elections of our own, all for clients,
// and Peer for members among themselves. The messages are in the packages beside it.
//
// The code is generated from api/proto/coordd/services by tools/pbgen, which gives the services of
// the v3 API the names their clients call them by: a method is "/etcdserverpb.KV/Range", although
// the descriptors are in proto packages of our own. So a program can link this package together with
// etcd's client without two descriptors of one name. The Metadata of a service description names a
// file that is not in the protobuf registry, since services have no descriptors in Go; only gRPC's
// reflection service would look for it, and it is not served.
//
// Servers embed the Unimplemented type of their service. Handlers of methods may also return, and
// streams send, messages that are already encoded; see package codec, whose codec every server and
// client of these services should use.
package services
