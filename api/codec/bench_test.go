package codec_test

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec to compare with
	"google.golang.org/grpc/mem"

	"github.com/coordd/coordd/api/codec"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
)

// copying is the codec with decoders that allocate each field, to compare with.
type copying struct{ codec.Codec }

func (copying) Unmarshal(data mem.BufferSlice, v any) error {
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return v.(interface{ UnmarshalVT([]byte) error }).UnmarshalVT(buf.ReadOnlyData())
}

// benchRange gives an answer of n pairs with values of 256 bytes.
func benchRange(n int) *rpcpb.RangeResponse {
	resp := &rpcpb.RangeResponse{Header: &rpcpb.ResponseHeader{ClusterId: 1 << 60, MemberId: 1 << 61, Revision: 123456, RaftTerm: 7}, Count: int64(n)}
	for i := range n {
		resp.Kvs = append(resp.Kvs, &kvpb.KeyValue{Key: fmt.Appendf(nil, "/registry/pods/default/pod-%06d", i), Value: make([]byte, 256), CreateRevision: int64(100000 + i), ModRevision: int64(200000 + i), Version: 3})
	}
	return resp
}

// BenchmarkCodec compares this codec with the one of gRPC, and with decoders that allocate each
// field.
func BenchmarkCodec(b *testing.B) {
	put := &rpcpb.PutRequest{Key: []byte("/registry/pods/default/pod-000001"), Value: make([]byte, 256), Lease: 77}
	codecs := []struct {
		name string
		c    encoding.CodecV2
	}{{"grpc", encoding.GetCodecV2("proto")}, {"copying", copying{}}, {"ours", codec.New()}}
	for _, c := range codecs {
		benchCodec(b, "put/"+c.name, c.c, put, func() any { return new(rpcpb.PutRequest) })
		benchCodec(b, "range1000/"+c.name, c.c, benchRange(1000), func() any { return new(rpcpb.RangeResponse) })
	}
}

func benchCodec(b *testing.B, name string, c encoding.CodecV2, msg any, fresh func() any) {
	b.Run(name+"/marshal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			out, err := c.Marshal(msg)
			if err != nil {
				b.Fatal(err)
			}
			out.Free()
		}
	})
	b.Run(name+"/unmarshal", func(b *testing.B) {
		out, err := c.Marshal(msg)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if err := c.Unmarshal(out, fresh()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
