package watch

import (
	"bytes"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/mvcc"
)

// drawPair draws a stored pair.
func drawPair(t *rapid.T, label string) *kvpb.KeyValue {
	return &kvpb.KeyValue{
		Key:            rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, label+" key"),
		Value:          rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, label+" value"),
		CreateRevision: rapid.Int64Range(1, 1<<40).Draw(t, label+" create"),
		ModRevision:    rapid.Int64Range(1, 1<<62).Draw(t, label+" mod"),
		Version:        rapid.Int64Range(1, 1000).Draw(t, label+" version"),
		Lease:          rapid.Int64().Draw(t, label+" lease"),
	}
}

func marshal(t fataler, m interface{ MarshalVT() ([]byte, error) }) []byte {
	b, err := m.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestWire checks the encoding by hand of events and responses against the generated decoder.
func TestWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &rpcpb.WatchResponse{WatchId: rapid.Int64().Draw(t, "id"), Fragment: rapid.Bool().Draw(t, "fragment")}
		var src []mvcc.Event
		var prev [][]byte
		withPrev := rapid.Bool().Draw(t, "with previous")
		for range rapid.IntRange(0, 5).Draw(t, "events") {
			kv := drawPair(t, "pair")
			e := mvcc.Event{Rev: mvcc.Revision{Main: kv.ModRevision}, Key: kv.Key, Version: kv.Version}
			ev := &kvpb.Event{Kv: kv}
			if e.Tombstone = rapid.Bool().Draw(t, "delete"); e.Tombstone {
				ev.Type = kvpb.Event_DELETE
				ev.Kv = &kvpb.KeyValue{Key: kv.Key, ModRevision: kv.ModRevision}
			}
			e.Row = marshal(t, ev.Kv)
			var p []byte
			if withPrev && rapid.Bool().Draw(t, "has previous") {
				ev.PrevKv = drawPair(t, "previous")
				p = marshal(t, ev.PrevKv)
			}
			want.Events = append(want.Events, ev)
			src, prev = append(src, e), append(prev, p)
		}
		r := Response{WatchID: want.WatchId, Fragment: want.Fragment, events: encodeBatch(src), prevKV: withPrev}
		for i, e := range r.events {
			if !bytes.Equal(e.key, src[i].Key) || e.rev != src[i].Rev.Main {
				t.Fatalf("event %d: key %q revision %d, want %q %d", i, e.key, e.rev, src[i].Key, src[i].Rev.Main)
			}
			if prev[i] != nil {
				wire := e.encodeWithPrev(prev[i])
				e.prev.Store(&wire)
			}
		}
		if len(src) == 0 {
			r.Created = rapid.Bool().Draw(t, "created")
			r.Canceled = rapid.Bool().Draw(t, "canceled")
			r.CompactRevision = rapid.Int64().Draw(t, "compacted")
			r.Reason = rapid.String().Draw(t, "reason")
			want.Created, want.Canceled, want.CompactRevision, want.CancelReason = r.Created, r.Canceled, r.CompactRevision, r.Reason
		} else if !r.Fragment {
			w := newWatcher(nil, want.WatchId, CreateOptions{Key: []byte("k")})
			r.idField = w.idField
		}
		wire := bytes.Join(r.AppendWire(nil), nil)
		if len(wire) != r.WireSize() {
			t.Fatalf("%d bytes, announced %d", len(wire), r.WireSize())
		}
		got := new(rpcpb.WatchResponse)
		if err := got.UnmarshalVT(wire); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, want) {
			t.Fatalf("got  %v\nwant %v", got, want)
		}
		events, err := r.Events()
		if err != nil || len(events) != len(want.Events) {
			t.Fatalf("%d events, error %v", len(events), err)
		}
		for i := range events {
			if !proto.Equal(events[i], want.Events[i]) {
				t.Fatalf("event %d: %v, want %v", i, events[i], want.Events[i])
			}
		}
	})
}

// TestKeyNotFirst checks that a row whose fields are in another order than ours is delivered all the same.
func TestKeyNotFirst(t *testing.T) {
	row := append([]byte{0x18, 7}, marshal(t, &kvpb.KeyValue{Key: []byte("k")})...)
	e := encodeOne(&mvcc.Event{Rev: mvcc.Revision{Main: 7}, Key: []byte("k"), Row: row})
	r := Response{events: []*event{e}}
	got, err := r.Events()
	if err != nil || string(e.key) != "k" || string(got[0].Kv.Key) != "k" || got[0].Kv.ModRevision != 7 {
		t.Fatalf("key %q, event %v, error %v", e.key, got, err)
	}
	if e := encodeOne(&mvcc.Event{Key: []byte("k"), Row: []byte{0x18}}); string(e.key) != "k" {
		t.Fatalf("key %q of a row cut short", e.key)
	} else if _, err := (&Response{events: []*event{e}}).Events(); err == nil {
		t.Fatal("a row cut short was decoded")
	}
}

// TestJoin checks that responses are joined only for a watcher with many, and never across an answer.
func TestJoin(t *testing.T) {
	a := &watcher{id: 1}
	b := &watcher{id: 2}
	ev := func(rev int64) []*event { return []*event{{rev: rev, wire: []byte{1}}} }
	var queue []entry
	rev := int64(1)
	add := func(w *watcher, n int) {
		for range n {
			rev++
			queue = append(queue, entry{w: w, events: ev(rev), rev: rev})
		}
	}
	add(a, 5)                                                                     // 2 to 6
	add(b, 3)                                                                     // 7 to 9
	add(a, 1)                                                                     // 10
	queue = append(queue, entry{answer: &Response{WatchID: NoID, Revision: rev}}) // told of 10
	add(a, 3)                                                                     // 11 to 13
	out, turn := convert(nil, queue, 1<<20, 0)
	got := ""
	for _, r := range out {
		got += fmt.Sprintf("%d@%d:%d ", r.WatchID, r.Revision, r.Len())
	}
	want := "1@10:6 2@7:1 2@8:1 2@9:1 -1@10:0 1@11:1 1@12:1 1@13:1 "
	if got != want || turn != 2 {
		t.Fatalf("got %s after %d runs, want %s", got, turn, want)
	}
	for i, e := range out[0].events {
		if want := []int64{2, 3, 4, 5, 6, 10}[i]; e.rev != want {
			t.Fatalf("event %d of the joined response has revision %d, want %d", i, e.rev, want)
		}
	}
	if len(queue[0].events) != 1 {
		t.Fatal("joining changed what is queued")
	}
	// A joined response does not grow without bound.
	queue = nil
	for i := range 5 {
		queue = append(queue, entry{w: a, events: []*event{{rev: int64(i), wire: make([]byte, mergeBytes/2)}}, rev: int64(i)})
	}
	if out, _ = convert(nil, queue, 1<<30, turn); len(out) != 3 || out[0].Len() != 2 || out[2].Len() != 1 {
		t.Fatalf("%d responses of large events, want 3", len(out))
	}
}
