// Package verify checks that the program is as its author believes it to be.
//
// There are two prices. [Assert] is for conditions that cost next to nothing; it is always on,
// since a store that has lost its footing must stop before it writes. [Level.Expensive] is for
// checks that walk over data, such as comparing an index with the rows it was built from; they run
// where somebody asked for them by setting the environment variable COORDD_VERIFY (see [FromEnv]),
// as the project's tests do.
//
// A failed check panics. Checks are therefore for broken invariants only: what a user, a peer or a
// disk sent is validated and answered with an error.
//
// The package keeps no state. The program reads the level once, at the top, and passes it to the parts
// that have expensive checks; the zero Level is the cheap one.
package verify

import "fmt"

// Env is the environment variable that [FromEnv] reads.
const Env = "COORDD_VERIFY"

// Level says which checks run. Its zero value is Cheap.
type Level uint8

const (
	// Cheap runs only the assertions that cost next to nothing.
	Cheap Level = iota
	// All runs the expensive checks too.
	All
)

// FromEnv reads the level from [Env] through getenv, usually os.Getenv: unset or "cheap" is
// [Cheap], "all" is [All]. Anything else is an error that names the variable, and the level
// returned with it is Cheap.
func FromEnv(getenv func(string) string) (Level, error) {
	switch v := getenv(Env); v {
	case "", "cheap":
		return Cheap, nil
	case "all":
		return All, nil
	default:
		return Cheap, fmt.Errorf("verify: %s=%q: want %q, or %q to switch on expensive checks", Env, v, "cheap", "all")
	}
}

// Expensive runs check if the level asks for expensive checks. check panics, usually by Assert,
// when the invariant does not hold. It runs on the calling goroutine, under whatever locks that
// holds.
func (l Level) Expensive(check func()) {
	if l >= All {
		check()
	}
}

// Assert panics unless cond holds. The message is made by fmt.Sprintf from format and args, which
// should name the values that broke the rule; they are evaluated on every call, so on hot paths
// pass what is at hand.
func Assert(cond bool, format string, args ...any) {
	if !cond {
		panic("broken invariant: " + fmt.Sprintf(format, args...))
	}
}
