package codec_test

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/coordd/coordd/api/codec"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
)

// TestSameBytes sends messages of sizes around the one from which buffers are pooled, with each codec
// to the other: this one and gRPC's.
func TestSameBytes(t *testing.T) {
	for _, size := range []int{0, 1, 1000, 1024, 1025, 100_000} {
		msg := &rpcpb.PutRequest{Key: []byte("k"), Value: bytes.Repeat([]byte{7}, size)}
		other := wrapperspb.Bytes(msg.Value)
		for _, from := range []encoding.CodecV2{codec.New(), encoding.GetCodecV2("proto")} {
			for _, to := range []encoding.CodecV2{codec.New(), encoding.GetCodecV2("proto")} {
				checkTransfer(t, from, to, msg, &rpcpb.PutRequest{Lease: 5})
				checkTransfer(t, from, to, other, &wrapperspb.BytesValue{Value: []byte("old")})
			}
		}
	}
	if codec.New().Name() != "proto" {
		t.Errorf("the codec is called %q", codec.New().Name())
	}
}

// checkTransfer encodes msg with one codec and decodes it with the other into got, which holds
// something else before.
func checkTransfer(t *testing.T, from, to encoding.CodecV2, msg, got proto.Message) {
	t.Helper()
	data, err := from.Marshal(msg)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Free()
	if data.Len() != proto.Size(msg) {
		t.Errorf("%d bytes, want %d", data.Len(), proto.Size(msg))
	}
	if err := to.Unmarshal(data, got); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, msg) {
		t.Errorf("got %v, want %v", got, msg)
	}
}

// TestUnmarshalOwnsMemory scribbles over the received buffers after decoding, as their pool will, and
// appends to decoded fields, as callers do.
func TestUnmarshalOwnsMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.SliceOfN(rapid.Byte(), 1, 50)
		want := &rpcpb.TxnRequest{Success: []*rpcpb.RequestOp{
			{Request: &rpcpb.RequestOp_RequestPut{RequestPut: &rpcpb.PutRequest{Key: part.Draw(t, "key"), Value: part.Draw(t, "value"), Lease: 3}}},
			{Request: &rpcpb.RequestOp_RequestDeleteRange{RequestDeleteRange: &rpcpb.DeleteRangeRequest{Key: part.Draw(t, "key"), RangeEnd: part.Draw(t, "end")}}},
		}, Compare: []*rpcpb.Compare{{Key: part.Draw(t, "key"), TargetUnion: &rpcpb.Compare_Value{Value: part.Draw(t, "value")}, RangeEnd: part.Draw(t, "end")}}}
		wire, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		cut := rapid.IntRange(0, len(wire)).Draw(t, "cut")
		received := mem.BufferSlice{mem.SliceBuffer(wire[:cut]), mem.SliceBuffer(wire[cut:])}
		got := &rpcpb.TxnRequest{}
		if err := codec.New().Unmarshal(received, got); err != nil {
			t.Fatal(err)
		}
		for i := range wire {
			wire[i] = 0xee
		}
		put, del, cmp := got.Success[0].GetRequestPut(), got.Success[1].GetRequestDeleteRange(), got.Compare[0]
		for _, field := range [][]byte{put.Key, put.Value, del.Key, del.RangeEnd, cmp.Key, cmp.GetValue(), cmp.RangeEnd} {
			_ = append(field, 0xdd, 0xdd, 0xdd)
		}
		if !proto.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

func TestErrors(t *testing.T) {
	c := codec.New()
	if _, err := c.Marshal("text"); err == nil {
		t.Error("a string is encoded")
	}
	if err := c.Unmarshal(nil, new(string)); err == nil {
		t.Error("a string is decoded")
	}
	if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer{0x0a, 5, 'x'}}, new(rpcpb.PutRequest)); err == nil {
		t.Error("a truncated message is decoded")
	}
	broken := errors.New("broken")
	if _, err := c.Marshal(failing{err: broken}); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	for _, size := range []int{3, 3000} {
		if _, err := c.Marshal(failing{size: size}); err == nil {
			t.Errorf("a message that writes less than its size %d is encoded", size)
		}
	}
}

// failing is a message that announces a size and then writes nothing, as one would that is changed
// while it is encoded.
type failing struct {
	size int
	err  error
}

func (f failing) Reset()                                     {}
func (f failing) SizeVT() int                                { return f.size }
func (f failing) MarshalToSizedBufferVT([]byte) (int, error) { return 0, f.err }
func (f failing) UnmarshalVTUnsafe([]byte) error             { return f.err }

// TestRepeated compares joined encodings with the encoding of the whole message.
func TestRepeated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &rpcpb.RangeResponse{Header: &rpcpb.ResponseHeader{Revision: rapid.Int64().Draw(t, "revision")}, Count: rapid.Int64().Draw(t, "count"), More: rapid.Bool().Draw(t, "more")}
		head := proto.CloneOf(want)
		var items [][]byte
		for range rapid.IntRange(0, 6).Draw(t, "items") {
			kv := &kvpb.KeyValue{Key: []byte("k"), Value: make([]byte, rapid.SampledFrom([]int{0, 1, 126, 1010, 1020, 1030, 20000}).Draw(t, "size"))}
			row, err := kv.MarshalVT()
			if err != nil {
				t.Fatal(err)
			}
			want.Kvs, items = append(want.Kvs, kv), append(items, row)
		}
		out, err := codec.Repeated(head, 2, items)
		if err != nil {
			t.Fatal(err)
		}
		if out.Len() != want.SizeVT() {
			t.Fatalf("%d bytes, want %d", out.Len(), want.SizeVT())
		}
		got := &rpcpb.RangeResponse{}
		if err := codec.New().Unmarshal(out, got); err != nil || !proto.Equal(got, want) {
			t.Fatalf("got %v (%v), want %v", got, err, want)
		}
		for _, item := range items {
			if len(item) >= 1024 && !shares(out, item) {
				t.Fatalf("an item of %d bytes is copied", len(item))
			}
		}
	})
}

// shares tells whether one of the buffers is the very memory of item.
func shares(out mem.BufferSlice, item []byte) bool {
	for _, b := range out {
		if data := b.ReadOnlyData(); len(data) == len(item) && &data[0] == &item[0] {
			return true
		}
	}
	return false
}

// nested gives the encoding of depth transactions within each other, by the field of their list.
func nested(depth int, list protowire.Number) []byte {
	buf := make([]byte, 20*depth+1)
	at := len(buf)
	prepend := func(num protowire.Number) {
		head := protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.BytesType), uint64(len(buf)-at))
		at -= len(head)
		copy(buf[at:], head)
	}
	for range depth - 1 {
		prepend(4)
		prepend(list)
	}
	return buf[at:]
}

// TestNesting decodes as deep as promised, and refuses more.
func TestNesting(t *testing.T) {
	for _, tt := range []struct {
		fresh func() proto.Message
		list  protowire.Number
	}{
		{func() proto.Message { return new(rpcpb.TxnRequest) }, 2},
		{func() proto.Message { return new(rpcpb.TxnRequest) }, 3},
		{func() proto.Message { return new(rpcpb.TxnResponse) }, 3},
	} {
		for depth, ok := range map[int]bool{1: true, codec.MaxNesting: true, codec.MaxNesting + 1: false, 300_000: false} {
			data := nested(depth, tt.list)
			err := codec.New().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, tt.fresh())
			if (err == nil) != ok {
				t.Errorf("%T, list %d, depth %d: error %v", tt.fresh(), tt.list, depth, err)
			}
			if library := proto.Unmarshal(data, tt.fresh()); (library == nil) != ok {
				t.Errorf("depth %d: the protobuf library gives %v, so the bounds are not the same", depth, library)
			}
		}
	}
}

// TestNestingHidden hides a deep transaction behind a tag that the generated decoder takes for a list
// of operations although its number is out of range.
func TestNestingHidden(t *testing.T) {
	op := nested(codec.MaxNesting+1, 2)
	tag := protowire.AppendVarint(nil, 1<<35|2<<3|2)
	data := append(protowire.AppendVarint(tag, uint64(len(op))), op...)
	if err := codec.New().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, new(rpcpb.TxnRequest)); err == nil {
		t.Error("a transaction behind a malformed tag is decoded")
	}
}

// FuzzUnmarshal gives arbitrary bytes, in two pieces, to the codec, and compares with the protobuf
// library what both accept.
func FuzzUnmarshal(f *testing.F) {
	seed, err := (&rpcpb.TxnRequest{Compare: []*rpcpb.Compare{{Key: []byte("a"), TargetUnion: &rpcpb.Compare_Version{Version: 1}}}, Success: []*rpcpb.RequestOp{{Request: &rpcpb.RequestOp_RequestPut{RequestPut: &rpcpb.PutRequest{Key: []byte("a")}}}}}).MarshalVT()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed, uint16(3))
	f.Add([]byte{0x82, 0x82, 0x00, 0x00}, uint16(2)) // an unknown field whose tag is longer than needed
	f.Fuzz(func(t *testing.T, data []byte, cut uint16) {
		at := int(cut) % (len(data) + 1)
		got, want := &rpcpb.TxnRequest{}, &rpcpb.TxnRequest{}
		err := codec.New().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data[:at]), mem.SliceBuffer(data[at:])}, got)
		if err == nil && proto.Unmarshal(data, want) == nil && !proto.Equal(normal(t, got), want) {
			t.Fatalf("%x is %v, to the library %v", data, got, want)
		}
	})
}

// normal gives msg with the tags of unknown fields in their shortest form, as the library stores them;
// the generated decoders keep the bytes they got.
func normal(t *testing.T, msg proto.Message) proto.Message {
	t.Helper()
	data, err := proto.Marshal(msg)
	if err != nil {
		t.Fatal(err)
	}
	out := msg.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	return out
}
