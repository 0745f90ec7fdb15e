package client

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/errs"
)

var (
	// ErrUnknownOutcome is what errors.Is finds in the error of a write that may or may not have
	// been applied; see the package comment.
	ErrUnknownOutcome = errors.New("client: the write may or may not have been applied")
	// ErrClosed: the client, or the watcher or keeper asked, was closed.
	ErrClosed = errors.New("client: closed")
	// ErrNoEndpoints: a list of endpoints is empty.
	ErrNoEndpoints = errors.New("client: no endpoints given")
	// ErrLeaseUnconfirmed ends a keeper with [EndWhenUnconfirmed] whose lease could not be renewed before
	// its time to live had passed. The lease may or may not still exist.
	ErrLeaseUnconfirmed = errors.New("client: lease could not be renewed in time and may have expired")
)

// CallError is trouble between the client and a server that gave a definite answer: the context
// ended, an endpoint could not be reached, or the answer leaves open what happened.
type CallError struct {
	// Method is the full name of the call, such as /etcdserverpb.KV/Put.
	Method string
	// Endpoint is the one tried last; empty if none was.
	Endpoint string
	// MaybeApplied says that the call is a write that may or may not have happened.
	MaybeApplied bool
	// Err is what ended the call: a context error, a condition of package errs or a gRPC status error.
	Err error
	// Last is the failure of the last attempt, if Err is a context error and an attempt failed before.
	Last error
}

// Error gives the cause, the last failure if the time ran out, and whether the outcome is unknown.
func (e *CallError) Error() string {
	var b strings.Builder
	b.WriteString(describe(e.Err))
	if e.Endpoint != "" {
		fmt.Fprintf(&b, " (endpoint %s", e.Endpoint)
		if e.Last != nil {
			fmt.Fprintf(&b, ": %s", describe(e.Last))
		}
		b.WriteByte(')')
	}
	if e.MaybeApplied {
		b.WriteString("; the write may or may not have been applied")
	}
	return b.String()
}

// Unwrap gives the cause and the last failure.
func (e *CallError) Unwrap() []error {
	if e.Last != nil {
		return []error{e.Err, e.Last}
	}
	return []error{e.Err}
}

// Is finds ErrUnknownOutcome.
func (e *CallError) Is(target error) bool { return target == ErrUnknownOutcome && e.MaybeApplied }

// describe gives the text of an error, without gRPC's "rpc error: code = ..." in front.
func describe(err error) string {
	if s, ok := status.FromError(err); ok && s.Message() != "" {
		return s.Message()
	}
	return err.Error()
}

// CompactedError ends a watcher whose next revision the server does not have any more. It is
// errs.ErrCompacted for errors.Is. To go on, read the keys anew and watch from the revision of that read.
type CompactedError struct {
	// NextRevision is the revision the watcher had to go on from.
	NextRevision int64
	// CompactRevision is the oldest revision a watch can start from; 0 if the server does not say.
	CompactRevision int64
}

// Error names both revisions.
func (e *CompactedError) Error() string {
	return fmt.Sprintf("%v (needed revision %d, oldest is %d)", errs.ErrCompacted, e.NextRevision, e.CompactRevision)
}

// Unwrap gives errs.ErrCompacted.
func (e *CompactedError) Unwrap() error { return errs.ErrCompacted }
