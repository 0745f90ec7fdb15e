package rpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/coordd/coordd/api/codec"
	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/errs/grpcerr"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/watch"
)

// watchServer serves the Watch service over a connection in memory.
type watchServer struct {
	*watchDB
	grpc *grpc.Server
	lis  *bufconn.Listener
	// kill ends the contexts of streams with metadata "kill", as the interceptor for a lost leader does.
	kill context.CancelCauseFunc
}

// watchKillable is a stream whose context ends with a cause.
type watchKillable struct {
	grpc.ServerStream
	ctx context.Context
}

func (k watchKillable) Context() context.Context { return k.ctx }

func newWatchServer(t testing.TB, ho watch.Options, o WatchOptions) *watchServer {
	t.Helper()
	s := &watchServer{watchDB: newWatchDB(t, ho), lis: bufconn.Listen(1 << 20)}
	killed, kill := context.WithCancelCause(context.Background())
	s.kill = kill
	s.grpc = grpc.NewServer(grpc.ForceServerCodecV2(codec.New()), grpc.StreamInterceptor(
		func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			if md, _ := metadata.FromIncomingContext(stream.Context()); len(md.Get("kill")) > 0 {
				ctx, cancel := context.WithCancelCause(stream.Context())
				defer context.AfterFunc(killed, func() { cancel(context.Cause(killed)) })()
				stream = watchKillable{stream, ctx}
			}
			return grpcerr.ToStatus(h(srv, stream))
		}))
	o.Hub = s.hub
	o.Header = func(rev int64) *rpcpb.ResponseHeader {
		return &rpcpb.ResponseHeader{ClusterId: 1, MemberId: 2, Revision: rev, RaftTerm: 3}
	}
	services.RegisterWatchServer(s.grpc, NewWatch(o))
	var wg sync.WaitGroup
	wg.Go(func() { s.grpc.Serve(s.lis) })
	t.Cleanup(func() {
		s.grpc.Stop()
		wg.Wait()
		kill(nil)
	})
	return s
}

// dial connects one client.
func (s *watchServer) dial(t testing.TB) services.WatchClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///watch", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec.New()), grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return services.NewWatchClient(conn)
}

// watchStream is a client's stream in a test.
type watchStream struct {
	t testing.TB
	services.Watch_WatchClient
	cancel context.CancelFunc
}

func (s *watchServer) open(t testing.TB, md ...string) *watchStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testPatience)
	t.Cleanup(cancel)
	w, err := s.dial(t).Watch(metadata.AppendToOutgoingContext(ctx, md...))
	if err != nil {
		t.Fatal(err)
	}
	return &watchStream{t, w, cancel}
}

func (w *watchStream) ask(r *rpcpb.WatchRequest) {
	w.t.Helper()
	if err := w.Send(r); !sent(err) {
		w.t.Fatal(err)
	}
}

func (w *watchStream) create(r *rpcpb.WatchCreateRequest) {
	w.t.Helper()
	w.ask(&rpcpb.WatchRequest{RequestUnion: &rpcpb.WatchRequest_CreateRequest{CreateRequest: r}})
}

// watchText writes a response shortly.
func watchText(r *rpcpb.WatchResponse) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d@%d", r.GetWatchId(), r.GetHeader().GetRevision())
	if r.GetCreated() {
		b.WriteString(" created")
	}
	if r.GetCanceled() {
		b.WriteString(" canceled")
	}
	if r.GetCompactRevision() != 0 {
		fmt.Fprintf(&b, " compacted %d", r.GetCompactRevision())
	}
	if r.GetCancelReason() != "" {
		fmt.Fprintf(&b, " (%s)", r.GetCancelReason())
	}
	if r.GetFragment() {
		b.WriteString(" …")
	}
	for _, e := range r.GetEvents() {
		fmt.Fprintf(&b, " %v %s@%d", e.GetType(), e.GetKv().GetKey(), e.GetKv().GetModRevision())
		if e.PrevKv != nil {
			fmt.Fprintf(&b, " was %s", e.GetPrevKv().GetValue())
		}
	}
	return b.String()
}

