package codec_test

import (
	"bytes"
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/coordd/coordd/api/codec"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// kvServer answers ranges from encoded rows: unary ones through rangeEncoded, streamed ones one row
// a message.
type kvServer struct {
	services.UnimplementedKVServer
	rows [][]byte
}

// Put echoes the request.
func (s *kvServer) Put(_ context.Context, r *rpcpb.PutRequest) (*rpcpb.PutResponse, error) {
	return &rpcpb.PutResponse{PrevKv: &kvpb.KeyValue{Key: r.Key, Value: r.Value}}, nil
}

// RangeStream sends each row in a message of its own, framed by hand.
func (s *kvServer) RangeStream(_ *rpcpb.RangeRequest, stream grpc.ServerStreamingServer[rpcpb.RangeStreamResponse]) error {
	for _, row := range s.rows {
		piece, err := codec.Repeated(&rpcpb.RangeResponse{}, 2, [][]byte{row})
		if err != nil {
			return err
		}
		// A RangeStreamResponse is its field 1 around the piece.
		framed, err := codec.Repeated(&rpcpb.RangeStreamResponse{}, 1, [][]byte{piece.Materialize()})
		if err != nil {
			return err
		}
		if err := stream.SendMsg(encoded{framed}); err != nil {
			return err
		}
	}
	return nil
}

// encoded hands out the same buffers to each message, with a reference for each.
type encoded struct{ buffers mem.BufferSlice }

func (e encoded) EncodedBuffers() mem.BufferSlice {
	e.buffers.Ref()
	return append(mem.BufferSlice(nil), e.buffers...)
}

// serve starts a server with this codec and the given unary interceptor, and gives a client
// connection to it with options.
func serve(t *testing.T, s *kvServer, intercept grpc.UnaryServerInterceptor, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.ForceServerCodecV2(codec.New()), grpc.UnaryInterceptor(intercept))
	services.RegisterKVServer(server, s)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	conn, err := grpc.NewClient("passthrough:///buf", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return conn
}

// rowsOf encodes pairs, with values from nothing to 100 kB.
func rowsOf(t *testing.T, n int) (kvs []*kvpb.KeyValue, rows [][]byte) {
	t.Helper()
	for i := range n {
		kv := &kvpb.KeyValue{Key: []byte{byte('a' + i)}, Value: bytes.Repeat([]byte{byte(i)}, i*i*2000), ModRevision: int64(i)}
		row, err := kv.MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		kvs, rows = append(kvs, kv), append(rows, row)
	}
	return kvs, rows
}

// clients are the ways to ask: with this codec, with gRPC's own, compressed.
func clients() map[string][]grpc.DialOption {
	return map[string][]grpc.DialOption{
		"ours":       {grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec.New()))},
		"grpc":       nil,
		"compressed": {grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name))},
	}
}

// TestOverGRPC runs plain and encoded messages, unary and streamed, and the health service over real
// connections.
func TestOverGRPC(t *testing.T) {
	kvs, rows := rowsOf(t, 8)
	want := &rpcpb.RangeResponse{Header: &rpcpb.ResponseHeader{Revision: 9}, Kvs: kvs, Count: 8}
	// The interceptor answers ranges with encoded rows instead of calling the typed handler.
	intercept := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if info.FullMethod != services.KV_Range_FullMethodName {
			return handler(ctx, req)
		}
		buffers, err := codec.Repeated(&rpcpb.RangeResponse{Header: want.Header, Count: want.Count}, 2, rows)
		return encoded{buffers}, err
	}
	for name, options := range clients() {
		t.Run(name, func(t *testing.T) {
			conn := serve(t, &kvServer{rows: rows}, intercept, options...)
			kv := services.NewKVClient(conn)
			put, err := kv.Put(t.Context(), &rpcpb.PutRequest{Key: []byte("k"), Value: kvs[7].Value})
			if err != nil || !bytes.Equal(put.PrevKv.Value, kvs[7].Value) {
				t.Errorf("put gives %v", err)
			}
			got, err := kv.Range(t.Context(), &rpcpb.RangeRequest{Key: []byte("a")})
			if err != nil || !proto.Equal(got, want) {
				t.Errorf("range gives %v (%v)", got, err)
			}
			checkStream(t, kv, kvs)
			status, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
			if err != nil || status.Status != grpc_health_v1.HealthCheckResponse_SERVING {
				t.Errorf("health gives %v (%v)", status, err)
			}
		})
	}
}

// checkStream reads a streamed range and compares the pairs.
func checkStream(t *testing.T, kv services.KVClient, want []*kvpb.KeyValue) {
	t.Helper()
	stream, err := kv.RangeStream(t.Context(), &rpcpb.RangeRequest{Key: []byte("a")})
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		piece, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if kvs := piece.RangeResponse.Kvs; len(kvs) != 1 || !proto.Equal(kvs[0], want[i]) {
			t.Errorf("piece %d is %v", i, kvs)
		}
	}
}

// countingPool counts what comes back to it.
type countingPool struct{ back chan struct{} }

func (p countingPool) Get(length int) *[]byte { b := make([]byte, length); return &b }
func (p countingPool) Put(*[]byte)            { p.back <- struct{}{} }

// TestReferences sends one counted buffer many times and checks that it is freed exactly when the last
// message and its owner are done with it.
func TestReferences(t *testing.T) {
	const calls = 20
	pool := countingPool{back: make(chan struct{}, 2*calls)}
	msg := &rpcpb.RangeResponse{Kvs: []*kvpb.KeyValue{{Key: []byte("k"), Value: make([]byte, 50_000)}}}
	data, err := msg.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	shared := mem.NewBuffer(&data, pool)
	intercept := func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
		return encoded{mem.BufferSlice{shared}}, nil
	}
	t.Run("sending", func(t *testing.T) {
		kv := services.NewKVClient(serve(t, &kvServer{}, intercept))
		for range calls {
			if got, err := kv.Range(t.Context(), &rpcpb.RangeRequest{Key: []byte("k")}); err != nil || !proto.Equal(got, msg) {
				t.Fatalf("range gives %v", err)
			}
		}
	}) // The server has stopped now, so all its references are given back.
	if len(pool.back) != 0 {
		t.Fatal("the buffer was freed while its owner still had it")
	}
	shared.Free()
	<-pool.back
	if len(pool.back) != 0 {
		t.Error("the buffer was freed more than once")
	}
}
