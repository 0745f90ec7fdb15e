package watch

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/mvcc"
)

// benchPublish measures what one event costs the apply loop: Publish alone, with queues read in between.
func benchPublish(b *testing.B, streams, watchers, batch int, o func(i int) CreateOptions) {
	d := testDB(b, Options{})
	var all []*Stream
	for range streams {
		s := d.hub.Open(StreamOptions{})
		defer s.Close()
		all = append(all, s)
	}
	for i := range watchers {
		create(b, all[i%streams], o(i))
	}
	kv := &kvpb.KeyValue{Value: make([]byte, 256), CreateRevision: 2, Version: 2}
	events := make([]mvcc.Event, batch)
	rev := d.rev
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for i := range events {
			rev++
			kv.Key = fmt.Appendf(nil, "/bench/%08d", rev*7919%10_000)
			kv.ModRevision = rev
			row, err := kv.MarshalVT()
			if err != nil {
				b.Fatal(err)
			}
			events[i] = mvcc.Event{Rev: mvcc.Revision{Main: rev}, Key: kv.Key, Row: row, Version: 2}
		}
		for _, s := range all {
			if _, err := s.take(); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		d.hub.Publish(rev, events)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/event")
}

func BenchmarkPublish(b *testing.B) {
	prefix := func(int) CreateOptions { return CreateOptions{Key: []byte("/bench/"), End: []byte("/bench0")} }
	key := func(i int) CreateOptions { return CreateOptions{Key: fmt.Appendf(nil, "/bench/%08d", i)} }
	for _, batch := range []int{1, 32} {
		b.Run(fmt.Sprint("nobody/batch=", batch), func(b *testing.B) { benchPublish(b, 1, 0, batch, nil) })
		b.Run(fmt.Sprint("1000 of a prefix/batch=", batch), func(b *testing.B) { benchPublish(b, 50, 1000, batch, prefix) })
		b.Run(fmt.Sprint("10k of keys/batch=", batch), func(b *testing.B) { benchPublish(b, 50, 10_000, batch, key) })
	}
}

// BenchmarkEncode measures the encoding of one event of 256 bytes.
func BenchmarkEncode(b *testing.B) {
	kv := &kvpb.KeyValue{Key: []byte("/bench/00000001"), Value: make([]byte, 256), CreateRevision: 2, ModRevision: 3, Version: 2}
	e := mvcc.Event{Rev: mvcc.Revision{Main: 3}, Key: kv.Key, Row: marshal(b, kv), Version: 2}
	b.ReportAllocs()
	b.SetBytes(int64(protowire.SizeBytes(len(e.Row))))
	for b.Loop() {
		encodeOne(&e)
	}
}
