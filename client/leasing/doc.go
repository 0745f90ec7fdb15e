// Package leasing answers reads of single keys from memory, and stays linearizable: a read sees every write finished before it
// began, whoever made it.
//
//	kv, err := leasing.New(ctx, c, "leases/")
//	if err != nil {
//		return err
//	}
//	defer kv.Close()
//	r, err := kv.Get(ctx, "config") // the second one asks nobody
//
// It is for keys that one program reads far more often than anybody changes them. If many programs read the same keys, package
// cache fits better.
//
// # Nouns
//
// A [KV] stands for one party. Of all parties with the same leasing prefix at most one has the hold on a key. The holder answers
// reads of it from memory, and its own writes go straight through. Everybody else reads at the server; one who wants to write asks
// the holder to give the key up, waits until it has, and writes then. A KV takes the hold on a key when it reads it and nobody has it.
//
// # Keys
//
// The hold on key k is the leasing key prefix + k, on the lease of the holder, with an empty value. To ask for it, one puts the value
// "REVOKE", keeping the lease. The holder gives up by deleting it. This is the layout of etcd's package leasing, and both work together on one
// prefix.
//
// # What every party does
//
//  1. A key is taken, or written by one without the hold, in a transaction on the condition that its leasing key does not exist. A
//     range is deleted on the condition that there is none for all of the range.
//  2. A holder writes on the condition that the leasing key has the create revision it was taken at.
//  3. A holder forgets what it knows before it deletes the leasing key.
//  4. A key that is on a lease of the user's is never held: it can go without anybody's asking.
//
// So while the leasing key exists nobody but the holder changes the key, and a write that is under way for long, even one given up as
// lost, is void once the hold it was made under has gone. Watches only make things quick: nothing becomes wrong if a watch lags.
//
// One who writes to the keys without this package breaks the promise unless it makes client.KeyMissing(prefix+key) a condition. Reads
// without this package are in order. Revoking a lease or deleting leasing keys by hand breaks it too, until the holder has
// heard of that.
//
// # Time
//
// A hold is worth nothing once its lease may have ended. So each read that is answered from memory looks at the clock: it must be an eighth of
// the time to live before the last acknowledged renewal, counted from when it was sent, runs out. This is asked of
// the monotonic clock and of the wall clock, since the former stands still while some machines sleep. A process that was paused therefore
// answers nothing old, however long it takes to notice. What remains is a clock that runs slower than the server's by more than an eighth.
//
// # When things go wrong
//
//   - A holder dies: its keys can be read, and be written once its lease has ended.
//   - A holder is cut off: the same; its reads go to the server, that is, they wait. When it is back it has a new lease and takes keys anew.
//   - The outcome of a holder's write is unknown: it gives the key up. The caller gets client.ErrUnknownOutcome.
//   - The outcome of taking a key is unknown: a leasing key may come to be later that nobody would give up. So the lease is
//     revoked, which no late request survives, and the KV begins anew with another.
//
// # What is answered from memory
//
// Get of one key, without a revision or bounds on revisions; and transactions whose conditions and operations, in the branch that is
// done, are all on keys held and only read. What is counted, and keys alone, is too. The revision in the header is the largest this KV has
// seen, at which the answer was true. Everything else goes to the server. Ranges show leasing keys that lie in them; a Delete
// leaves them out, since otherwise it would delete the holds of others unasked.
//
// # Fairness
//
// One who has given a key up, or has found it held by another, does not try to take it for some time ([WithRest]). So a
// writer meets each other party once in that time at most.
//
// # Goroutines and locks
//
// Each KV has one goroutine that keeps its lease, from New to Close; one for each hold, which watches the leasing key; and one for each
// key being taken, which belongs to no caller so that a caller who gives up does not leave the outcome unknown. They end with the lease at
// the latest, and Close waits for them. KV.mu guards all state. It is held for no call. What is answered from memory takes
// it for reading, and looks at the clock under it.
package leasing
