package raftcodec

import (
	"go.etcd.io/raft/v3/raftpb"
)

const (
	// slabSize bounds how many entries or messages are allocated at once, and
	// with it the memory that a false count can cause.
	slabSize = 256
	// maxDepth bounds messages within messages; raft nests them once.
	maxDepth = 3
)

// entryCell is an entry with the numbers it points to.
type entryCell struct {
	entry       raftpb.Entry
	term, index uint64
	typ         raftpb.EntryType
}

// DecodeEntry decodes the entry at the start of src and returns it and the
// number of bytes it took. Its Data aliases src.
func DecodeEntry(src []byte) (*raftpb.Entry, int, error) {
	r := newReader(src)
	cell := new(entryCell)
	r.entry(cell)
	if r.err != nil {
		return nil, 0, r.err
	}
	return &cell.entry, r.used(), nil
}

// DecodeEntries decodes what [AppendEntries] wrote at the start of src and
// returns the entries and the number of bytes they took. Their Data alias src.
func DecodeEntries(src []byte) ([]*raftpb.Entry, int, error) {
	r := newReader(src)
	ents := r.entries()
	if r.err != nil {
		return nil, 0, r.err
	}
	return ents, r.used(), nil
}

func (r *reader) entry(c *entryCell) {
	mask := r.mask(entryBits)
	if mask&entryTerm != 0 {
		c.term = r.uvarint()
		c.entry.Term = &c.term
	}
	if mask&entryIndex != 0 {
		c.index = r.uvarint()
		c.entry.Index = &c.index
	}
	if mask&entryType != 0 {
		c.typ = raftpb.EntryType(r.enum())
		c.entry.Type = &c.typ
	}
	if mask&entryData != 0 {
		c.entry.Data = r.bytes()
	}
}

// entries decodes a counted list; the result is not nil unless r failed.
func (r *reader) entries() []*raftpb.Entry {
	n := r.count()
	ents := make([]*raftpb.Entry, 0, min(n, slabSize))
	var slab []entryCell
	for len(ents) < n && r.err == nil {
		if len(slab) == 0 {
			slab = make([]entryCell, min(n-len(ents), slabSize))
		}
		r.entry(&slab[0])
		ents = append(ents, &slab[0].entry)
		slab = slab[1:]
	}
	if r.err != nil {
		return nil
	}
	return ents
}

// messageCell is a message with the numbers it points to.
type messageCell struct {
	msg     raftpb.Message
	numbers [8]uint64
	typ     raftpb.MessageType
	reject  bool
}

// DecodeMessage decodes the message at the start of src and returns it and the
// number of bytes it took. Its byte strings alias src.
func DecodeMessage(src []byte) (*raftpb.Message, int, error) {
	r := newReader(src)
	cell := new(messageCell)
	r.message(cell, 0)
	if r.err != nil {
		return nil, 0, r.err
	}
	return &cell.msg, r.used(), nil
}

// DecodeBatch decodes a batch, which must be the whole of src. Byte strings of
// the messages alias src.
func DecodeBatch(src []byte) ([]*raftpb.Message, error) {
	r := newReader(src)
	if v := r.byte(); r.err == nil && v != Version {
		r.fail("unknown version")
	}
	msgs := r.messages(0)
	if r.err == nil && len(r.buf) > 0 {
		r.fail("bytes after the batch")
	}
	if r.err != nil {
		return nil, r.err
	}
	return msgs, nil
}

func (r *reader) message(c *messageCell, depth int) {
	if depth > maxDepth {
		r.fail("messages nested too deep")
		return
	}
	mask := r.uvarint()
	if mask&^msgBits != 0 {
		r.fail("unknown field")
		return
	}
	m := &c.msg
	if mask&msgType != 0 {
		c.typ = raftpb.MessageType(r.enum())
		m.Type = &c.typ
	}
	fields := [...]**uint64{&m.To, &m.From, &m.Term, &m.LogTerm, &m.Index, &m.Commit, &m.Vote, &m.RejectHint}
	for i, p := range fields {
		if mask&(msgTo<<i) != 0 {
			c.numbers[i] = r.uvarint()
			*p = &c.numbers[i]
		}
	}
	if mask&msgReject != 0 {
		c.reject = r.bool()
		m.Reject = &c.reject
	}
	if mask&msgContext != 0 {
		m.Context = r.bytes()
	}
	if mask&msgSnapshot != 0 {
		m.Snapshot = r.snapshot()
	}
	if mask&msgEntries != 0 {
		m.Entries = r.entries()
	}
	if mask&msgResponses != 0 {
		m.Responses = r.messages(depth + 1)
	}
}

// messages decodes a counted list; the result is not nil unless r failed.
func (r *reader) messages(depth int) []*raftpb.Message {
	n := r.count()
	msgs := make([]*raftpb.Message, 0, min(n, slabSize))
	var slab []messageCell
	for len(msgs) < n && r.err == nil {
		if len(slab) == 0 {
			slab = make([]messageCell, min(n-len(msgs), slabSize/8))
		}
		r.message(&slab[0], depth)
		msgs = append(msgs, &slab[0].msg)
		slab = slab[1:]
	}
	if r.err != nil {
		return nil
	}
	return msgs
}

func (r *reader) snapshot() *raftpb.Snapshot {
	s := new(raftpb.Snapshot)
	mask := r.mask(snapBits)
	if mask&snapData != 0 {
		s.Data = r.bytes()
	}
	if mask&snapMetadata == 0 {
		return s
	}
	m := new(raftpb.SnapshotMetadata)
	s.Metadata = m
	mask = r.mask(metaBits)
	if mask&metaConfState != 0 {
		m.ConfState = r.confState()
	}
	if mask&metaIndex != 0 {
		m.Index = new(r.uvarint())
	}
	if mask&metaTerm != 0 {
		m.Term = new(r.uvarint())
	}
	return s
}

// DecodeConfState decodes the configuration at the start of src and returns it
// and the number of bytes it took.
func DecodeConfState(src []byte) (*raftpb.ConfState, int, error) {
	r := newReader(src)
	cs := r.confState()
	if r.err != nil {
		return nil, 0, r.err
	}
	return cs, r.used(), nil
}

func (r *reader) confState() *raftpb.ConfState {
	cs := new(raftpb.ConfState)
	mask := r.mask(confBits)
	for i, list := range [...]*[]uint64{&cs.Voters, &cs.Learners, &cs.VotersOutgoing, &cs.LearnersNext} {
		if mask&(confVoters<<i) == 0 {
			continue
		}
		ids := make([]uint64, 0, r.count())
		for len(ids) < cap(ids) && r.err == nil {
			ids = append(ids, r.uvarint())
		}
		*list = ids
	}
	if mask&confAutoLeave != 0 {
		cs.AutoLeave = new(r.bool())
	}
	return cs
}
