package raftcodec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// maybe draws nil or a pointer to a drawn value.
func maybe[T any](t *rapid.T, g *rapid.Generator[T], name string) *T {
	if rapid.Bool().Draw(t, name+" is nil") {
		return nil
	}
	return new(g.Draw(t, name))
}

func maybeBytes(t *rapid.T, name string) []byte {
	b := maybe(t, rapid.SliceOfN(rapid.Byte(), 0, 200), name)
	if b == nil {
		return nil
	}
	return *b
}

func drawEntry(t *rapid.T) *raftpb.Entry {
	typ := rapid.Map(rapid.Int32Range(0, 2), func(i int32) raftpb.EntryType { return raftpb.EntryType(i) })
	return &raftpb.Entry{
		Term: maybe(t, rapid.Uint64(), "term"), Index: maybe(t, rapid.Uint64(), "index"),
		Type: maybe(t, typ, "type"), Data: maybeBytes(t, "data"),
	}
}

func drawSnapshot(t *rapid.T) *raftpb.Snapshot {
	ids := rapid.SliceOfN(rapid.Uint64(), 1, 9)
	cs := &raftpb.ConfState{AutoLeave: maybe(t, rapid.Bool(), "auto leave")}
	for _, l := range []*[]uint64{&cs.Voters, &cs.Learners, &cs.VotersOutgoing, &cs.LearnersNext} {
		if p := maybe(t, ids, "ids"); p != nil {
			*l = *p
		}
	}
	s := &raftpb.Snapshot{Data: maybeBytes(t, "data")}
	if rapid.Bool().Draw(t, "metadata") {
		s.Metadata = &raftpb.SnapshotMetadata{Index: maybe(t, rapid.Uint64(), "index"), Term: maybe(t, rapid.Uint64(), "term")}
		if rapid.Bool().Draw(t, "conf state") {
			s.Metadata.ConfState = cs
		}
	}
	return s
}

func drawMessage(t *rapid.T, depth int) *raftpb.Message {
	typ := rapid.Map(rapid.Int32Range(0, 23), func(i int32) raftpb.MessageType { return raftpb.MessageType(i) })
	u := rapid.Uint64()
	m := &raftpb.Message{
		Type: maybe(t, typ, "type"), To: maybe(t, u, "to"), From: maybe(t, u, "from"), Term: maybe(t, u, "term"),
		LogTerm: maybe(t, u, "logterm"), Index: maybe(t, u, "index"), Commit: maybe(t, u, "commit"), Vote: maybe(t, u, "vote"),
		RejectHint: maybe(t, u, "hint"), Reject: maybe(t, rapid.Bool(), "reject"), Context: maybeBytes(t, "context"),
	}
	if rapid.Bool().Draw(t, "snapshot") {
		m.Snapshot = drawSnapshot(t)
	}
	for range rapid.IntRange(0, 3).Draw(t, "entries") {
		m.Entries = append(m.Entries, drawEntry(t))
	}
	if depth < 2 {
		for range rapid.IntRange(0, 2).Draw(t, "responses") {
			m.Responses = append(m.Responses, drawMessage(t, depth+1))
		}
	}
	return m
}

// TestRoundTrip: what is decoded equals what was encoded, field by field and
// nil for nil, and every shorter input is refused.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t, 0)
		enc := AppendMessage([]byte("before"), m)[len("before"):]
		got, n, err := DecodeMessage(append(bytes.Clone(enc), "after"...))
		if err != nil || n != len(enc) || !proto.Equal(got, m) {
			t.Fatalf("got %v (%d bytes, %v), want %v (%d bytes)", got, n, err, m, len(enc))
		}
		for cut := range enc {
			if _, _, err := DecodeMessage(enc[:cut]); !errors.Is(err, ErrMalformed) {
				t.Fatalf("the first %d of %d bytes: %v", cut, len(enc), err)
			}
		}
		batch := AppendBatch(nil, []*raftpb.Message{m, m})
		msgs, err := DecodeBatch(batch)
		if err != nil || len(msgs) != 2 || !proto.Equal(msgs[1], m) {
			t.Fatalf("batch: %v, %v", msgs, err)
		}
		if _, err := DecodeBatch(append(batch, 0)); !errors.Is(err, ErrMalformed) {
			t.Fatalf("a byte after the batch: %v", err)
		}
	})
}

func TestEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ents []*raftpb.Entry
		var buf []byte
		for range rapid.SampledFrom([]int{0, 1, 5, 255, 256, 257, 600}).Draw(t, "n") {
			ents = append(ents, &raftpb.Entry{Index: new(uint64(len(ents))), Data: []byte{byte(len(ents))}})
		}
		ents = append(ents, drawEntry(t))
		for _, e := range ents {
			buf = AppendEntry(buf, e)
		}
		for i, e := range ents {
			got, n, err := DecodeEntry(buf)
			if err != nil || !proto.Equal(got, e) {
				t.Fatalf("entry %d: got %v (%v), want %v", i, got, err, e)
			}
			buf = buf[n:]
		}
		got, n, err := DecodeEntries(AppendEntries(nil, ents))
		if err != nil || len(got) != len(ents) || n == 0 {
			t.Fatalf("%d entries of %d (%v)", len(got), len(ents), err)
		}
		for i, e := range ents {
			if !proto.Equal(got[i], e) {
				t.Fatalf("entry %d: got %v, want %v", i, got[i], e)
			}
		}
	})
}

