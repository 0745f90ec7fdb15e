package ordering

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrStale: a member answered a read from before what this client has seen.
var ErrStale = errors.New("ordering: the member lags behind what this client has seen")

// Violation is an answer that was not accepted. It is an error, and ErrStale for errors.Is.
type Violation struct {
	// Method is the full name of the call, such as /etcdserverpb.KV/Range.
	Method string
	// Endpoint is the address of the member that lags, as it was dialled.
	Endpoint string
	// Got is the revision of the answer.
	Got int64
	// Seen is the revision that the client had seen when the call began.
	Seen int64
}

// Error names the endpoint and both revisions.
func (v *Violation) Error() string {
	return fmt.Sprintf("%v: %s answered at revision %d, after %d", ErrStale, v.Endpoint, v.Got, v.Seen)
}

// Is finds ErrStale.
func (v *Violation) Is(target error) bool { return target == ErrStale }

// elsewhere is a violation after which the read is repeated. To package client it is a member that is not available.
type elsewhere struct{ *Violation }

// Unwrap gives the violation.
func (e *elsewhere) Unwrap() error { return e.Violation }

// GRPCStatus has the client go on at another member.
func (e *elsewhere) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }
