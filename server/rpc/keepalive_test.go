package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// keepAliveStream grants leases 1 to n with TTL 100+id and opens a stream.
func keepAliveStream(t *testing.T, s *served, n int64) services.Lease_LeaseKeepAliveClient {
	t.Helper()
	for id := int64(1); id <= n; id++ {
		if _, err := s.LeaseGrant(t.Context(), &rpcpb.LeaseGrantRequest{ID: id, TTL: 100 + id}); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := services.NewLeaseClient(s.conn).LeaseKeepAlive(with(t))
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestKeepAliveOrder sends far more requests than are queued before it reads an answer.
func TestKeepAliveOrder(t *testing.T) {
	for _, leading := range []bool{true, false} {
		t.Run(fmt.Sprintf("leading=%t", leading), func(t *testing.T) {
			s := serve(t, nil)
			if !leading {
				s.leader.Store(1)
			}
			const leases, requests = 50, 3 * keepAliveQueue
			stream := keepAliveStream(t, s, leases)
			id := func(i int) int64 { return int64(i*7%(leases+5)) + 1 } // some do not exist
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(func() {
				for i := range requests {
					if err := stream.Send(&rpcpb.LeaseKeepAliveRequest{ID: id(i)}); err != nil {
						t.Error(err)
						return
					}
				}
				if err := stream.CloseSend(); err != nil {
					t.Error(err)
				}
			})
			for i := range requests {
				want := &rpcpb.LeaseKeepAliveResponse{Header: full(1), ID: id(i), TTL: 100 + id(i)}
				if id(i) > leases {
					want.TTL = 0
				}
				got, err := stream.Recv()
				if err != nil || !proto.Equal(got, want) {
					t.Fatalf("answer %d: %v, %v, want %v", i, got, err, want)
				}
			}
			if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
				t.Errorf("the end: %v", err)
			}
		})
	}
}

// collected is the sending side of a stream that keeps what is sent.
type collected struct {
	services.Lease_LeaseKeepAliveServer
	ids []int64
}

func (c *collected) Send(r *rpcpb.LeaseKeepAliveResponse) error {
	c.ids = append(c.ids, r.ID)
	return nil
}

// TestKeepAliveTogether: a member that follows asks for all leases that are queued at the same time, and answers in order.
func TestKeepAliveTogether(t *testing.T) {
	n := newTestMember(t)
	n.leader.Store(1)
	var all sync.WaitGroup
	all.Add(keepAliveBatch)
	n.onRenew = func(context.Context, int64) error {
		all.Done()
		all.Wait()
		return nil
	}
	out := new(collected)
	k := &keepAlive{
		service: NewLease(n, n, n, nil), stream: out, ids: make(chan int64, keepAliveQueue),
		response: rpcpb.LeaseKeepAliveResponse{Header: new(rpcpb.ResponseHeader)},
	}
	for id := int64(1); id <= keepAliveBatch+1; id++ {
		k.ids <- id
	}
	if err := k.renew(with(t), 0); err != nil {
		t.Fatal(err)
	}
	if len(out.ids) != keepAliveBatch || len(k.ids) != 2 || !slices.IsSorted(out.ids) {
		t.Errorf("%d answers, %d requests left: %v", len(out.ids), len(k.ids), out.ids)
	}
}

// TestKeepAliveRevision: the header's revision is from before the renewal.
func TestKeepAliveRevision(t *testing.T) {
	s := serve(t, nil)
	s.onRenew = func(context.Context, int64) error {
		s.mustPut(t, "k", "v")
		return nil
	}
	stream := keepAliveStream(t, s, 1)
	for want := range int64(3) {
		if err := stream.Send(&rpcpb.LeaseKeepAliveRequest{ID: 1}); err != nil {
			t.Fatal(err)
		}
		if got, err := stream.Recv(); err != nil || got.Header.Revision != want+1 {
			t.Errorf("%v, %v, want revision %d", got, err, want+1)
		}
	}
}

// TestKeepAliveEnds: errors other than that the lease is gone end the stream, and so does the client.
func TestKeepAliveEnds(t *testing.T) {
	s := serve(t, nil)
	s.onRenew = func(_ context.Context, id int64) error {
		if id == 2 {
			return errs.ErrTimeout
		}
		return nil
	}
	stream := keepAliveStream(t, s, 3)
	for id := range int64(3) {
		if err := stream.Send(&rpcpb.LeaseKeepAliveRequest{ID: id + 1}); !sent(err) {
			t.Fatal(err)
		}
	}
	if got, err := stream.Recv(); err != nil || got.ID != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable || status.Convert(err).Message() != errs.ErrTimeout.Error() {
		t.Errorf("the end: %v", err)
	}

	held := make(chan struct{})
	s.onRenew = func(ctx context.Context, _ int64) error {
		close(held)
		<-ctx.Done() // as a renewal that waits for the leader
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(with(t))
	stream, err := services.NewLeaseClient(s.conn).LeaseKeepAlive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&rpcpb.LeaseKeepAliveRequest{ID: 1}); err != nil {
		t.Fatal(err)
	}
	<-held
	cancel()
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("canceled by the client: %v", err)
	}
}