func TestRefused(t *testing.T) {
	deep := &raftpb.Message{}
	for range maxDepth + 1 {
		deep = &raftpb.Message{Responses: []*raftpb.Message{deep}}
	}
	huge := binary.AppendUvarint(nil, 1<<60)
	for name, err := range map[string]error{
		"unknown version":     second(DecodeBatch([]byte{Version + 1, 0})),
		"unknown entry bit":   third(DecodeEntry([]byte{entryBits + 1})),
		"unknown message bit": third(DecodeMessage(binary.AppendUvarint(nil, msgBits+1))),
		"huge count":          third(DecodeEntries(huge)),
		"huge data":           third(DecodeEntry(append([]byte{entryData}, huge...))),
		"negative type":       third(DecodeEntry(append([]byte{entryType}, binary.AppendUvarint(nil, 1<<32-1)...))),
		"bool of 2":           third(DecodeMessage(append(binary.AppendUvarint(nil, msgReject), 2))),
		"too deep":            third(DecodeMessage(AppendMessage(nil, deep))),
		"overlong number":     third(DecodeEntry(append([]byte{entryTerm}, bytes.Repeat([]byte{0xFF}, 11)...))),
		"conf state":          third(DecodeConfState(append([]byte{confVoters}, huge...))),
	} {
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func third[T any](_ T, _ int, err error) error { return err }

// FuzzDecode gives arbitrary bytes to all decoders. What they accept must come
// out the same again, and memory must stay in proportion.
func FuzzDecode(f *testing.F) {
	e := &raftpb.Entry{Term: new(uint64(3)), Index: new(uint64(9)), Type: new(raftpb.EntryConfChangeV2), Data: []byte("data")}
	s := &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(8)), ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}}}
	m := &raftpb.Message{Type: new(raftpb.MsgApp), To: new(uint64(1)), Entries: []*raftpb.Entry{e, e}, Snapshot: s}
	f.Add(AppendBatch(nil, []*raftpb.Message{m, {Responses: []*raftpb.Message{m}}}))
	f.Add(AppendMessage(nil, m))
	f.Add(AppendEntries(nil, m.Entries))
	f.Add(AppendEntry(nil, e))
	f.Add(AppendConfState(nil, s.Metadata.ConfState))
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		msgs, err := DecodeBatch(b)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 2000*uint64(len(b))+1<<20 {
			t.Fatalf("%d bytes allocated for an input of %d", used, len(b))
		}
		if err == nil {
			again, err := DecodeBatch(AppendBatch(nil, msgs))
			if err != nil || len(again) != len(msgs) {
				t.Fatalf("%d messages, then %d, %v", len(msgs), len(again), err)
			}
			for i := range msgs {
				if !proto.Equal(msgs[i], again[i]) {
					t.Fatalf("message %v became %v", msgs[i], again[i])
				}
			}
		}
		if ents, n, err := DecodeEntries(b); err == nil && n > 0 {
			if again, _, err := DecodeEntries(AppendEntries(nil, ents)); err != nil || len(again) != len(ents) {
				t.Fatalf("%d entries, then %d, %v", len(ents), len(again), err)
			}
		}
		if e, _, err := DecodeEntry(b); err == nil {
			if again, _, err := DecodeEntry(AppendEntry(nil, e)); err != nil || !proto.Equal(e, again) {
				t.Fatalf("entry %v became %v, %v", e, again, err)
			}
		}
		if cs, _, err := DecodeConfState(b); err == nil {
			if again, _, err := DecodeConfState(AppendConfState(nil, cs)); err != nil || !proto.Equal(cs, again) {
				t.Fatalf("conf state %v became %v, %v", cs, again, err)
			}
		}
	})
}

func BenchmarkAppendEntry(b *testing.B) {
	e := &raftpb.Entry{Term: new(uint64(3)), Index: new(uint64(900000)), Data: make([]byte, 300)}
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendEntry(buf[:0], e)
	}
}

func BenchmarkDecodeEntries(b *testing.B) {
	var ents []*raftpb.Entry
	for i := range uint64(100) {
		ents = append(ents, &raftpb.Entry{Term: new(uint64(3)), Index: new(i), Data: make([]byte, 300)})
	}
	enc := AppendEntries(nil, ents)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := DecodeEntries(enc); err != nil {
			b.Fatal(err)
		}
	}
}
