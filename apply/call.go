package apply

import (
	"github.com/coordd/coordd/api/requestpb"
	"github.com/coordd/coordd/lease"
	"github.com/coordd/coordd/mvcc"
)

// Call is one request at its place in the log, with all that may influence its outcome besides
// the state itself.
type Call struct {
	// Index and Term are the position of the entry.
	Index, Term uint64
	// Request holds the request itself, and in its header who asks (username and auth_revision)
	// and the lease_term. Its bytes may point into the entry: copy what outlives the call.
	Request *requestpb.InternalRaftRequest
	// Wanted: someone on this member waits for the response. Otherwise reading that has no
	// effect on the state is left out, and the response may be nil.
	Wanted bool
}

// Result is the outcome of one entry.
type Result struct {
	// Request is what was carried out, nil for an entry without a request. It points into the entry, and is
	// valid until the next call of Apply.
	Request *requestpb.InternalRaftRequest
	// Response is what the client gets, such as *rpcpb.PutResponse, with no more than the
	// revision set in its header. It is nil on error, and for requests without a response.
	Response any
	// Err is why nothing was done. It is the same on every member.
	Err error
	// Events are the changes of keys, in order. They share one main revision.
	Events []mvcc.Event
	// Leases are the changes of the lease table, in order, for lease.Expirer.Observe.
	Leases []lease.Change
}

// Applier is one link of the chain an entry goes through: a decorator that refuses some calls and
// passes the others on, or, at the end, the executor that does the work.
type Applier interface {
	Apply(c *Call) Result
}

func failed(err error) Result { return Result{Err: err} }
