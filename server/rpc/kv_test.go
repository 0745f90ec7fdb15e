package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/errs/grpcerr"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// fill puts keys a00, a01, … with values of growing size, some of them several pieces long, and makes
// some old revisions.
func fill(t testing.TB, n *testMember) {
	t.Helper()
	for i := range 60 {
		n.mustPut(t, fmt.Sprintf("a%02d", i), string(bytes.Repeat([]byte{byte('0' + i%10)}, i*i)))
	}
	n.mustPut(t, "b-long", string(bytes.Repeat([]byte("long"), 3*pieceSize/4)))
	n.mustPut(t, "b-longer", string(bytes.Repeat([]byte("x"), pieceSize*5/2)))
	for i := range 20 {
		n.mustPut(t, fmt.Sprintf("a%02d", 3*i), "again")
	}
}

// drawRange draws a read of what fill has put, including impossible revisions.
func drawRange(t *rapid.T, newest int64) *rpcpb.RangeRequest {
	key := rapid.SampledFrom([]string{"a", "a05", "a30", "a59", "b", "b-long", "c", "\x00"})
	r := &rpcpb.RangeRequest{
		Key: []byte(key.Draw(t, "key")), RangeEnd: []byte(rapid.SampledFrom([]string{"", "a30", "b", "c", "\x00"}).Draw(t, "end")),
		Limit:     rapid.SampledFrom([]int64{0, 0, -1, 1, 2, 9, 10, 11, 30, 1000}).Draw(t, "limit"),
		KeysOnly:  rapid.Bool().Draw(t, "keysOnly"),
		CountOnly: rapid.IntRange(0, 9).Draw(t, "countOnly") == 0,
	}
	if rapid.Bool().Draw(t, "old") {
		r.Revision = rapid.Int64Range(-1, newest+1).Draw(t, "revision")
	}
	return r
}

// TestRangeBytes holds the answer made of stored rows against the typed one: same bytes, same errors.
func TestRangeBytes(t *testing.T) {
	n := newTestMember(t)
	s := NewKV(n, n, 128, 1<<20)
	fill(t, n)
	rapid.Check(t, func(t *rapid.T) {
		r := drawRange(t, n.Revision())
		if rapid.Bool().Draw(t, "sorted") {
			r.SortOrder = rapid.SampledFrom([]rpcpb.RangeRequest_SortOrder{0, 1, 2, 3}).Draw(t, "order")
			r.SortTarget = rapid.SampledFrom([]rpcpb.RangeRequest_SortTarget{0, 1, 2, 3, 4, 5}).Draw(t, "target")
			r.MinModRevision = rapid.SampledFrom([]int64{0, 0, 10}).Draw(t, "minMod")
		}
		typed, wantErr := s.Range(context.Background(), r)
		encoded, err := s.rangeEncoded(context.Background(), r)
		if !errors.Is(err, wantErr) || (err == nil) != (wantErr == nil) {
			t.Fatalf("errors %v and %v", err, wantErr)
		}
		if err != nil {
			return
		}
		want, err := typed.MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		buffers := encoded.EncodedBuffers()
		defer buffers.Free()
		if got := buffers.Materialize(); !bytes.Equal(got, want) {
			t.Fatalf("%d bytes differ from the %d of the typed answer", len(got), len(want))
		}
	})
}

