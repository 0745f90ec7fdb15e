package inproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/coordd/coordd/api/codec"
	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/errs/grpcerr"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type callerKey struct{}

// kvService answers by what the key says.
type kvService struct {
	services.UnimplementedKVServer
	got     *rpcpb.PutRequest  // of the last Put
	ctx     context.Context    // likewise
	started chan struct{}      // a call with the key wait runs
	ended   chan struct{}      // and has seen its context end
	resp    *rpcpb.PutResponse // of the last Put
}

func (s *kvService) Put(ctx context.Context, r *rpcpb.PutRequest) (*rpcpb.PutResponse, error) {
	s.got, s.ctx = r, ctx
	switch string(r.Key) {
	case "plain":
		return nil, errors.New("plain")
	case "wrapped":
		return nil, fmt.Errorf("wrapped: %w", status.Error(codes.NotFound, "inner"))
	case "known":
		return nil, grpcerr.ToStatus(errs.ErrCompacted)
	case "deadline":
		return nil, context.DeadlineExceeded
	case "wait":
		s.started <- struct{}{}
		<-ctx.Done()
		s.ended <- struct{}{}
		return nil, ctx.Err()
	case "header":
		md, _ := metadata.FromIncomingContext(ctx)
		if err := grpc.SetHeader(ctx, metadata.Pairs("echo", strings.Join(md.Get("x"), "+"))); err != nil {
			return nil, err
		}
		if err := grpc.SetTrailer(ctx, metadata.Pairs("t", "1")); err != nil {
			return nil, err
		}
		name, _ := grpc.Method(ctx)
		return nil, status.Error(codes.Aborted, name)
	}
	s.resp = &rpcpb.PutResponse{Header: &rpcpb.ResponseHeader{Revision: 7}, PrevKv: &kvpb.KeyValue{Key: r.Key}}
	return s.resp, nil
}

func (s *kvService) RangeStream(r *rpcpb.RangeRequest, out grpc.ServerStreamingServer[rpcpb.RangeStreamResponse]) error {
	for i := range r.Limit {
		raw, err := (&rpcpb.RangeStreamResponse{RangeResponse: &rpcpb.RangeResponse{Count: i}}).MarshalVT()
		if err != nil {
			return err
		}
		if err := out.SendMsg(codec.Raw(raw)); err != nil { // encoded already, as the store does
			return err
		}
	}
	return nil
}

type watchService struct {
	services.UnimplementedWatchServer
	ended chan error
}

// Watch sends every request's id back, three times if it is 3, and fails at 13.
func (s *watchService) Watch(stream services.Watch_WatchServer) error {
	if err := stream.SendHeader(metadata.Pairs("h", "early")); err != nil {
		return err
	}
	stream.SetTrailer(metadata.Pairs("t", "late"))
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			s.ended <- err
			return err
		}
		id := r.GetCancelRequest().GetWatchId()
		if id == 13 {
			return status.Error(codes.DataLoss, "thirteen")
		}
		n := 1
		if id == 3 {
			n = 3
		}
		for range n {
			if err := stream.Send(&rpcpb.WatchResponse{WatchId: id}); err != nil {
				s.ended <- err
				return err
			}
		}
	}
}

// both runs a test in process and, to hold it to the same, over a real gRPC connection.
func both(t *testing.T, test func(t *testing.T, cc grpc.ClientConnInterface, kv *kvService, w *watchService)) {
	makeServices := func() (*kvService, *watchService) {
		return &kvService{started: make(chan struct{}), ended: make(chan struct{}, 1)}, &watchService{ended: make(chan error, 1)}
	}
	t.Run("inproc", func(t *testing.T) {
		kv, w := makeServices()
		c := New(Options{MaxRequestBytes: 1000})
		services.RegisterKVServer(c, kv)
		services.RegisterWatchServer(c, w)
		defer c.Close()
		test(t, c, kv, w)
	})
	t.Run("grpc", func(t *testing.T) {
		kv, w := makeServices()
		ln := bufconn.Listen(1 << 16)
		s := grpc.NewServer(grpc.ForceServerCodecV2(codec.New()), grpc.MaxRecvMsgSize(1000), grpc.WaitForHandlers(true))
		services.RegisterKVServer(s, kv)
		services.RegisterWatchServer(s, w)
		done := make(chan error, 1)
		go func() { done <- s.Serve(ln) }()
		cc, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec.New())))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = cc.Close()
			s.Stop()
			<-done
		}()
		test(t, cc, kv, w)
	})
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func wantStatus(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	s, ok := status.FromError(err)
	if !ok || s.Code() != code || !strings.Contains(s.Message(), text) {
		t.Errorf("error %v, want %v %q", err, code, text)
	}
}

