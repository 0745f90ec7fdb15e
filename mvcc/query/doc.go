// Package query answers Range requests: it adds to the plain reads of the store what the API has
// on top, namely sort orders, revision filters, keys_only, and the exact meaning of limit, more and count.
// It is the one place that knows these rules; the RPC services use it for reads, the applier for reads in
// transactions.
//
// # Rows
//
// Results are passed to a visitor as rows: kvpb.KeyValue messages in their encoded form, just as the
// store keeps them. A row is valid only during the call. A service that answers over the wire
// frames the bytes without decoding them; [Response] decodes, for transactions and in-process users.
//
// # Rules
//
//   - count is the number of keys in the interval at the revision read, whatever limit and
//     filters say. count_only has neither rows nor more.
//   - limit ≤ 0 is no limit. more says that limit has cut something off; with filters: that more
//     keys passed them than limit.
//   - Keys ascending is the order of the store, and the default: rows go straight from the store
//     to the visitor. With filters they do so too, minus those that do not pass.
//   - Any other order reads the whole interval, keeping the limit best rows; ties are in
//     order of the key.
//   - sort_order NONE with a target other than KEY is the odd one: it means ascending by that
//     target, but when there is a limit N and no filter, only the first N+1 keys are looked at.
//   - keys_only empties the value and keeps everything else, the lease included (etcd 3.7 drops
//     the lease; its field is part of what was asked for).
//   - A revision ≤ 0 is the current one.
//
// The package has no state and no goroutines.
package query
