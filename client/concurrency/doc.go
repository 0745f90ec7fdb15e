// Package concurrency has locks, elections and transactions for the programs of a cluster.
//
//	s, err := concurrency.NewSession(ctx, c, concurrency.WithTTL(10*time.Second))
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	m := concurrency.NewMutex(s, "jobs/nightly")
//	if err := m.Lock(ctx); err != nil {
//		return err
//	}
//	defer m.Unlock(ctx)
//
// # Nouns
//
// A [Session] is a lease that is kept alive. It stands for one party, and what it holds is lost when it ends. A [Mutex]
// is a lock, an [RWMutex] one for readers and writers, an [Election] a lock whose holders have a value and can be
// observed by an [Observer]. [Transact] runs a function on keys as one transaction, without locks.
// Package recipe has barriers and queues.
//
// # What a lock is worth
//
// A holder can be paused, or cut off, for longer than its lease lives. Then another gets the lock, and no lock service can take
// back what the first one does when it wakes. So:
//
//   - Stop when the session is Done, or use the context of [Mutex.WhileHeld]. The session ends by this process's clock an eighth
//     of the time to live before the lease could end on the server, whether or not anybody can be reached.
//   - What must not happen twice even so has to be guarded where it happens. For keys of the cluster, make [Mutex.IsOwner] a
//     condition of the transaction. For other resources send [Mutex.FencingToken] along, and have the resource
//     refuse a token smaller than the largest it has seen.
//
// # Keys
//
// All who want a lock or an election named n have the key n/ + the lease id in hex, without leading zeros; the oldest by create
// revision has it, and that revision is its token. This is the layout of etcd's concurrency package and of
// the services Lock and Election, and they all exclude each other. The value of the key is empty for an exclusive lock, what was
// proclaimed for an election, and lockpb.ModeShared for a reader of an RWMutex or one who asked the service Lock for a
// shared lock. Readers do not wait for readers; all others wait for all before them.
//
// One who waits watches the key before its own, so one release wakes one waiter, and its own, so that it fails at once when
// its lease ends. It leaves no key behind if it gives up.
//
// # Replies that are lost
//
// A write whose reply is lost is not blindly repeated. Queueing up is done only if the session's key is missing, and everything else only if
// the key still has the create revision it was taken with: so a repeated Unlock or Resign cannot delete a later lock, and a
// repeated Lock takes one place.
//
// # Goroutines and locks
//
// Each session has one goroutine, which ends with it. One who waits has one more until it stops waiting, and so has the context
// of WhileHeld and WhileLeader until its function is called. Session.mu, Mutex.mu and Election.mu are leaves, and never
// held during a call.
package concurrency
