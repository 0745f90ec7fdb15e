package peer

import (
	"encoding/binary"
	"sync"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/grpc/mem"

	"github.com/coordd/coordd/pkg/raftcodec"
)

// entrySet is the entries of an append message, encoded once for all members
// that are sent the same ones.
type entrySet struct {
	ents  []*raftpb.Entry
	bytes int // of data, an estimate of the encoding's length

	once sync.Once // guards data
	data []byte
}

func newEntrySet(ents []*raftpb.Entry) *entrySet {
	s := &entrySet{ents: ents}
	for _, e := range ents {
		s.bytes += len(e.GetData()) + 16
	}
	return s
}

// encoded may be called by several senders at a time.
func (s *entrySet) encoded() []byte {
	s.once.Do(func() {
		s.data = raftcodec.AppendEntries(make([]byte, 0, s.bytes+binary.MaxVarintLen32), s.ents)
		s.ents = nil
	})
	return s.data
}

// queued is a message on its way. ents is nil if it has no entries.
type queued struct {
	msg  *raftpb.Message
	ents *entrySet
}

func (q queued) size() int {
	n := 64 + len(q.msg.GetContext())
	if q.ents != nil {
		n += q.ents.bytes
	}
	return n
}

// queue holds what waits for one member, in two lanes.
type queue struct {
	limit int           // bytes
	wake  chan struct{} // holds one token while something may wait

	mu     sync.Mutex // guards all below
	open   bool       // false while the member cannot be reached: everything is dropped
	bytes  int
	urgent []queued // heartbeats, votes, answers: small
	bulk   []queued // append messages and proposals
}

func newQueue(limit int) *queue { return &queue{limit: limit, wake: make(chan struct{}, 1)} }

// urgent tells whether a message may overtake append messages: raft's state does not depend on
// their order, and it is small.
func urgent(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgAppResp,
		raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp,
		raftpb.MsgReadIndex, raftpb.MsgReadIndexResp:
		return true
	}
	return false
}

// put queues q, or reports false when the member is out of reach or the queue
// is full. An empty queue takes a message of any size.
func (q *queue) put(m queued) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := m.size()
	if !q.open || (q.bytes > 0 && q.bytes+size > q.limit) {
		return false
	}
	q.bytes += size
	if urgent(m.msg) {
		q.urgent = append(q.urgent, m)
	} else {
		q.bulk = append(q.bulk, m)
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return true
}

// setOpen opens or closes the queue. Closing drops what waits and returns how
// many messages that were.
func (q *queue) setOpen(open bool) (dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open = open
	if open {
		return 0
	}
	dropped = len(q.urgent) + len(q.bulk)
	q.urgent, q.bulk, q.bytes = nil, nil, 0
	return dropped
}

// take appends to dst what waits, the urgent first, until max bytes are reached.
func (q *queue) take(dst []queued, max int) []queued {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := 0
	for _, lane := range []*[]queued{&q.urgent, &q.bulk} {
		n := 0
		for _, m := range *lane {
			s := m.size()
			if len(dst) > 0 && size+s > max {
				break
			}
			size += s
			q.bytes -= s
			dst = append(dst, m)
			n++
		}
		rest := *lane
		copy(rest, rest[n:])
		clear(rest[len(rest)-n:])
		*lane = rest[:len(rest)-n]
	}
	return dst
}

// frame is a peerpb.Frame whose data is spread over several buffers.
type frame struct {
	buffers mem.BufferSlice
	size    int
}

// EncodedBuffers gives the encoding as codec.Encoded asks for.
func (f *frame) EncodedBuffers() mem.BufferSlice { return append(mem.BufferSlice(nil), f.buffers...) }

// newFrame encodes messages as a Frame: field 1, then the batch of pkg/raftcodec,
// in which shared entries are buffers of their own.
func newFrame(msgs []queued) *frame {
	f := &frame{}
	own := make([]byte, 0, 64+64*len(msgs))
	// An empty batch is version and count; the count is replaced.
	own = raftcodec.AppendBatch(own, nil)
	own = binary.AppendUvarint(own[:len(own)-1], uint64(len(msgs)))
	from := 0
	for _, m := range msgs {
		if m.ents == nil {
			own = raftcodec.AppendMessage(own, m.msg)
			continue
		}
		own = appendWithoutEntries(own, m.msg)
		f.add(own[from:])
		f.add(m.ents.encoded())
		from = len(own)
	}
	f.add(own[from:])
	head := binary.AppendUvarint([]byte{1<<3 | 2}, uint64(f.size))
	f.size += len(head)
	f.buffers = append(mem.BufferSlice{mem.SliceBuffer(head)}, f.buffers...)
	return f
}

func (f *frame) add(data []byte) {
	if len(data) > 0 {
		f.buffers = append(f.buffers, mem.SliceBuffer(data))
		f.size += len(data)
	}
}

// appendWithoutEntries encodes m up to its entries: they are the last field of
// a message without responses, so leaving out the count of an empty list leaves the place for them.
func appendWithoutEntries(dst []byte, m *raftpb.Message) []byte {
	dst = raftcodec.AppendMessage(dst, &raftpb.Message{
		Type: m.Type, To: m.To, From: m.From, Term: m.Term, LogTerm: m.LogTerm, Index: m.Index,
		Commit: m.Commit, Vote: m.Vote, RejectHint: m.RejectHint, Reject: m.Reject, Context: m.Context,
		Entries: []*raftpb.Entry{},
	})
	return dst[:len(dst)-1]
}
