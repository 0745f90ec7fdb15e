// Package lock gives locks, elections and semaphores on one member: queues of keys, written with transactions, followed on the
// watch hub, alive as long as their leases. It is no client of the server it runs in.
//
// # Who calls what
//
// The gRPC services of package rpc call the methods of a [Service], which take and give the messages of the API. The Service calls the
// member: a [Store], which package server's Node is, and its watch.Hub. A caller's [Connection] comes with the calls that may make a
// session. A caller waits at the member it is connected to, whoever leads the cluster; what it waits for are events that are
// committed, so a change of leader costs time and nothing else. Who the caller is matters when it comes, not when it is served.
//
// # Nouns
//
// A queue is all keys below name/. A place is one of them: name/ and the id of its lease in hex, as etcd's clients make it, so
// they stand in the same queues. A place's order is its create revision, which also is the fencing token. Its value is empty for an
// ordinary lock, what the candidate proclaims for an election, and otherwise the mode (key.go):
//
//	NUL "coordd-lock" [" shared"] [" limit=" N] [" guard=" lease in hex] [" guards=" lease in hex]
//
// A mode that cannot be read is exclusive, which is safe. The front is the longest beginning of a queue whose places may
// hold together: one exclusive place; or shared ones; or as many of a semaphore as its limit. Nobody overtakes, so whoever is at
// the front stays there until its key is gone, and fencing tokens grow.
//
// # How an asker is served
//
// One transaction puts the key, unless it is there, and reads two keys of the queue: if there is only its own, it holds the lock. That is
// all an uncontended lock costs, and it does not grow with the queue. Otherwise the asker enters the line of that name.
//
// A line is a member's view of one queue: read once, then kept by events. There is one as long as somebody waits or looks. All lines
// have their watchers on one stream of the hub, read by one goroutine, the dispatcher. After each revision it works out
// the front, and tells the tickets of the places that have come to it; so one release wakes one waiter, whether there are two or ten
// thousand, and who waits costs a ticket and the goroutine of its call. A ticket is told at most twice: that its place is at the
// front, and that its key is gone. A waiter whose lease ends hears the latter at once. The ticket of a Hold stream is also told how many are
// ahead, when that has become a milestone: each number up to eight, and above it the powers of two. So among ten thousand of them a
// release tells a few, and each about twenty times in all. When a compaction has taken events that a
// line had not got, its queue is read again, and the tickets are told what that shows.
//
// A hand-over is one log entry, the deletion. Waiters read and write nothing in it. Where the queue is long, the key of who comes is
// written with the next release (writer in place.go), so a hand-over in a busy queue also costs one flush of the log on each member, not two.
//
// An asker that gives up takes the key that it made out of the queue before its call returns, if no call has written it since: one that asks
// with the same lease at the same member meanwhile writes it again, and so keeps what it is told. Of two calls with one lease at two members
// the one that made the key takes it along; the other is told that its place is gone. What two calls have written, and what comes of a write
// with an unknown outcome, as when a leader was lost, stays when both give up: the next call with that lease takes it over, or it ends with the lease.
// A call that asks for the lock in another mode than that of the place its lease has is refused: as shared, that place holds beside others.
//
// # Leases, sessions and guards
//
// Answers say what the lease has left at least. That is asked of the cluster's leader, when an asker begins to wait, and is remembered
// while more than half of the time is left for certain (ttl.go).
//
// A session is a lease made for an asker with lease 0, one for each call, since a lease that asks twice gets the same place. A timer
// renews it four times in its time to live; it ends, which deletes its keys, when the asker's connection ends, when the lock is given
// back (at another member: at the next renewal), and when the call fails.
//
// A guard keeps a lock that its holder has lost from others for a lock delay, as their place in the queue is behind it. It is a
// second key of the queue with a lease of its own, put by the same transaction, idle while the place it guards is there. The member renews it
// until the place is gone, and ends it a delay later. Giving a lock back ends its guard at once. If the member ends, the guard
// runs out by itself: the delay is then not promised, but nothing stays locked.
//
// # Giving back
//
// A key is deleted only if it is a place in a queue: its name ends in the lease it is attached to. With a token, only if that is its
// create revision. So no late or repeated release takes the lock from a later holder, and no data is lost to a wrong key.
//
// # Goroutines and locks
//
// The dispatcher runs while there are lines, and ends with the hub. Renewals and ends of sessions run for one call of the store each; a
// guard has one goroutine. [Service.Close] waits for all. Service.mu guards lines, tickets, the dispatcher and the list of sessions; it is
// held for a time in proportion to the front, never while reading or writing the store, but while making a watcher (Hub.mu comes
// after it). observer.mu and session.mu are taken after Service.mu or alone; session.mu is given up before Service.mu is taken.
package lock
