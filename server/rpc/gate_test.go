package rpc

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/errs/grpcerr"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// somethingOfEach are calls of all kinds, by name.
func somethingOfEach(t *testing.T, s *served) map[string]func(ctx context.Context) error {
	kv, lc := services.NewKVClient(s.conn), services.NewLeaseClient(s.conn)
	cc, mc := services.NewClusterClient(s.conn), services.NewMaintenanceClient(s.conn)
	k := []byte("k")
	return map[string]func(ctx context.Context) error{
		"range": func(ctx context.Context) error { _, err := kv.Range(ctx, &rpcpb.RangeRequest{Key: k}); return err },
		"local range": func(ctx context.Context) error {
			_, err := kv.Range(ctx, &rpcpb.RangeRequest{Key: k, Serializable: true})
			return err
		},
		"local stream": func(ctx context.Context) error {
			_, _, err := gather(kv.RangeStream(ctx, &rpcpb.RangeRequest{Key: k, Serializable: true}))
			return err
		},
		"put":     func(ctx context.Context) error { _, err := kv.Put(ctx, &rpcpb.PutRequest{Key: k}); return err },
		"members": func(ctx context.Context) error { _, err := cc.MemberList(ctx, &rpcpb.MemberListRequest{}); return err },
		"status":  func(ctx context.Context) error { _, err := mc.Status(ctx, &rpcpb.StatusRequest{}); return err },
		"health": func(ctx context.Context) error {
			_, err := healthpb.NewHealthClient(s.conn).Check(ctx, &healthpb.HealthCheckRequest{})
			return err
		},
		"watch": func(ctx context.Context) error {
			stream, err := services.NewWatchClient(s.conn).Watch(ctx)
			if err != nil {
				return err
			}
			err = stream.Send(&rpcpb.WatchRequest{RequestUnion: &rpcpb.WatchRequest_CreateRequest{CreateRequest: &rpcpb.WatchCreateRequest{Key: k}}})
			if sent(err) {
				_, err = stream.Recv()
			}
			return err
		},
		"keepalive": func(ctx context.Context) error {
			stream, err := lc.LeaseKeepAlive(ctx)
			if err != nil {
				return err
			}
			if err = stream.Send(&rpcpb.LeaseKeepAliveRequest{ID: 1}); sent(err) {
				_, err = stream.Recv()
			}
			return err
		},
		"snapshot": func(ctx context.Context) error {
			stream, err := mc.Snapshot(ctx, &rpcpb.SnapshotRequest{})
			for err == nil {
				var m *rpcpb.SnapshotResponse
				if m, err = stream.Recv(); err == nil && m.RemainingBytes == 0 {
					return nil
				}
			}
			return err
		},
	}
}

// sent reports whether a stream may be received from after a request was sent on it. io.EOF says no more than that the server has
// ended the stream already; receiving tells why.
func sent(err error) bool { return err == nil || errors.Is(err, io.EOF) }

