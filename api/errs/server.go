package errs

// Conditions of the server as a whole.
var (
	// ErrNotCapable: the version of the cluster does not have the feature yet.
	ErrNotCapable = condition(FailedPrecondition, "etcdserver: not capable")
	// ErrStopped: the server is stopping.
	ErrStopped = condition(Unavailable, "etcdserver: server stopped")
	// ErrTimeout: the request was not done in time; a write may still happen.
	ErrTimeout = condition(Unavailable, "etcdserver: request timed out")
	// ErrTimeoutDueToLeaderFail: as ErrTimeout, and the leader was lost meanwhile.
	ErrTimeoutDueToLeaderFail = condition(Unavailable, "etcdserver: request timed out, possibly due to previous leader failure")
	// ErrTimeoutDueToConnectionLost: as ErrTimeout, and the connection to the leader was lost meanwhile.
	ErrTimeoutDueToConnectionLost = condition(Unavailable, "etcdserver: request timed out, possibly due to connection lost")
	// ErrTimeoutWaitAppliedIndex: a read did not see its point of the log applied in time.
	ErrTimeoutWaitAppliedIndex = condition(Unavailable, "etcdserver: request timed out, waiting for the applied index took too long")
	// ErrUnhealthy: the cluster has no healthy quorum.
	ErrUnhealthy = condition(Unavailable, "etcdserver: unhealthy cluster")
	// ErrCorrupt: members hold different data.
	ErrCorrupt = condition(DataLoss, "etcdserver: corrupt cluster")
	// ErrCanceled: the server gave the request up.
	ErrCanceled = condition(Canceled, "etcdserver: request canceled")
	// ErrDeadlineExceeded: the server ran out of the time of the request.
	ErrDeadlineExceeded = condition(DeadlineExceeded, "etcdserver: context deadline exceeded")
)
