package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/client"
)

// Exit codes, those of etcdctl.
const (
	exitError       = 1
	exitConnection  = 2
	exitInput       = 3
	exitFeature     = 4
	exitInterrupted = 5
	exitIO          = 6
	exitArguments   = 128
)

// ExitError is an error with the exit code it stands for. Err may be nil: then there is nothing to say.
type ExitError struct {
	Code int
	Err  error
}

// Error gives the text of the error, or the exit code if there is none.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap gives the error.
func (e *ExitError) Unwrap() error { return e.Err }

// fail makes an error with an exit code.
func fail(code int, format string, args ...any) error {
	return &ExitError{code, fmt.Errorf(format, args...)}
}

// Report writes an error of a command as "Error: ..." and, where there is something to say, a line with the next step;
// it gives the exit code of the process. For nil it writes nothing and gives 0.
func Report(w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	code := exitError
	var exit *ExitError
	if errors.As(err, &exit) {
		code = exit.Code
		if exit.Err == nil {
			return code
		}
	}
	text, steps := explain(err)
	fmt.Fprintf(w, "Error: %s\n", text) //nolint:errcheck // there is nowhere left to say so
	for _, s := range steps {
		fmt.Fprintf(w, "  %s\n", s) //nolint:errcheck // likewise
	}
	return code
}

// explain gives the text of an error as etcdctl words it, and what to do about it.
func explain(err error) (text string, steps []string) {
	text = err.Error()
	var call *client.CallError
	if errors.As(err, &call) {
		text = plain(call.Err)
		if call.Last != nil {
			steps = append(steps, fmt.Sprintf("the last attempt, at %s, failed: %s", call.Endpoint, plain(call.Last)))
		} else if call.Endpoint != "" {
			steps = append(steps, "at endpoint "+call.Endpoint)
		}
	}
	switch {
	case errors.Is(err, client.ErrUnknownOutcome):
		steps = append(steps, "the write may or may not have happened: look before you repeat it")
	case errors.Is(err, context.DeadlineExceeded):
		steps = append(steps, "check that the server runs and that --endpoints names it, or give it more time with --command-timeout")
	default:
		for _, h := range hints {
			if errors.Is(err, h.err) {
				steps = append(steps, h.step)
			}
		}
	}
	return text, steps
}

// plain gives the text of an error without gRPC's frame.
func plain(err error) string {
	if s, ok := status.FromError(err); ok && s.Message() != "" {
		return s.Message()
	}
	return err.Error()
}

// hints are the next steps for conditions that have one.
var hints = []struct {
	err  error
	step string
}{
	{errs.ErrNoSpace, "the data quota is reached: delete keys, then `compaction` to the current revision; see `alarm list` and `endpoint status`"},
	{errs.ErrCompacted, "that revision is gone: use a newer one; the current one is in `endpoint status -w json`"},
	{errs.ErrFutureRev, "that revision does not exist yet: use an older one, or leave --rev out for the current state"},
	{errs.ErrNoLeader, "the member sees no leader: check with `endpoint status --cluster` that a majority runs"},
	{errs.ErrUserEmpty, "authentication is on: give --user name:password"},
	{errs.ErrAuthFailed, "check --user and --password"},
	{errs.ErrPermissionDenied, "the user may not do that: give another --user, or have the role granted"},
	{errs.ErrCorrupt, "members hold different data: compare them with `endpoint hashkv --cluster` before anything else"},
	{errs.ErrNotSupportedForLearner, "the endpoint is a learner: give a voting member with --endpoints"},
}