func (w *watchStream) want(texts ...string) {
	w.t.Helper()
	for _, text := range texts {
		r, err := w.Recv()
		if err != nil {
			w.t.Fatalf("%v, want %q", err, text)
		}
		if got := watchText(r); got != text {
			w.t.Fatalf("got %q, want %q", got, text)
		}
		if h := r.GetHeader(); h.GetClusterId() != 1 || h.GetMemberId() != 2 || h.GetRaftTerm() != 3 {
			w.t.Fatalf("header %v", h)
		}
	}
}

func (w *watchStream) wantEnd(code codes.Code, text string) {
	w.t.Helper()
	for {
		if _, err := w.Recv(); err != nil {
			if status.Code(err) != code || status.Convert(err).Message() != text {
				w.t.Fatalf("the stream ended with %v, want %v %q", err, code, text)
			}
			return
		}
	}
}

// TestWatchRequests goes through all requests of a stream.
func TestWatchRequests(t *testing.T) {
	denied := errors.New("")
	s := newWatchServer(t, watch.Options{}, WatchOptions{Authorize: func(_ context.Context, key, end []byte) error {
		if len(key) == 0 {
			t.Error("authorize is asked for an empty key")
		}
		switch string(key) {
		case "denied":
			return fmt.Errorf("user u: %w", errs.ErrPermissionDenied)
		case "token":
			return errs.ErrInvalidAuthToken
		case "none":
			return denied
		}
		return nil
	}})
	s.put("1", "k", "l") // 2
	s.put("2", "k")      // 3
	s.put("3", "k")      // 4
	s.compact(t, 3)
	w := s.open(t)
	w.ask(&rpcpb.WatchRequest{})
	w.create(&rpcpb.WatchCreateRequest{Key: []byte("denied")})
	w.create(&rpcpb.WatchCreateRequest{Key: []byte("token"), RangeEnd: []byte{0}})
	w.create(&rpcpb.WatchCreateRequest{Key: []byte("k"), StartRevision: -1})
	w.create(&rpcpb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("a")})
	w.create(&rpcpb.WatchCreateRequest{Key: []byte("k"), WatchId: 9, PrevKv: true})
	w.create(&rpcpb.WatchCreateRequest{Key: []byte("k"), WatchId: 9})
	w.want(
		"-1@4 created canceled (rpc error: code = PermissionDenied desc = etcdserver: permission denied)",
		"-1@4 created canceled (rpc error: code = Unauthenticated desc = etcdserver: invalid auth token)",
		"-1@4 created canceled (etcdserver: mvcc: required revision has been compacted)",
		"-1@4 created canceled (mvcc: watcher range is empty)",
		"9@4 created",
		"-1@4 created canceled (mvcc: duplicate watch ID provided on the WatchStream)",
	)
	w.create(&rpcpb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2})
	w.want("0@4 created", "0@0 canceled compacted 3")
	w.create(&rpcpb.WatchCreateRequest{RangeEnd: []byte{0}, StartRevision: 4})
	w.want("1@4 created", "1@4 PUT k@4")
	w.ask(&rpcpb.WatchRequest{RequestUnion: &rpcpb.WatchRequest_ProgressRequest{ProgressRequest: &rpcpb.WatchProgressRequest{}}})
	w.ask(&rpcpb.WatchRequest{RequestUnion: &rpcpb.WatchRequest_CancelRequest{CancelRequest: &rpcpb.WatchCancelRequest{WatchId: 77}}})
	for _, id := range []int64{1, 0} {
		w.ask(&rpcpb.WatchRequest{RequestUnion: &rpcpb.WatchRequest_CancelRequest{CancelRequest: &rpcpb.WatchCancelRequest{WatchId: id}}})
	}
	w.ask(&rpcpb.WatchRequest{RequestUnion: &rpcpb.WatchRequest_ProgressRequest{ProgressRequest: &rpcpb.WatchProgressRequest{}}})
	w.want("1@4 canceled", "0@4 canceled", "-1@4")
	s.put("4", "k")
	w.want("9@5 PUT k@5 was 3")
	w.create(&rpcpb.WatchCreateRequest{
		Key: []byte("k"), Filters: []rpcpb.WatchCreateRequest_FilterType{rpcpb.WatchCreateRequest_NOPUT, 99},
	})
	w.create(&rpcpb.WatchCreateRequest{Key: []byte("l"), Filters: []rpcpb.WatchCreateRequest_FilterType{rpcpb.WatchCreateRequest_NODELETE}})
	w.want("2@5 created", "3@5 created")
	s.put("5", "l", "k")
	got := map[string]bool{}
	for range 2 {
		r, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got[watchText(r)] = true
	}
	if !got["9@6 PUT k@6 was 4"] || !got["3@6 PUT l@6"] {
		t.Errorf("got %v", got)
	}
}

