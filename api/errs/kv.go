package errs

// Conditions of the key space: reads, writes, transactions, compaction, watches.
var (
	// ErrEmptyKey: a request names no key.
	ErrEmptyKey = condition(InvalidArgument, "etcdserver: key is not provided")
	// ErrKeyNotFound: a put with ignore_value or ignore_lease names a key that does not exist.
	ErrKeyNotFound = condition(InvalidArgument, "etcdserver: key not found")
	// ErrValueProvided: a put with ignore_value brings a value.
	ErrValueProvided = condition(InvalidArgument, "etcdserver: value is provided")
	// ErrLeaseProvided: a put with ignore_lease brings a lease.
	ErrLeaseProvided = condition(InvalidArgument, "etcdserver: lease is provided")
	// ErrTooManyOps: a transaction has more operations than the limit.
	ErrTooManyOps = condition(InvalidArgument, "etcdserver: too many operations in txn request")
	// ErrDuplicateKey: a transaction writes a key twice.
	ErrDuplicateKey = condition(InvalidArgument, "etcdserver: duplicate key given in txn request")
	// ErrInvalidClientAPIVersion: the client-api-version metadata is not valid text.
	ErrInvalidClientAPIVersion = condition(InvalidArgument, "etcdserver: invalid client api version")
	// ErrInvalidSortOption: a range asks for an unknown order or target of sorting.
	ErrInvalidSortOption = condition(InvalidArgument, "etcdserver: invalid sort option")
	// ErrCompacted: the revision asked for is compacted.
	ErrCompacted = condition(OutOfRange, "etcdserver: mvcc: required revision has been compacted")
	// ErrFutureRev: the revision asked for has not come yet.
	ErrFutureRev = condition(OutOfRange, "etcdserver: mvcc: required revision is a future revision")
	// ErrNoSpace: the data file has reached its quota.
	ErrNoSpace = condition(ResourceExhausted, "etcdserver: mvcc: database space exceeded")
	// ErrWatchCanceled: a watch stream is ended by the server.
	ErrWatchCanceled = condition(Canceled, "etcdserver: watch canceled")
	// ErrRequestTooLarge: a request is longer than the limit.
	ErrRequestTooLarge = condition(InvalidArgument, "etcdserver: request is too large")
	// ErrTooManyRequests: the server has too many writes under way; sent with code Unknown.
	ErrTooManyRequests = disguised(ResourceExhausted, "etcdserver: too many requests")
)
