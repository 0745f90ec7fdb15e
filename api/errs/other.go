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
	// ErrTimeoutWaitLeaseApplied: the leader answered about a lease and this member could not catch up in time.
	ErrTimeoutWaitLeaseApplied = condition(Unknown, "waiting for node to catch up its applied index has timed out")
)
