package client_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/errs/grpcerr"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

// scanned answers ranges over n keys k000, k001, ... at revision 9.
func scanned(n int) func(context.Context, *rpcpb.RangeRequest) (*rpcpb.RangeResponse, error) {
	return func(_ context.Context, r *rpcpb.RangeRequest) (*rpcpb.RangeResponse, error) {
		if r.Revision > 9 {
			return nil, grpcerr.ToStatus(errs.ErrFutureRev)
		}
		resp := &rpcpb.RangeResponse{Header: &rpcpb.ResponseHeader{Revision: 9}}
		for i := range n {
			key := fmt.Appendf(nil, "k%03d", i)
			if !inRange(key, r.Key, r.RangeEnd) {
				continue
			}
			resp.Count++
			switch {
			case r.CountOnly:
			case r.Limit > 0 && int64(len(resp.Kvs)) == r.Limit:
				resp.More = true
			default:
				resp.Kvs = append(resp.Kvs, &kvpb.KeyValue{Key: key})
			}
		}
		return resp, nil
	}
}

// streamed answers range streams likewise, in messages of 10 keys, and calls after each.
func streamed(m *member, each func(sent int)) func(*rpcpb.RangeRequest, grpc.ServerStreamingServer[rpcpb.RangeStreamResponse]) error {
	return func(r *rpcpb.RangeRequest, out grpc.ServerStreamingServer[rpcpb.RangeStreamResponse]) error {
		resp, err := m.onRange(out.Context(), r)
		if err != nil {
			return err
		}
		for sent := 0; sent < len(resp.Kvs); sent += 10 {
			part := &rpcpb.RangeResponse{Kvs: resp.Kvs[sent:min(sent+10, len(resp.Kvs))]}
			if err := out.Send(&rpcpb.RangeStreamResponse{RangeResponse: part}); err != nil {
				return err
			}
			if each != nil {
				each(sent)
			}
		}
		return nil
	}
}

// collect reads a scan to its end and checks that the keys are 0..want-1.
func collect(t *testing.T, s *client.Scan, want int) {
	t.Helper()
	got := 0
	for kv, err := range s.All() {
		if err != nil {
			t.Fatal(err)
		}
		if string(kv.Key) != fmt.Sprintf("k%03d", got) {
			t.Fatalf("got %s as key %d", kv.Key, got)
		}
		got++
	}
	if got != want || s.Revision() != 9 {
		t.Fatalf("got %d keys at revision %d, want %d at 9", got, s.Revision(), want)
	}
}

func TestScan(t *testing.T) {
	n := newNetwork(t, "a", "b")
	a, b := n.at("a"), n.at("b")
	a.onRange, b.onRange = scanned(500), scanned(500)
	var cuts atomic.Int64
	cut := func(m *member) func(int) {
		return func(sent int) {
			if sent%90 == 80 && cuts.Add(1) < 8 {
				m.cut()
			}
		}
	}
	a.onRangeStream, b.onRangeStream = streamed(a, cut(a)), streamed(b, cut(b))
	c := n.client([]string{"a", "b"})
	ctx := deadline(t, 20*time.Second)
	for _, tt := range []struct {
		opts  []client.GetOption
		want  int
		count int64
	}{
		{[]client.GetOption{client.WithPrefix()}, 500, 500},
		{[]client.GetOption{client.WithPrefix(), client.WithLimit(123)}, 123, 500},
		{[]client.GetOption{client.WithRange("k300")}, 300, 300},
		{[]client.GetOption{client.WithRange("a")}, 0, 0},
	} {
		s, err := c.Scan(ctx, "k", tt.opts...)
		if err != nil {
			t.Fatal(err)
		}
		collect(t, s, tt.want)
		if s.Count() != tt.count {
			t.Fatalf("count %d, want %d", s.Count(), tt.count)
		}
	}
	if cuts.Load() < 4 {
		t.Fatalf("only %d connections were cut", cuts.Load())
	}
	if _, err := c.Scan(ctx, "k", client.WithPrefix(), client.WithRev(10)); !errors.Is(err, errs.ErrFutureRev) {
		t.Fatalf("a future revision: %v", err)
	}
	if _, err := c.Scan(ctx, "k", client.WithSort(client.SortByValue, client.SortAscend)); err == nil {
		t.Fatal("sorting by value was accepted")
	}
}

