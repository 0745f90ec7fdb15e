package errs

// Conditions of leases.
var (
	// ErrLeaseNotFound: there is no such lease.
	ErrLeaseNotFound = condition(NotFound, "etcdserver: requested lease not found")
	// ErrLeaseExist: a lease is asked for by an id that exists.
	ErrLeaseExist = condition(FailedPrecondition, "etcdserver: lease already exists")
	// ErrLeaseTTLTooLarge: a lease is asked for with a longer time to live than allowed.
	ErrLeaseTTLTooLarge = condition(OutOfRange, "etcdserver: too large lease TTL")
)
