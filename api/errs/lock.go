package errs

// Conditions of locks and elections. The services Lock and Election send those that the v3 API has, the first four, as Unknown, by
// grpcerr.ToUnknown; coordd's own services send the kind.
var (
	// ErrSessionExpired: the lease of one who waits for a lock ended.
	ErrSessionExpired = condition(NotFound, "mutex: session is expired")
	// ErrElectionNotLeader: the leadership shown is not the present one.
	ErrElectionNotLeader = condition(FailedPrecondition, "election: not leader")
	// ErrElectionNoLeader: nobody leads.
	ErrElectionNoLeader = condition(NotFound, "election: no leader")
	// ErrElectionLeaderMissing: a request lacks the proof of leadership.
	ErrElectionLeaderMissing = condition(InvalidArgument, `"leader" field must be provided`)
	// ErrNotLock: the key exists and is no place in the queue of a lock or election.
	ErrNotLock = condition(FailedPrecondition, "lock: the key is not that of a lock or election")
	// ErrMixedLimits: the name is used with another limit, or is no semaphore.
	ErrMixedLimits = condition(FailedPrecondition, "lock: the name is in use with another limit; all askers must give the same")
	// ErrOtherMode: the lease stands in the queue already, and as something else.
	ErrOtherMode = condition(FailedPrecondition, "lock: the lease has a place in the queue already, shared where exclusive is asked for, or the other way round, or with another limit; give that back first")
	// ErrLockRequest: the fields of a request contradict each other, or are negative.
	ErrLockRequest = condition(InvalidArgument, "lock: the fields of the request contradict each other")
)