func TestUnary(t *testing.T) {
	both(t, func(t *testing.T, cc grpc.ClientConnInterface, kv *kvService, _ *watchService) {
		c := services.NewKVClient(cc)
		ctx := context.WithValue(testContext(t), callerKey{}, "private")
		req := &rpcpb.PutRequest{Key: []byte("key"), Value: []byte("value"), Lease: 5}
		resp, err := c.Put(ctx, req)
		if err != nil || resp.Header.GetRevision() != 7 || string(resp.PrevKv.GetKey()) != "key" {
			t.Fatalf("%v %v", resp, err)
		}
		if kv.got.Lease != 5 || string(kv.got.Value) != "value" {
			t.Errorf("the handler got %v", kv.got)
		}
		// Neither side sees what the other does with its message afterwards.
		req.Value[0] = 'X'
		kv.resp.PrevKv.Key[0] = 'Y'
		if string(kv.got.Value) != "value" || string(resp.PrevKv.Key) != "key" {
			t.Error("caller and handler share memory")
		}
		if kv.ctx.Value(callerKey{}) != nil {
			t.Error("the handler sees the caller's context values")
		}
		if d, ok := kv.ctx.Deadline(); !ok || time.Until(d) > 10*time.Second {
			t.Error("the deadline did not arrive")
		}
		if p, ok := peer.FromContext(kv.ctx); !ok || p.Addr == nil {
			t.Error("the handler does not know its peer")
		}
	})
}

func TestErrors(t *testing.T) {
	both(t, func(t *testing.T, cc grpc.ClientConnInterface, _ *kvService, _ *watchService) {
		c := services.NewKVClient(cc)
		for _, x := range []struct {
			key  string
			code codes.Code
			text string
		}{
			{"plain", codes.Unknown, "plain"},
			{"wrapped", codes.NotFound, "inner"},
			{"known", codes.OutOfRange, errs.ErrCompacted.Error()},
			{"deadline", codes.DeadlineExceeded, "deadline"},
			{strings.Repeat("x", 2000), codes.ResourceExhausted, "larger than max"},
		} {
			_, err := c.Put(testContext(t), &rpcpb.PutRequest{Key: []byte(x.key)})
			wantStatus(t, err, x.code, x.text)
			if x.key == "known" && !errors.Is(grpcerr.FromStatus(err), errs.ErrCompacted) {
				t.Errorf("%v is not known again", err)
			}
		}
		_, err := c.Compact(testContext(t), &rpcpb.CompactionRequest{})
		wantStatus(t, err, codes.Unimplemented, "")
		_, err = services.NewAuthClient(cc).UserAdd(testContext(t), &rpcpb.AuthUserAddRequest{})
		wantStatus(t, err, codes.Unimplemented, "unknown service")
	})
}

func TestMetadata(t *testing.T) {
	both(t, func(t *testing.T, cc grpc.ClientConnInterface, _ *kvService, _ *watchService) {
		var header, trailer metadata.MD
		var finished error
		ctx := metadata.AppendToOutgoingContext(testContext(t), "x", "1", "x", "2")
		_, err := services.NewKVClient(cc).Put(ctx, &rpcpb.PutRequest{Key: []byte("header")},
			grpc.Header(&header), grpc.Trailer(&trailer), grpc.OnFinish(func(err error) { finished = err }))
		wantStatus(t, err, codes.Aborted, services.KV_Put_FullMethodName)
		if fmt.Sprint(header.Get("echo")) != "[1+2]" || fmt.Sprint(trailer.Get("t")) != "[1]" || finished == nil {
			t.Errorf("header %v, trailer %v, end %v", header, trailer, finished)
		}
	})
}