// A server without range streams is asked for pages.
func TestScanPages(t *testing.T) {
	n := newNetwork(t, "a")
	n.at("a").onRange = scanned(999)
	c := n.client([]string{"a"})
	for _, limit := range []int64{0, 5, 998} {
		s, err := c.Scan(deadline(t, 10*time.Second), "k", client.WithPrefix(), client.WithLimit(limit))
		if err != nil {
			t.Fatal(err)
		}
		if limit == 0 {
			limit = 999
		}
		collect(t, s, int(limit))
	}
}

// A scan that the consumer leaves, and one that is compacted away, end.
func TestScanEnds(t *testing.T) {
	n := newNetwork(t, "a")
	a := n.at("a")
	a.onRange = scanned(100)
	a.onRangeStream = streamed(a, nil)
	c := n.client([]string{"a"})
	ctx := deadline(t, 10*time.Second)
	s, err := c.Scan(ctx, "k", client.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for range s.All() {
		break
	}
	for range s.All() {
		t.Fatal("a scan went on after it was left")
	}
	a.onRangeStream = func(*rpcpb.RangeRequest, grpc.ServerStreamingServer[rpcpb.RangeStreamResponse]) error {
		return grpcerr.ToStatus(errs.ErrCompacted)
	}
	s, err = c.Scan(ctx, "k", client.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	var got error
	for _, err := range s.All() {
		got = err
	}
	if !errors.Is(got, errs.ErrCompacted) {
		t.Fatalf("got %v", got)
	}
}

// A snapshot arrives whole, and one that does not is refused.
func TestSnapshot(t *testing.T) {
	data := []byte(strings.Repeat("0123456789abcdef", 5000))
	sum := sha256.Sum256(data)
	for _, tt := range []struct {
		name   string
		send   []byte
		damage string // in the error, empty for none
	}{
		{"whole", append(append([]byte(nil), data...), sum[:]...), ""},
		{"without sum", data, "damaged"},
		{"a bit flipped", append(append([]byte{'x'}, data[1:]...), sum[:]...), "damaged"},
		{"cut short", data[:10], "ended after 10 bytes"},
		{"nothing", nil, "ended after 0 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNetwork(t, "a")
			n.at("a").onSnapshot = func(_ *rpcpb.SnapshotRequest, out grpc.ServerStreamingServer[rpcpb.SnapshotResponse]) error {
				for rest := tt.send; len(rest) > 0; {
					part := rest[:min(len(rest), 7777)]
					rest = rest[len(part):]
					if err := out.Send(&rpcpb.SnapshotResponse{Blob: part, RemainingBytes: uint64(len(rest)), Version: "3.7.0"}); err != nil {
						return err
					}
				}
				return nil
			}
			s, err := n.client([]string{"a"}).Snapshot(deadline(t, 10*time.Second), "a")
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			got, err := io.ReadAll(s)
			if string(got) != string(tt.send) {
				t.Fatalf("got %d bytes, want %d", len(got), len(tt.send))
			}
			switch {
			case tt.damage == "" && (err != nil || s.Version() != "3.7.0"):
				t.Fatalf("version %q, error %v", s.Version(), err)
			case tt.damage != "" && (err == nil || !strings.Contains(err.Error(), tt.damage)):
				t.Fatalf("error %v", err)
			}
		})
	}
}

func TestSnapshotRefused(t *testing.T) {
	n := newNetwork(t, "a")
	n.at("a").onSnapshot = func(*rpcpb.SnapshotRequest, grpc.ServerStreamingServer[rpcpb.SnapshotResponse]) error {
		return grpcerr.ToStatus(errs.ErrPermissionDenied)
	}
	if _, err := n.client([]string{"a"}).Snapshot(deadline(t, 10*time.Second), ""); !errors.Is(err, errs.ErrPermissionDenied) {
		t.Fatalf("got %v", err)
	}
}