// TestWatchFragments checks that a large response comes in parts if wished, with large events shared and small ones copied.
func TestWatchFragments(t *testing.T) {
	const n, limit = 30, 10_000
	s := newWatchServer(t, watch.Options{FragmentBytes: limit}, WatchOptions{})
	for i := range n {
		s.put(strings.Repeat("v", 100+i%3*1500), "k")
	}
	w := s.open(t)
	w.create(&rpcpb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2, Fragment: true})
	w.create(&rpcpb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2})
	parts, next := 0, map[int64]int{}
	for next[0] < n || next[1] < n {
		r, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range r.GetEvents() {
			i := next[r.GetWatchId()]
			if e.GetKv().GetModRevision() != int64(i+2) || len(e.GetKv().GetValue()) != 100+i%3*1500 {
				t.Fatalf("event %d has revision %d and %d bytes", i, e.GetKv().GetModRevision(), len(e.GetKv().GetValue()))
			}
			next[r.GetWatchId()]++
		}
		if r.GetCreated() {
			continue
		}
		if r.GetWatchId() == 1 {
			if r.GetFragment() || len(r.GetEvents()) != n {
				t.Errorf("without fragments: %d events, marked %v", len(r.GetEvents()), r.GetFragment())
			}
			continue
		}
		parts++
		if r.GetFragment() != (next[0] < n) || r.SizeVT() >= limit {
			t.Errorf("part %d of %d bytes, marked %v after %d events", parts, r.SizeVT(), r.GetFragment(), next[0])
		}
	}
	if parts < 4 {
		t.Errorf("%d parts", parts)
	}
}

// TestWatchEnds checks every way a stream ends, and that it takes two goroutines and leaves none.
func TestWatchEnds(t *testing.T) {
	fails := make(chan bool, 100)
	s := newWatchServer(t, watch.Options{}, WatchOptions{OnFail: func(sending bool) { fails <- sending }})
	before := goleak.IgnoreCurrent()
	t.Run("the client goes", func(t *testing.T) {
		w := s.open(t)
		w.create(&rpcpb.WatchCreateRequest{Key: []byte("k")})
		w.want("0@1 created")
		w.cancel()
		w.wantEnd(codes.Canceled, "context canceled")
	})
	t.Run("the client sends no more", func(t *testing.T) {
		w := s.open(t)
		w.create(&rpcpb.WatchCreateRequest{Key: []byte("half")})
		w.CloseSend()
		w.want("0@1 created")
		rev := s.put("", "half")
		w.want(fmt.Sprintf("0@%d PUT half@%d", rev, rev))
	})
	t.Run("no leader", func(t *testing.T) {
		w, other := s.open(t, "kill", "yes"), s.open(t)
		w.create(&rpcpb.WatchCreateRequest{Key: []byte("k")})
		other.create(&rpcpb.WatchCreateRequest{Key: []byte("k")})
		w.want("0@2 created")
		other.want("0@2 created")
		s.kill(errs.ErrNoLeader)
		w.wantEnd(codes.Unavailable, "etcdserver: no leader")
		if sending := <-fails; sending {
			t.Error("counted as a failure of sending")
		}
		rev := s.put("", "k")
		other.want(fmt.Sprintf("0@%d PUT k@%d", rev, rev))
	})
	t.Run("a request too large", func(t *testing.T) {
		w := s.open(t)
		r := &rpcpb.WatchRequest{RequestUnion: &rpcpb.WatchRequest_CreateRequest{
			CreateRequest: &rpcpb.WatchCreateRequest{Key: make([]byte, 5<<20)},
		}}
		w.ask(r)
		w.wantEnd(codes.ResourceExhausted, fmt.Sprintf("grpc: received message larger than max (%d vs. %d)", r.SizeVT(), 4<<20))
	})
	wantNoGoroutines(t, before)
	t.Run("the member stops", func(t *testing.T) {
		w := s.open(t)
		w.create(&rpcpb.WatchCreateRequest{Key: []byte("k")})
		if _, err := w.Recv(); err != nil {
			t.Fatal(err)
		}
		s.hub.Close()
		w.wantEnd(codes.Unavailable, "etcdserver: server stopped")
		w = s.open(t)
		w.wantEnd(codes.Unavailable, "etcdserver: server stopped")
	})
	wantNoGoroutines(t, before)
}

