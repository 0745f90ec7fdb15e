// Package grpcerr carries the conditions of package errs over gRPC. The server's interceptors call
// [ToStatus] (for the services Lock and Election [ToUnknown]) on what a handler returns; the client
// calls [FromStatus] on what a call returns. All functions are pure and may be called from any
// goroutine.
package grpcerr

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/errs"
)

// ToStatus gives the gRPC status error to return from a handler for err, by the rules of
// [errs.Code]. An error that holds no condition of package errs but is or wraps a status error
// already gives that one. nil gives nil.
func ToStatus(err error) error { return convert(err, false) }

// ToUnknown is ToStatus for the services Lock and Election, whose conditions all go out with code
// Unknown and the text unchanged. Context errors and status errors of other origin keep their code.
func ToUnknown(err error) error { return convert(err, true) }

// convert is ToStatus; with hide, the code of a condition is replaced by Unknown.
func convert(err error, hide bool) error {
	if err == nil {
		return nil
	}
	var known *errs.Error
	isKnown := errors.As(err, &known)
	if !isKnown {
		if s, ok := status.FromError(err); ok {
			return s.Err()
		}
	}
	code, text := errs.Code(err)
	if isKnown && hide {
		code = uint32(errs.Unknown)
	}
	return status.Error(codes.Code(code), text)
}

// FromStatus gives the condition of package errs that the text of a status error names, whatever
// its code; errors.Is finds it there. Any other error, also a status error with another text, is
// given back as it is. nil gives nil.
//
// Whether a status Canceled or DeadlineExceeded stems from the caller's own context only the caller
// can tell; it must ask its context.
func FromStatus(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	if e, known := errs.FromText(s.Message()); known {
		return e
	}
	return err
}
