package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// endedBySignal is what run returns when a signal asked for the end, and the process should die by it.
const endedBySignal = -1

// sameSignal is the time within which a second signal is taken for the first one: supervisors tend to signal a
// process and its group.
const sameSignal = 500 * time.Millisecond

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() { // ends with the process
		s := (<-signals).(syscall.Signal)
		cancel(&signalError{s})
		for begin := time.Now(); time.Since(begin) < sameSignal; s = (<-signals).(syscall.Signal) {
		}
		os.Exit(dieBy(&signalError{s}))
	}()
	code := run(ctx, os.Args, os.Environ(), os.Stdout, os.Stderr)
	if code == endedBySignal {
		code = dieBy(context.Cause(ctx))
	}
	os.Exit(code)
}

// signalError is the cause of a context that a signal ended.
type signalError struct{ signal syscall.Signal }

func (e *signalError) Error() string { return "received signal " + e.signal.String() }

// dieBy ends the process by the signal that asked for it. It returns an exit code where that has no effect:
// signals do not kill the first process of a container.
func dieBy(cause error) int {
	var s *signalError
	if !errors.As(cause, &s) || os.Getpid() == 1 {
		return 0
	}
	signal.Reset(s.signal)
	if err := syscall.Kill(os.Getpid(), s.signal); err != nil {
		return 1
	}
	select {} // until it arrives
}

// run is the program: args are its arguments with the name it was called by, environ the environment. It
// returns the exit code, or endedBySignal.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	name, args := filepath.Base(args[0]), args[1:]
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return serve(ctx, args, environ, stdout, stderr)
	}
	if name == "etcd" {
		return fail(stderr, fmt.Errorf("%q is not a valid flag: called by the name etcd, this program is a server and takes flags alone", args[0]))
	}
	return command(ctx, args, stdout, stderr)
}

// fail writes an error as one line and returns the exit code.
func fail(stderr io.Writer, err error) int {
	fmt.Fprintf(stderr, "coordd: %s\n", oneLine(err)) //nolint:errcheck // there is nowhere left to say so
	return 1
}

// oneLine is an error's text; errors that were joined stand on lines of their own in it. A full disk gets its
// next step here, since many parts can meet it.
func oneLine(err error) string {
	text := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	if errors.Is(err, syscall.ENOSPC) && !strings.Contains(text, "make room") {
		text += "; make room on the disk, then start again"
	}
	return text
}