func TestCancelUnary(t *testing.T) {
	both(t, func(t *testing.T, cc grpc.ClientConnInterface, kv *kvService, _ *watchService) {
		ctx, cancel := context.WithCancel(testContext(t))
		go func() {
			<-kv.started
			cancel()
		}()
		_, err := services.NewKVClient(cc).Put(ctx, &rpcpb.PutRequest{Key: []byte("wait")})
		wantStatus(t, err, codes.Canceled, "")
		<-kv.ended
		_, err = services.NewKVClient(cc).Put(ctx, &rpcpb.PutRequest{Key: []byte("k")})
		wantStatus(t, err, codes.Canceled, "")
	})
}

func TestServerStream(t *testing.T) {
	both(t, func(t *testing.T, cc grpc.ClientConnInterface, _ *kvService, _ *watchService) {
		const n = 5 * queueLen
		s, err := services.NewKVClient(cc).RangeStream(testContext(t), &rpcpb.RangeRequest{Limit: n})
		if err != nil {
			t.Fatal(err)
		}
		for i := range int64(n) {
			if r, err := s.Recv(); err != nil || r.RangeResponse.GetCount() != i {
				t.Fatalf("message %d: %v %v", i, r, err)
			}
		}
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
	})
}

func ask(t *testing.T, s services.Watch_WatchClient, id int64) {
	t.Helper()
	r := &rpcpb.WatchRequest{RequestUnion: &rpcpb.WatchRequest_CancelRequest{CancelRequest: &rpcpb.WatchCancelRequest{WatchId: id}}}
	if err := s.Send(r); err != nil {
		t.Fatal(err)
	}
}

