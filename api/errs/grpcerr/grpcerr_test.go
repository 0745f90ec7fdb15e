package grpcerr_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/errs/grpcerr"
)

// TestKinds holds the kinds of package errs, which must not import gRPC, against gRPC's codes.
func TestKinds(t *testing.T) {
	for k := errs.OK; k <= errs.Unauthenticated; k++ {
		if k.String() != codes.Code(k).String() {
			t.Errorf("kind %d is %q, gRPC calls it %q", k, k, codes.Code(k))
		}
	}
	if got, want := errs.Kind(99).String(), codes.Code(99).String(); got != want {
		t.Errorf("kind 99 is %q, gRPC calls it %q", got, want)
	}
}

// TestRoundTrip sends every condition, wrapped, from server to client.
func TestRoundTrip(t *testing.T) {
	for _, e := range errs.All() {
		for name, send := range map[string]func(error) error{"ToStatus": grpcerr.ToStatus, "ToUnknown": grpcerr.ToUnknown} {
			sent := send(fmt.Errorf("inside: %w", e))
			want := codes.Code(e.WireCode())
			if name == "ToUnknown" {
				want = codes.Unknown
			}
			s, ok := status.FromError(sent)
			if !ok || s.Code() != want || s.Message() != e.Error() {
				t.Errorf("%s(%q) = %v, want code %v and the bare text", name, e, sent, want)
			}
			if got := grpcerr.FromStatus(sent); got != error(e) {
				t.Errorf("FromStatus(%v) = %v, want the sentinel", sent, got)
			}
		}
	}
}

func TestToStatusOthers(t *testing.T) {
	tests := []struct {
		err  error
		code codes.Code
		text string
	}{
		{context.Canceled, codes.Canceled, "context canceled"},
		{context.DeadlineExceeded, codes.DeadlineExceeded, "context deadline exceeded"},
		{errors.New("disk on fire"), codes.Unknown, "disk on fire"},
		{status.Error(codes.Unimplemented, "no such method"), codes.Unimplemented, "no such method"},
	}
	for _, tt := range tests {
		for _, got := range []error{grpcerr.ToStatus(tt.err), grpcerr.ToUnknown(tt.err)} {
			if s, ok := status.FromError(got); !ok || s.Code() != tt.code || s.Message() != tt.text {
				t.Errorf("%v is sent as %v, want %v %q", tt.err, got, tt.code, tt.text)
			}
		}
	}
	if grpcerr.ToStatus(nil) != nil || grpcerr.ToUnknown(nil) != nil || grpcerr.FromStatus(nil) != nil {
		t.Error("nil does not stay nil")
	}
}

// TestFromStatusOthers leaves alone what is not a known text.
func TestFromStatusOthers(t *testing.T) {
	for _, err := range []error{status.Error(codes.Unavailable, "transport is closing"), context.Canceled, errors.New("x"), errs.ErrNoLeader} {
		if got := grpcerr.FromStatus(err); got != err {
			t.Errorf("FromStatus(%v) = %v", err, got)
		}
	}
}
