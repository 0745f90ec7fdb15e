// Package namespace has a client see the keys below a prefix as if there were no others, without the prefix.
//
//	c, err := client.New(endpoints, namespace.Option("app/"))
//
// Put(ctx, "k", "v") of that client writes app/k, and a Watch of all keys gives the changes below app/, with k for app/k. It
// works below package client, on the messages: so all that is built on a client, such as locks, elections,
// transactions and mirrors, works in a namespace.
//
// # What is rewritten
//
// In requests: the keys and ranges of Range, RangeStream, Put, DeleteRange, of Txn with its conditions and the transactions in it, and
// of Watch. "From this key on" ends where the namespace ends. In replies: the keys of pairs and events, and the keys of a lease, of
// which those outside are left out.
//
// Leases, members, compaction and maintenance know no keys, or all: they go through unchanged, so two namespaces share the revisions
// and a snapshot holds both. Calls of other services with keys, such as Lock and Election, are refused with code Unimplemented, since
// they would leave the namespace.
//
// A namespace keeps programs from meeting by accident. It is no protection: that is what permissions are for.
//
// # Goroutines
//
// There are none, and no locks. Messages of the caller are not changed.
package namespace
