// Package errs is the one list of everything that can go wrong on the wire API. Each condition is
// defined once, as a sentinel: its kind, which is a gRPC code number, and its text, which is
// exactly the text clients of the v3 API match. The text is protocol; the code is a hint, since
// clients in Go find the condition by the text alone.
//
// # Use
//
// Server packages return the sentinels, wrapped with %w when there is something to add for the
// log. At the border one interceptor calls [Code] (by way of package grpcerr), which finds the
// sentinel with errors.As and sends its bare text; what was wrapped around it stays inside. The
// client maps the text back with [FromText], so that errors.Is(err, errs.ErrCompacted) holds on
// both sides. Nothing here imports gRPC, so the core stays free of it.
//
// # Kind and wire code
//
// Nearly always the code on the wire is the kind. The exceptions are a matter of compatibility:
// ErrMemberNotEnoughStarted (kind FailedPrecondition) and ErrTooManyRequests (kind
// ResourceExhausted) have always gone out with code Unknown, and clients restore the kind from the
// text. The conditions of other.go have no code of their own at all: they are Unknown in both
// respects. The services Lock and Election send every condition of the v3 API with code Unknown; package
// grpcerr has a function for them. The kinds in lock.go are what a client learns all the same.
//
// # Adding one
//
// Declare it in the file of its topic, add it to the list in table.go, and to the table of the
// test, which fails otherwise.
package errs