// TestRangeConcurrent reads long answers over gRPC by many clients at once: pooled pieces must not be
// filled again before they are sent.
func TestRangeConcurrent(t *testing.T) {
	s := serve(t, nil)
	const clients, keys = 8, 6
	var values [clients][keys][]byte
	for i := range values {
		for j := range values[i] {
			values[i][j] = bytes.Repeat([]byte{byte('a' + i)}, 9000*(j+1))
			s.mustPut(t, fmt.Sprintf("%c%d", 'a'+i, j), string(values[i][j]))
		}
	}
	kv := services.NewKVClient(s.conn)
	var wg sync.WaitGroup
	for i := range values {
		wg.Go(func() {
			for range 12 {
				resp, err := kv.Range(with(t), &rpcpb.RangeRequest{Key: []byte{byte('a' + i)}, RangeEnd: []byte{byte('b' + i)}})
				if err != nil || len(resp.Kvs) != keys {
					t.Errorf("%d keys, %v", len(resp.GetKvs()), err)
					return
				}
				for j, kv := range resp.Kvs {
					if !bytes.Equal(kv.Value, values[i][j]) {
						t.Errorf("key %s has a value that was not put", kv.Key)
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestRangeOnce: an answer with pooled memory must not be encoded twice, since its buffers are gone after the first time.
func TestRangeOnce(t *testing.T) {
	n := newTestMember(t)
	s := NewKV(n, n, 128, 1<<20)
	n.mustPut(t, "k", string(make([]byte, 2*pieceSize)))
	encoded, err := s.rangeEncoded(t.Context(), &rpcpb.RangeRequest{Key: []byte("k")})
	if err != nil {
		t.Fatal(err)
	}
	buffers := encoded.EncodedBuffers()
	buffers.Free()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	encoded.EncodedBuffers()
}

// TestRangeGoneClient: reading stops when nobody waits for the answer any more.
func TestRangeGoneClient(t *testing.T) {
	n := newTestMember(t)
	s := NewKV(n, n, 128, 1<<20)
	for i := range 2 * checkRows {
		n.mustPut(t, fmt.Sprintf("k%04d", i), "")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.rangeEncoded(ctx, &rpcpb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// gather receives all messages of a RangeStream, and merges them.
func gather(stream grpc.ServerStreamingClient[rpcpb.RangeStreamResponse], err error) (merged *rpcpb.RangeResponse, sizes []int, _ error) {
	merged = new(rpcpb.RangeResponse)
	for err == nil {
		var m *rpcpb.RangeStreamResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		if merged.Header != nil {
			return nil, nil, errors.New("a message after the one with the header")
		}
		proto.Merge(merged, m.RangeResponse)
		sizes = append(sizes, len(m.RangeResponse.Kvs))
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return merged, sizes, err
}

// TestRangeStreamMerges holds the merged messages of streams against the unary answer.
func TestRangeStreamMerges(t *testing.T) {
	s := serve(t, func(c *Config) { c.MaxRequestBytes = 4000 }) // chunks both grow and shrink
	fill(t, s.testMember)
	kv := services.NewKVClient(s.conn)
	rapid.Check(t, func(rt *rapid.T) {
		r := drawRange(rt, s.Revision())
		want, wantErr := kv.Range(with(t), r)
		got, _, err := gather(kv.RangeStream(with(t), r))
		if status.Convert(err).Message() != status.Convert(wantErr).Message() || status.Code(err) != status.Code(wantErr) {
			rt.Fatalf("stream: %v, unary: %v", err, wantErr)
		}
		if err == nil && !proto.Equal(got, want) {
			rt.Fatalf("stream has %d keys, count %d, more %t, header %v; unary %d, %d, %t, %v", len(got.Kvs), got.Count, got.More, got.Header,
				len(want.Kvs), want.Count, want.More, want.Header)
		}
	})
}

// TestRangeStreamChunks checks how many keys the messages have.
func TestRangeStreamChunks(t *testing.T) {
	s := serve(t, func(c *Config) { c.MaxRequestBytes = 10_000 })
	for i := range 100 {
		s.mustPut(t, fmt.Sprintf("a%03d", i), string(make([]byte, 20)))
		s.mustPut(t, fmt.Sprintf("b%03d", i), string(make([]byte, 3000)))
	}
	kv := services.NewKVClient(s.conn)
	for _, c := range []struct {
		begin, end string
		limit      int64
		want       []int
	}{
		{"a", "b", 0, []int{10, 20, 40, 30}},       // small: doubled each time
		{"b", "c", 0, []int{10, 5, 5, 5}},          // 30 kB is above twice the target, 15 kB is not
		{"a", "b", 25, []int{10, 15}},              // never beyond the limit
		{"a", "b", 10, []int{10}},                  // no empty message at the end
		{"a", "a010", 0, []int{10}},                // likewise
		{"a", "b", 1 << 50, []int{10, 20, 40, 30}}, // a limit that cuts nothing
		{"a", "b002", 0, []int{10, 20, 40, 32}},    //
		{"b089", "\x00", 0, []int{10, 1}},          //
		{"x", "y", 0, []int{0}},                    // nothing is one message
		{"b", "a", 0, []int{0}},                    // so is an empty interval
		{"a050", "", 5, []int{1}},                  // and a single key
		{"nope", "", 0, []int{0}},
	} {
		_, sizes, err := gather(kv.RangeStream(with(t), &rpcpb.RangeRequest{Key: []byte(c.begin), RangeEnd: []byte(c.end), Limit: c.limit}))
		if len(sizes) > len(c.want) && c.begin == "b" && c.limit == 0 {
			sizes = sizes[:len(c.want)] // the rest goes on alike
		}
		if err != nil || fmt.Sprint(sizes) != fmt.Sprint(c.want) {
			t.Errorf("[%q, %q) limit %d: messages of %d keys, %v, want %d", c.begin, c.end, c.limit, sizes, err, c.want)
		}
	}
}

// TestRangeStreamPinned: all messages are as of one revision, and compaction of it ends the stream.
func TestRangeStreamPinned(t *testing.T) {
	s := serve(t, nil)
	for i := range 30 {
		s.mustPut(t, fmt.Sprintf("k%02d", i), "old")
	}
	at := s.Revision()
	reads := 0
	s.onRange = func(r *rpcpb.RangeRequest) error {
		if reads++; reads == 2 {
			if r.Revision != at || !r.Serializable {
				t.Errorf("the second read is at revision %d, serializable %t", r.Revision, r.Serializable)
			}
			s.mustPut(t, "k20", "new")
			s.mustPut(t, "k99", "new")
		}
		return nil
	}
	kv := services.NewKVClient(s.conn)
	all := &rpcpb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")}
	got, sizes, err := gather(kv.RangeStream(with(t), all))
	if err != nil || len(sizes) != 2 || len(got.Kvs) != 30 || string(got.Kvs[20].Value) != "old" || got.Header.Revision != at || got.Count != 30 {
		t.Errorf("messages of %d keys, %v, header %v, count %d", sizes, err, got.GetHeader(), got.GetCount())
	}
	reads = 0
	s.onRange = func(*rpcpb.RangeRequest) error {
		if reads++; reads == 2 {
			rev := s.mustPut(t, "k21", "newest")
			if _, err := s.Compact(t.Context(), &rpcpb.CompactionRequest{Revision: rev}); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	_, sizes, err = gather(kv.RangeStream(with(t), all))
	if fmt.Sprint(sizes) != "[10]" || !errors.Is(grpcerr.FromStatus(err), errs.ErrCompacted) {
		t.Errorf("compacted on the way: messages of %d keys, %v", sizes, err)
	}
}

func TestRangeStreamRefuses(t *testing.T) {
	s := serve(t, nil)
	kv := services.NewKVClient(s.conn)
	k := []byte("k")
	for _, c := range []struct {
		r    *rpcpb.RangeRequest
		code codes.Code
		text string
	}{
		{&rpcpb.RangeRequest{}, codes.InvalidArgument, "etcdserver: key is not provided"},
		{&rpcpb.RangeRequest{Key: k, SortOrder: 9}, codes.InvalidArgument, "etcdserver: invalid sort option"},
		{&rpcpb.RangeRequest{Key: k, SortOrder: rpcpb.RangeRequest_DESCEND}, codes.Unimplemented, "RangeStream does not support custom sort orders"},
		{&rpcpb.RangeRequest{Key: k, SortOrder: rpcpb.RangeRequest_ASCEND, SortTarget: rpcpb.RangeRequest_MOD}, codes.Unimplemented, "RangeStream does not support custom sort orders"},
		{&rpcpb.RangeRequest{Key: k, MaxModRevision: 1}, codes.Unimplemented, "RangeStream does not support revision filters"},
		{&rpcpb.RangeRequest{Key: k, MinCreateRevision: 1}, codes.Unimplemented, "RangeStream does not support revision filters"},
		{&rpcpb.RangeRequest{Key: k, Revision: 99}, codes.OutOfRange, "etcdserver: mvcc: required revision is a future revision"},
		{&rpcpb.RangeRequest{Key: k, SortOrder: rpcpb.RangeRequest_ASCEND}, codes.OK, ""},
		{&rpcpb.RangeRequest{Key: k, SortTarget: rpcpb.RangeRequest_VALUE}, codes.OK, ""},
	} {
		_, _, err := gather(kv.RangeStream(with(t), c.r))
		if status.Code(err) != c.code || status.Convert(err).Message() != c.text {
			t.Errorf("%v: %v, want %v %q", c.r, err, c.code, c.text)
		}
	}
}

// FuzzRowKey: whatever is in a row, its key is found or the row refused, as a decoder would.
func FuzzRowKey(f *testing.F) {
	for _, kv := range []*kvpb.KeyValue{{}, {Key: []byte("k")}, {Key: []byte("key"), Value: []byte("v"), ModRevision: 300, Lease: -1}} {
		row, err := kv.MarshalVT()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(row)
	}
	f.Add([]byte{0x28, 0x01, 0x0a, 0x01, 'k'})
	f.Fuzz(func(t *testing.T, row []byte) {
		key, err := rowKey(row)
		if err != nil {
			return
		}
		var kv kvpb.KeyValue
		if kv.UnmarshalVT(append([]byte(nil), row...)) == nil && key == nil && len(kv.Key) > 0 {
			t.Errorf("no key found, the decoder has %q", kv.Key)
		}
	})
}

// TestPiecePool: pieces come back and are given out with the length asked for.
func TestPiecePool(t *testing.T) {
	var p piecePool
	piece := p.Get(pieceSize)
	b := mem.NewBuffer(piece, &p)
	b.Free()
	for range 3 {
		if got := p.Get(17); len(*got) != 17 || cap(*got) != pieceSize {
			t.Errorf("length %d, capacity %d", len(*got), cap(*got))
		}
	}
}