func TestTwoWayStream(t *testing.T) {
	both(t, func(t *testing.T, cc grpc.ClientConnInterface, _ *kvService, _ *watchService) {
		s, err := services.NewWatchClient(cc).Watch(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if h, err := s.Header(); err != nil || fmt.Sprint(h.Get("h")) != "[early]" {
			t.Errorf("header %v %v", h, err)
		}
		for _, id := range []int64{1, 3, 2} {
			ask(t, s, id)
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		for _, want := range []int64{1, 3, 3, 3, 2} {
			if r, err := s.Recv(); err != nil || r.WatchId != want {
				t.Fatalf("got %v %v, want %d", r, err, want)
			}
		}
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
		if fmt.Sprint(s.Trailer().Get("t")) != "[late]" {
			t.Errorf("trailer %v", s.Trailer())
		}
	})
}

func TestStreamFails(t *testing.T) {
	both(t, func(t *testing.T, cc grpc.ClientConnInterface, _ *kvService, _ *watchService) {
		s, err := services.NewWatchClient(cc).Watch(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		ask(t, s, 1)
		ask(t, s, 13)
		if r, err := s.Recv(); err != nil || r.WatchId != 1 {
			t.Fatalf("what was sent before the failure: %v %v", r, err)
		}
		_, err = s.Recv()
		wantStatus(t, err, codes.DataLoss, "thirteen")
		if err := s.Send(&rpcpb.WatchRequest{}); !errors.Is(err, io.EOF) {
			t.Errorf("sending on a stream that has ended: %v", err)
		}
	})
}

func TestCancelStream(t *testing.T) {
	both(t, func(t *testing.T, cc grpc.ClientConnInterface, _ *kvService, w *watchService) {
		ctx, cancel := context.WithCancel(testContext(t))
		s, err := services.NewWatchClient(cc).Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		ask(t, s, 1)
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
		cancel()
		_, err = s.Recv()
		wantStatus(t, err, codes.Canceled, "")
		wantStatus(t, <-w.ended, codes.Canceled, "")
	})
}

// A caller that does not receive stops the handler from sending, that one stops the caller from sending, and a
// cancel lets both go.
func TestSlowCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watchService{ended: make(chan error, 1)}
		c := New(Options{})
		services.RegisterWatchServer(c, w)
		ctx, cancel := context.WithCancel(t.Context())
		s, err := services.NewWatchClient(c).Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		sent, stopped := 0, make(chan error)
		go func() {
			for {
				r := &rpcpb.WatchRequest{RequestUnion: &rpcpb.WatchRequest_CancelRequest{CancelRequest: &rpcpb.WatchCancelRequest{WatchId: 3}}}
				if err := s.Send(r); err != nil {
					stopped <- err
					return
				}
				sent++
			}
		}()
		synctest.Wait()
		// Each request has three answers, of which queueLen fit; the next request is in the handler's hands.
		if want := queueLen + queueLen/3 + 1; sent != want {
			t.Errorf("%d requests were taken, want %d", sent, want)
		}
		cancel()
		if err := <-stopped; !errors.Is(err, io.EOF) {
			t.Errorf("the request that waited: %v", err)
		}
		wantStatus(t, <-w.ended, codes.Canceled, "")
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestInterceptors(t *testing.T) {
	var seen []string
	c := New(Options{
		Unary: func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			seen = append(seen, info.FullMethod)
			return h(ctx, req)
		},
		Stream: func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			seen = append(seen, fmt.Sprint(info.FullMethod, info.IsClientStream, info.IsServerStream))
			return h(srv, ss)
		},
	})
	services.RegisterKVServer(c, &kvService{})
	if _, err := services.NewKVClient(c).Put(testContext(t), &rpcpb.PutRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	s, err := services.NewKVClient(c).RangeStream(testContext(t), &rpcpb.RangeRequest{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if want := "[/etcdserverpb.KV/Put /etcdserverpb.KV/RangeStreamfalse true]"; fmt.Sprint(seen) != want {
		t.Errorf("intercepted %v", seen)
	}
}

// Close ends streams, waits for all handlers, and refuses what comes later.
func TestClose(t *testing.T) {
	kv, w := &kvService{started: make(chan struct{}), ended: make(chan struct{}, 1)}, &watchService{ended: make(chan error, 1)}
	c := New(Options{})
	services.RegisterKVServer(c, kv)
	services.RegisterWatchServer(c, w)
	s, err := services.NewWatchClient(c).Watch(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	result := make(chan error, 1)
	go func() {
		_, err := services.NewKVClient(c).Put(ctx, &rpcpb.PutRequest{Key: []byte("wait")})
		result <- err
	}()
	<-kv.started
	c.Shutdown()
	_, err = s.Recv()
	wantStatus(t, err, codes.Unavailable, "closing")
	select {
	case err := <-result:
		t.Errorf("Shutdown ended a unary call: %v", err)
	default:
	}
	cancel()
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	wantStatus(t, <-result, codes.Canceled, "")
	_, err = services.NewKVClient(c).Put(testContext(t), &rpcpb.PutRequest{})
	wantStatus(t, err, codes.Unavailable, "closed")
	_, err = services.NewWatchClient(c).Watch(testContext(t))
	wantStatus(t, err, codes.Unavailable, "closed")
}

func TestRegisterTwicePanics(t *testing.T) {
	c := New(Options{})
	services.RegisterKVServer(c, &kvService{})
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	services.RegisterKVServer(c, &kvService{})
}

func BenchmarkPut(b *testing.B) {
	c := New(Options{})
	services.RegisterKVServer(c, &kvService{})
	kv := services.NewKVClient(c)
	req := &rpcpb.PutRequest{Key: []byte("key"), Value: make([]byte, 256)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := kv.Put(context.Background(), req); err != nil {
			b.Fatal(err)
		}
	}
}
