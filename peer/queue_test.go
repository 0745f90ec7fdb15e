package peer

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/coordd/coordd/api/codec"
	"github.com/coordd/coordd/api/peerpb"
	"github.com/coordd/coordd/pkg/raftcodec"
)

// genQueued draws a message of any kind that raft sends.
func genQueued(t *rapid.T) queued {
	types := []raftpb.MessageType{raftpb.MsgApp, raftpb.MsgProp, raftpb.MsgHeartbeat, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgReadIndex, raftpb.MsgTimeoutNow}
	m := message(rapid.SampledFrom(types).Draw(t, "type"), 1, 2, rapid.Uint64().Draw(t, "index"))
	if rapid.Bool().Draw(t, "context") {
		m.Context = rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "context")
		reject := rapid.Bool().Draw(t, "reject")
		m.Reject, m.RejectHint, m.LogTerm, m.Commit, m.Vote = &reject, m.Index, m.Index, m.Index, m.Index
	}
	for i := range rapid.Uint64Range(0, 4).Draw(t, "entries") {
		m.Entries = append(m.Entries, &raftpb.Entry{Index: &i, Term: m.Term, Data: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "data")})
	}
	q := queued{msg: m}
	if len(m.Entries) > 0 && !urgent(m) {
		q.ents = newEntrySet(m.Entries)
	}
	return q
}

// A frame put together from shared pieces is the very frame that encoding its
// messages in one go gives.
func TestFrame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batch := rapid.SliceOfN(rapid.Custom(genQueued), 0, 20).Draw(t, "batch")
		var msgs []*raftpb.Message
		for _, q := range batch {
			msgs = append(msgs, q.msg)
		}
		want := raftcodec.AppendBatch(nil, msgs)
		f := newFrame(batch)
		buffers, err := codec.New().Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		if n := buffers.Len(); n != f.size {
			t.Fatalf("%d bytes, said to be %d", n, f.size)
		}
		var got peerpb.Frame
		if err := codec.New().Unmarshal(buffers, &got); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.GetData(), want) {
			t.Fatalf("%x, want %x", got.GetData(), want)
		}
	})
}

// The queue against two lists: lanes, bounds, closing.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 3000
		q := newQueue(limit)
		q.setOpen(true)
		open := true
		var lanes [2][]queued
		size := func() (n int) {
			for _, l := range lanes {
				for _, m := range l {
					n += m.size()
				}
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				m := genQueued(t)
				want := open && (size() == 0 || size()+m.size() <= limit)
				if got := q.put(m); got != want {
					t.Fatalf("put gave %v, want %v", got, want)
				}
				if want {
					lane := 1
					if urgent(m.msg) {
						lane = 0
					}
					lanes[lane] = append(lanes[lane], m)
				}
			},
			"take": func(t *rapid.T) {
				limit := rapid.IntRange(1, 2000).Draw(t, "max")
				var want []queued
				total := 0
				for i := range lanes {
					for len(lanes[i]) > 0 && (len(want) == 0 || total+lanes[i][0].size() <= limit) {
						total += lanes[i][0].size()
						want = append(want, lanes[i][0])
						lanes[i] = lanes[i][1:]
					}
				}
				if got := q.take(nil, limit); !slices.Equal(got, want) {
					t.Fatalf("took %d messages, want %d", len(got), len(want))
				}
			},
			"open": func(t *rapid.T) {
				open = rapid.Bool().Draw(t, "open")
				want := 0
				if !open {
					want = len(lanes[0]) + len(lanes[1])
					lanes = [2][]queued{}
				}
				if got := q.setOpen(open); got != want {
					t.Fatalf("dropped %d, want %d", got, want)
				}
			},
			"": func(t *rapid.T) {
				q.mu.Lock()
				defer q.mu.Unlock()
				if q.bytes != size() {
					t.Fatalf("%d bytes, want %d", q.bytes, size())
				}
			},
		})
	})
}