// wantNoGoroutines waits until there are no goroutines but those of before. Those of a connection end some time after it was closed.
func wantNoGoroutines(t *testing.T, before goleak.Option) {
	t.Helper()
	var left error
	eventually(t, func() bool { left = goleak.Find(before); return left == nil }, func() { t.Error(left) })
}

// TestWatchEndError checks how errors are translated when the stream's context did not end as one would think.
func TestWatchEndError(t *testing.T) {
	ctx := context.Background()
	ended := func(cause error) context.Context {
		c, cancel := context.WithCancelCause(ctx)
		cancel(cause)
		return c
	}
	deadline, cancel := context.WithTimeout(ctx, -1)
	defer cancel()
	broken := errors.New("cannot read the file")
	refused := status.Error(codes.ResourceExhausted, "too large")
	for _, x := range []struct {
		outer, ctx context.Context
		err        error
		code       codes.Code
		text       string
	}{
		{ended(nil), ended(nil), nil, codes.Canceled, "etcdserver: watch canceled"},
		{ended(errs.ErrNoLeader), ended(status.Error(codes.Canceled, "x")), nil, codes.Unavailable, "etcdserver: no leader"},
		{ctx, ended(status.Error(codes.Canceled, "x")), nil, codes.Canceled, "etcdserver: watch canceled"},
		{ctx, ended(refused), nil, codes.ResourceExhausted, "too large"},
		{deadline, deadline, nil, codes.DeadlineExceeded, "context deadline exceeded"},
		{ctx, ctx, watch.ErrHubClosed, codes.Unavailable, "etcdserver: server stopped"},
		{ctx, ctx, broken, codes.Unavailable, "cannot read the file"},
	} {
		err := grpcerr.ToStatus(endOfWatch(x.outer, x.ctx, x.err))
		if status.Code(err) != x.code || status.Convert(err).Message() != x.text {
			t.Errorf("%v, want %v %q", err, x.code, x.text)
		}
	}
}

// TestWatchSlowClient checks that a client that does not read holds up no other, and gets everything when it reads.
func TestWatchSlowClient(t *testing.T) {
	s := newWatchServer(t, watch.Options{QueueBytes: 50_000, RingBytes: 200_000}, WatchOptions{})
	slow, fast := s.open(t), s.open(t)
	for _, w := range []*watchStream{slow, fast} {
		w.create(&rpcpb.WatchCreateRequest{Key: []byte("k")})
		w.want("0@1 created")
	}
	const n = 500
	value := strings.Repeat("v", 2000)
	for i := range n {
		s.put(value, "k")
		fast.want(fmt.Sprintf("0@%d PUT k@%d", i+2, i+2))
	}
	for next := int64(2); next < n+2; {
		r, err := slow.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range r.GetEvents() {
			if e.GetKv().GetModRevision() != next {
				t.Fatalf("revision %d, want %d", e.GetKv().GetModRevision(), next)
			}
			next++
		}
	}
}

// TestWatchManyRequests checks that 2000 requests sent at once are answered one by one, in order.
func TestWatchManyRequests(t *testing.T) {
	s := newWatchServer(t, watch.Options{}, WatchOptions{})
	w := s.open(t)
	const n = 2000
	go func() {
		for i := range n {
			if w.Send(&rpcpb.WatchRequest{RequestUnion: &rpcpb.WatchRequest_CreateRequest{
				CreateRequest: &rpcpb.WatchCreateRequest{Key: fmt.Append(nil, i)},
			}}) != nil {
				return
			}
		}
	}()
	for i := range n {
		w.want(fmt.Sprintf("%d@1 created", i))
	}
	if st := s.hub.Stats(); st.Watchers != n {
		t.Errorf("figures %+v", st)
	}
}
