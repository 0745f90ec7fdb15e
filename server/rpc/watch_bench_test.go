package rpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coordd/coordd/api/codec"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/watch"
)

// countingCodec does not decode a response but counts its events, so that a benchmark measures little of the client.
type countingCodec struct {
	codec.Codec
	events, messages *atomic.Int64
}

func (c countingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if _, ok := v.(*rpcpb.WatchResponse); !ok {
		return errors.New("not a watch response")
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	n := int64(0)
	for rest := b.ReadOnlyData(); len(rest) > 0; {
		num, typ, tag := protowire.ConsumeTag(rest)
		size := protowire.ConsumeFieldValue(num, typ, rest[tag:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		if num == 11 {
			n++
		}
		rest = rest[tag+size:]
	}
	c.events.Add(n)
	c.messages.Add(1)
	return nil
}

// benchWatch puts random ones of keys keys while watchers watch what create says, spread over streams connections; per is
// how many watchers match a put, ahead how many puts may be under way.
func benchWatch(b *testing.B, streams, watchers, per, ahead, keys int, create func(w int) *rpcpb.WatchCreateRequest) {
	s := newWatchServer(b, watch.Options{}, WatchOptions{})
	var events, messages atomic.Int64
	counting := countingCodec{events: &events, messages: &messages}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range streams {
		conn, err := grpc.NewClient("passthrough:///watch", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(counting)),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.lis.DialContext(ctx) }))
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		stream, err := services.NewWatchClient(conn).Watch(ctx)
		if err != nil {
			b.Fatal(err)
		}
		for w := i; w < watchers; w += streams {
			req := &rpcpb.WatchRequest{RequestUnion: &rpcpb.WatchRequest_CreateRequest{CreateRequest: create(w)}}
			if err := stream.Send(req); err != nil {
				b.Fatal(err)
			}
		}
		wg.Go(func() {
			for {
				if _, err := stream.Recv(); err != nil {
					return
				}
			}
		})
	}
	for messages.Load() < int64(watchers) {
		runtime.Gosched()
	}
	messages.Store(0)
	value := strings.Repeat("v", 256)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		for int64(i*per)-events.Load() >= int64(ahead*per) {
			runtime.Gosched()
		}
		s.put(value, fmt.Sprintf("/bench/%08d", rand.IntN(keys)))
	}
	for events.Load() < int64(b.N*per) {
		runtime.Gosched()
	}
	b.StopTimer()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*per), "ns/event")
	b.ReportMetric(float64(b.N*per)/float64(messages.Load()), "events/message")
	cancel()
	wg.Wait()
}

// BenchmarkWatchFanOut is 1000 watchers of one prefix on 50 connections, with one put at a time and with many.
func BenchmarkWatchFanOut(b *testing.B) {
	for _, ahead := range []int{1, 64} {
		b.Run(fmt.Sprint("ahead=", ahead), func(b *testing.B) {
			benchWatch(b, 50, 1000, 1000, ahead, 10_000, func(int) *rpcpb.WatchCreateRequest {
				return &rpcpb.WatchCreateRequest{Key: []byte("/bench/"), RangeEnd: []byte("/bench0")}
			})
		})
	}
}

// BenchmarkWatchKeys is 10,000 watchers of a key each on 50 connections.
func BenchmarkWatchKeys(b *testing.B) {
	benchWatch(b, 50, 10_000, 1, 64, 10_000, func(w int) *rpcpb.WatchCreateRequest {
		return &rpcpb.WatchCreateRequest{Key: fmt.Appendf(nil, "/bench/%08d", w)}
	})
}
