// Package check holds the rules about requests that need nothing but the request: whether it is
// well formed, what it costs against the quota, and whether it only reads.
//
// The server and its RPC services ask before they propose or read: [Range], [Put], [DeleteRange]
// and [Txn] return nil or the exact error of the API. The applier asks the cheap ones again, so
// that an entry which no server here would have proposed gets an error and not a surprise. All
// functions are pure and may be called by any goroutine.
//
// # Intervals
//
// On the wire a pair (key, range_end) is one key if range_end is empty, all keys from key on
// if range_end is one zero byte, else the half-open interval [key, range_end), which is empty when key
// is not below range_end.
//
// # Transactions that write a key twice
//
// All writes of a transaction happen at one revision, so a key may be written by one
// operation only. In one list of operations, no two may be in conflict, where a nested transaction
// counts with the writes of both its branches. A put conflicts with a put of the same key and
// with a deletion whose interval holds the key; deletions do not conflict with each other, reads with
// nothing. The two branches of one transaction exclude each other and are not compared.
//
// The search sorts the puts by key and sweeps over the deletions, keeping for each position
// the two furthest ends that belong to different operations: the furthest alone would hide a
// conflict when it belongs to the same operation as the put. Lists of nested transactions are
// merged upwards. For n writes, nested d deep, it costs O(d n log n) at worst, and d and the
// length of each list are bounded by the limit on operations.
package check