// wantFrom makes all calls and compares their errors: those in fine have none, all others want.
func wantFrom(t *testing.T, s *served, want error, fine map[string]bool, md ...string) {
	t.Helper()
	for name, call := range somethingOfEach(t, s) {
		ctx, cancel := context.WithCancel(with(t, md...))
		err := call(ctx)
		cancel()
		switch {
		case fine[name] && err != nil:
			t.Errorf("%s: %v", name, err)
		case !fine[name] && !errors.Is(grpcerr.FromStatus(err), want):
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
}

func TestLearner(t *testing.T) {
	s := serve(t, nil)
	s.learner.Store(true)
	fine := map[string]bool{"local range": true, "status": true, "snapshot": true}
	wantFrom(t, s, errs.ErrNotSupportedForLearner, fine)
	s.learner.Store(false) // promoted
	wantFrom(t, s, nil, nil)
}

func TestNotCapable(t *testing.T) {
	s := serve(t, nil)
	none, some := "", "3.7.0"
	s.version.Store(&none)
	wantFrom(t, s, errs.ErrNotCapable, nil)
	s.version.Store(&some)
	wantFrom(t, s, nil, nil)
}

func TestRequireLeader(t *testing.T) {
	s := serve(t, nil)
	wantFrom(t, s, nil, nil, metaLeader, "true")
	s.leader.Store(0)
	wantFrom(t, s, errs.ErrNoLeader, nil, metaLeader, "true")
	wantFrom(t, s, nil, nil, metaLeader, "false")
	wantFrom(t, s, nil, nil)
}

func TestClientVersion(t *testing.T) {
	s := serve(t, nil)
	// gRPC's client refuses to send such metadata, others do not.
	ctx := incoming(t, metaVersion, "\xff")
	m := s.handlers.method("etcdserverpb.KV", "Range", false, false, false)
	if _, err := s.handlers.gate.admit(ctx, m, nil); !errors.Is(err, errs.ErrInvalidClientAPIVersion) {
		t.Errorf("got %v", err)
	}
	wantFrom(t, s, nil, nil, metaVersion, "3.7.0")
}

// TestLeaderLost: a stream that requires a leader ends when there is none for long, others go on.
func TestLeaderLost(t *testing.T) {
	s := serve(t, func(c *Config) { c.ElectionTimeout = time.Millisecond })
	wc := services.NewWatchClient(s.conn)
	open := func(md ...string) services.Watch_WatchClient {
		stream, err := wc.Watch(with(t, md...))
		if err != nil {
			t.Fatal(err)
		}
		create := &rpcpb.WatchRequest{RequestUnion: &rpcpb.WatchRequest_CreateRequest{CreateRequest: &rpcpb.WatchCreateRequest{Key: []byte("k")}}}
		if err := stream.Send(create); err != nil {
			t.Fatal(err)
		}
		if r, err := stream.Recv(); err != nil || !r.Created {
			t.Fatal(r, err)
		}
		return stream
	}
	requiring, other := open(metaLeader, "true"), open()
	keepalive, err := services.NewLeaseClient(s.conn).LeaseKeepAlive(with(t, metaLeader, "true"))
	if err != nil {
		t.Fatal(err)
	}
	if err := keepalive.Send(&rpcpb.LeaseKeepAliveRequest{ID: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := keepalive.Recv(); err != nil {
		t.Fatal(err)
	}
	s.leader.Store(0)
	_, err = requiring.Recv()
	if status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "etcdserver: no leader" {
		t.Errorf("the watch ended with %v", err)
	}
	if _, err := keepalive.Recv(); !errors.Is(grpcerr.FromStatus(err), errs.ErrNoLeader) {
		t.Errorf("the keepalive ended with %v", err)
	}
	s.mustPut(t, "k", "v")
	if r, err := other.Recv(); err != nil || len(r.Events) != 1 {
		t.Errorf("the other watch: %v, %v", r, err)
	}
}

// leaderState is a member whose leader comes and goes.
type leaderState struct {
	State
	leader atomic.Uint64
}

func (l *leaderState) Leader() uint64 { return l.leader.Load() }

// TestLeaderWatch counts the checks until streams end. It would hang if the watch's goroutine outlived its streams.
func TestLeaderWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := new(leaderState)
		st.leader.Store(1)
		w := &leaderWatch{state: st, every: time.Second}
		begin := time.Now()
		ctx, done := w.watch(t.Context())
		early, doneEarly := w.watch(t.Context())
		at := func(d time.Duration) {
			<-time.After(d - time.Since(begin))
			synctest.Wait()
		}
		at(2500 * time.Millisecond)
		doneEarly()
		if context.Cause(early) != context.Canceled {
			t.Errorf("a stream that has ended: %v", context.Cause(early))
		}
		st.leader.Store(0) // missed at 3 s and 4 s only
		at(4500 * time.Millisecond)
		st.leader.Store(2)
		at(5500 * time.Millisecond)
		st.leader.Store(0) // missed at 6, 7 and 8 s
		at(7500 * time.Millisecond)
		if ctx.Err() != nil {
			t.Error("ended too early")
		}
		at(8 * time.Second)
		if !errors.Is(context.Cause(ctx), errs.ErrNoLeader) {
			t.Errorf("after three checks: %v", context.Cause(ctx))
		}
		done()
		synctest.Wait()
		st.leader.Store(1)
		again, doneAgain := w.watch(t.Context()) // starts anew
		defer doneAgain()
		at(20 * time.Second)
		if again.Err() != nil {
			t.Errorf("with a leader: %v", again.Err())
		}
	})
}
