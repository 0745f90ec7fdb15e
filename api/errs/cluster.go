package errs

// Conditions of membership, leadership and downgrades.
var (
	// ErrMemberExist: a member is added whose id exists.
	ErrMemberExist = condition(FailedPrecondition, "etcdserver: member ID already exist")
	// ErrPeerURLExist: a member is added, or given, a peer URL another member has.
	ErrPeerURLExist = condition(FailedPrecondition, "etcdserver: Peer URLs already exists")
	// ErrMemberNotEnoughStarted: the change of membership would leave too few started members for a quorum; sent with code Unknown.
	ErrMemberNotEnoughStarted = disguised(FailedPrecondition, "etcdserver: re-configuration failed due to not enough started members")
	// ErrMemberBadURLs: the URLs of a member do not parse.
	ErrMemberBadURLs = condition(InvalidArgument, "etcdserver: given member URLs are invalid")
	// ErrMemberNotFound: there is no such member, or it was removed.
	ErrMemberNotFound = condition(NotFound, "etcdserver: member not found")
	// ErrMemberNotLearner: a member is promoted that votes already.
	ErrMemberNotLearner = condition(FailedPrecondition, "etcdserver: can only promote a learner member")
	// ErrMemberLearnerNotReady: a learner is promoted that is too far behind the leader.
	ErrMemberLearnerNotReady = condition(FailedPrecondition, "etcdserver: can only promote a learner member which is in sync with leader")
	// ErrTooManyLearners: the cluster has as many learners as allowed.
	ErrTooManyLearners = condition(FailedPrecondition, "etcdserver: too many learner members in cluster")
	// ErrClusterIDMismatch: the request is meant for another cluster.
	ErrClusterIDMismatch = condition(FailedPrecondition, "etcdserver: cluster ID mismatch")
	// ErrNotSupportedForLearner: a learner is asked for what only voters do.
	ErrNotSupportedForLearner = condition(FailedPrecondition, "etcdserver: rpc not supported for learner")
	// ErrBadLeaderTransferee: the leadership is moved to what cannot lead.
	ErrBadLeaderTransferee = condition(FailedPrecondition, "etcdserver: bad leader transferee")
	// ErrNoLeader: the member knows no leader.
	ErrNoLeader = condition(Unavailable, "etcdserver: no leader")
	// ErrNotLeader: only the leader can do it and the member is not.
	ErrNotLeader = condition(FailedPrecondition, "etcdserver: not leader")
	// ErrLeaderChanged: the leader changed while the request was under way.
	ErrLeaderChanged = condition(Unavailable, "etcdserver: leader changed")
	// ErrWrongDowngradeVersionFormat: the target of a downgrade is not a version.
	ErrWrongDowngradeVersionFormat = condition(InvalidArgument, "etcdserver: wrong downgrade target version format")
	// ErrInvalidDowngradeTargetVersion: the target of a downgrade is not the version one minor below.
	ErrInvalidDowngradeTargetVersion = condition(InvalidArgument, "etcdserver: invalid downgrade target version")
	// ErrClusterVersionUnavailable: the version of the cluster is not decided yet.
	ErrClusterVersionUnavailable = condition(FailedPrecondition, "etcdserver: cluster version not found during downgrade")
	// ErrDowngradeInProcess: a downgrade is going on already.
	ErrDowngradeInProcess = condition(FailedPrecondition, "etcdserver: cluster has a downgrade job in progress")
	// ErrNoInflightDowngrade: a downgrade is canceled and none is going on.
	ErrNoInflightDowngrade = condition(FailedPrecondition, "etcdserver: no inflight downgrade job")
)
