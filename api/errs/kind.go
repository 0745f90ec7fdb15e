package errs

import "strconv"

// Kind classes conditions. Its values are the gRPC status codes, by number.
type Kind uint32

// The kinds. The comments say what each means here.
const (
	OK                 Kind = 0  // no error
	Canceled           Kind = 1  // the caller gave up
	Unknown            Kind = 2  // not classified
	InvalidArgument    Kind = 3  // the request is wrong and will stay wrong
	DeadlineExceeded   Kind = 4  // the time of the caller ran out; a write may or may not have happened
	NotFound           Kind = 5  // the thing named does not exist
	AlreadyExists      Kind = 6  // the thing named exists
	PermissionDenied   Kind = 7  // the caller is known and may not
	ResourceExhausted  Kind = 8  // a quota or a limit is reached
	FailedPrecondition Kind = 9  // the state of the cluster does not allow it
	Aborted            Kind = 10 // a conflict with another call
	OutOfRange         Kind = 11 // a revision or a time outside of what there is
	Unimplemented      Kind = 12 // the server has no such call
	Internal           Kind = 13 // a broken invariant
	Unavailable        Kind = 14 // try again, perhaps at another member; a write may or may not have happened
	DataLoss           Kind = 15 // the data cannot be trusted
	Unauthenticated    Kind = 16 // the caller is not known
)

// kindNames are the names of the kinds by their number.
var kindNames = [...]string{
	"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
	"PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange",
	"Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated",
}

// String gives the name gRPC uses for the code.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "Code(" + strconv.FormatUint(uint64(k), 10) + ")"
}
