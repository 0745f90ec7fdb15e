package errs

import (
	"context"
	"errors"
	"slices"
)

// Error is one condition: an immutable sentinel, compared by identity. Its zero value is of no use;
// all there are come from this package.
type Error struct {
	kind Kind
	wire Kind
	text string
}

// Error gives the exact text the condition has on the wire.
func (e *Error) Error() string { return e.text }

// Kind gives the class of the condition: what a caller may do about it.
func (e *Error) Kind() Kind { return e.kind }

// WireCode gives the gRPC code the condition is sent with. It differs from Kind for two conditions
// only; see the package comment.
func (e *Error) WireCode() Kind { return e.wire }

// condition makes a sentinel that is sent with its kind as code.
func condition(kind Kind, text string) *Error {
	return &Error{kind: kind, wire: kind, text: text}
}

// disguised makes a sentinel that is sent with code Unknown whatever its kind.
func disguised(kind Kind, text string) *Error {
	return &Error{kind: kind, wire: Unknown, text: text}
}

// Code gives what to send for err: a gRPC code number and a text. It is, in this order: those of
// the first *Error in the tree of err; Canceled or DeadlineExceeded, with the whole text, if err is
// or wraps the context error of that name; otherwise Unknown with the whole text. For nil it gives
// OK and no text.
func Code(err error) (code uint32, text string) {
	if err == nil {
		return uint32(OK), ""
	}
	var e *Error
	switch {
	case errors.As(err, &e):
		return uint32(e.wire), e.text
	case errors.Is(err, context.Canceled):
		return uint32(Canceled), err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return uint32(DeadlineExceeded), err.Error()
	}
	return uint32(Unknown), err.Error()
}

// KindOf gives the kind of err by the rules of [Code], but with the true kind of the two conditions
// whose wire code is another.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.kind
	}
	code, _ := Code(err)
	return Kind(code)
}

// FromText gives the condition with exactly this text.
func FromText(text string) (*Error, bool) {
	e, ok := byText[text]
	return e, ok
}

// All gives every condition, in the order of their definition. The slice is the caller's own.
func All() []*Error { return slices.Clone(table) }
