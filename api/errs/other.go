package errs

// Conditions without a code of their own: they have always been sent as Unknown, and clients know them by their text alone.
var (
	// ErrNotPrimaryLessor: a keepalive reaches a leader that cannot confirm its leadership.
	ErrNotPrimaryLessor = condition(Unknown, "not a primary lessor")
	// ErrNoPasswordUser: a password is given for a user who has none.
	ErrNoPasswordUser = condition(Unknown, "auth: authentication failed, password was given for no password user")
	// ErrVerifyOnlyKey: a token is asked for from a server that holds only the public key.
	ErrVerifyOnlyKey = condition(Unknown, "auth: token signing attempted with verify-only key")
	// ErrPasswordTooLong: a password is longer than the hash takes.
	ErrPasswordTooLong = condition(Unknown, "bcrypt: password length exceeds 72 bytes")
	// ErrTimeoutLeaderTransfer: the leadership did not move in time.
	ErrTimeoutLeaderTransfer = condition(Unknown, "etcdserver: request timed out, leader transfer took too long")
	// ErrUnknownMethod: a downgrade request asks for an unknown action.
	ErrUnknownMethod = condition(Unknown, "etcdserver: unknown method")
	// ErrSessionExpired: the lease of one who waits for a lock ended.
	ErrSessionExpired = condition(Unknown, "mutex: session is expired")
	// ErrElectionNotLeader: the leadership shown is not the present one.
	ErrElectionNotLeader = condition(Unknown, "election: not leader")
	// ErrElectionNoLeader: nobody leads.
	ErrElectionNoLeader = condition(Unknown, "election: no leader")
	// ErrElectionLeaderMissing: a request lacks the proof of leadership.
	ErrElectionLeaderMissing = condition(Unknown, `"leader" field must be provided`)
	// ErrTimeoutWaitLeaseApplied: the leader answered about a lease and this member could not catch up in time.
	ErrTimeoutWaitLeaseApplied = condition(Unknown, "waiting for node to catch up its applied index has timed out")
)
