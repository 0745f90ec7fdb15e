package rpc

import (
	"bytes"
	"fmt"
	"testing"

	"google.golang.org/grpc"

	"github.com/coordd/coordd/api/codec"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// benchServers runs a benchmark against the services here, and against a gRPC server that has the same node
// behind generated handlers and no interceptor.
func benchServers(b *testing.B, run func(b *testing.B, n *testMember, kv services.KVClient)) {
	b.Run("plain", func(b *testing.B) {
		n := newTestMember(b)
		g := grpc.NewServer(grpc.ForceServerCodecV2(codec.New()))
		services.RegisterKVServer(g, plainKV{KVService: NewKV(n, n, 128, 1<<20)})
		run(b, n, services.NewKVClient(dialServer(b, g)))
	})
	b.Run("services", func(b *testing.B) {
		s := serve(b, nil)
		run(b, s.testMember, services.NewKVClient(s.conn))
	})
}

// plainKV is the KV service with its typed methods only.
type plainKV struct{ *KVService }

// BenchmarkGet reads one key with a value of 256 bytes.
func BenchmarkGet(b *testing.B) {
	benchServers(b, func(b *testing.B, n *testMember, kv services.KVClient) {
		n.mustPut(b, "/registry/pods/default/pod-1", string(make([]byte, 256)))
		r := &rpcpb.RangeRequest{Key: []byte("/registry/pods/default/pod-1")}
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if resp, err := kv.Range(b.Context(), r); err != nil || len(resp.Kvs) != 1 {
					b.Error(resp, err)
				}
			}
		})
	})
}

// BenchmarkList reads 1000 keys.
func BenchmarkList(b *testing.B) {
	benchServers(b, func(b *testing.B, n *testMember, kv services.KVClient) {
		for i := range 1000 {
			n.mustPut(b, fmt.Sprintf("/registry/pods/default/pod-%04d", i), string(make([]byte, 256)))
		}
		r := &rpcpb.RangeRequest{Key: []byte("/"), RangeEnd: []byte("0")}
		b.ReportAllocs()
		for b.Loop() {
			if resp, err := kv.Range(b.Context(), r); err != nil || len(resp.Kvs) != 1000 {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkPut puts one key.
func BenchmarkPut(b *testing.B) {
	benchServers(b, func(b *testing.B, n *testMember, kv services.KVClient) {
		r := &rpcpb.PutRequest{Key: []byte("/registry/pods/default/pod-1"), Value: bytes.Repeat([]byte("v"), 256)}
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := kv.Put(b.Context(), r); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// BenchmarkKeepAlive renews leases over one stream, 2000 at a time.
func BenchmarkKeepAlive(b *testing.B) {
	s := serve(b, nil)
	const leases = 2000
	for i := range leases {
		if _, err := s.LeaseGrant(b.Context(), &rpcpb.LeaseGrantRequest{ID: int64(i + 1), TTL: 60}); err != nil {
			b.Fatal(err)
		}
	}
	stream, err := services.NewLeaseClient(s.conn).LeaseKeepAlive(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		go func() {
			for i := range leases {
				_ = stream.Send(&rpcpb.LeaseKeepAliveRequest{ID: int64(i + 1)})
			}
		}()
		for range leases {
			if resp, err := stream.Recv(); err != nil || resp.TTL != 60 {
				b.Fatal(resp, err)
			}
		}
	}
	b.ReportMetric(float64(b.N)*leases/b.Elapsed().Seconds(), "renewals/s")
}

// BenchmarkHandlers is a call without gRPC: the wrapped handler of Range, and what it wraps.
func BenchmarkHandlers(b *testing.B) {
	n := newTestMember(b)
	n.mustPut(b, "k", string(make([]byte, 256)))
	s, err := New(Config{Node: n, Hub: n.hub})
	if err != nil {
		b.Fatal(err)
	}
	desc := kvDesc()
	ctx := incoming(b, "client-api-version", "3.7.0", "user-agent", "grpc-go", ":authority", "x", "content-type", "application/grpc")
	dec := func(v any) error {
		v.(*rpcpb.RangeRequest).Key = []byte("k")
		return nil
	}
	for _, c := range []struct {
		name string
		h    grpc.MethodHandler
	}{{"bare", desc.Methods[0].Handler}, {"wrapped", s.handlers.wrap(desc).Methods[0].Handler}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.h(s.KV, ctx, dec, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
