package lockpb

// The value of a key in the queue of a lock is empty for an ordinary, exclusive lock. Otherwise it is ModeMark and words, each after
// a space, which say how the key shares the lock; package server/lock lists them. Servers and clients of every version read these values, so they never change.
const (
	// ModeMark begins a value that is not empty.
	ModeMark = "\x00coordd-lock"
	// ModeShared is the value of one who holds, or waits, together with others of the same value.
	ModeShared = ModeMark + " " + WordShared
	// WordShared is the word of a shared lock.
	WordShared = "shared"
	// WordLimit is, before "=" and a decimal number, the word of a semaphore.
	WordLimit = "limit"
	// WordGuard is, before "=" and a lease in hex, the word of a lock with a guard that keeps it from others after an involuntary loss.
	WordGuard = "guard"
	// WordGuards is, before "=" and a lease in hex, the word of such a guard: it stands behind the key of that lease.
	WordGuards = "guards"
)
