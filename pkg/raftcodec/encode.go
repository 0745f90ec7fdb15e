package raftcodec

import (
	"encoding/binary"

	"go.etcd.io/raft/v3/raftpb"
)

// Version is the format described in the package comment.
const Version = 1

// Bits of an entry's mask.
const (
	entryTerm = 1 << iota
	entryIndex
	entryType
	entryData

	entryBits = 1<<iota - 1
)

// Bits of a message's mask.
const (
	msgType = 1 << iota
	msgTo
	msgFrom
	msgTerm
	msgLogTerm
	msgIndex
	msgCommit
	msgVote
	msgRejectHint
	msgReject
	msgContext
	msgSnapshot
	msgEntries
	msgResponses

	msgBits = 1<<iota - 1
)

// Bits of a snapshot's mask, of its metadata's and of a configuration's.
const (
	snapData = 1 << iota
	snapMetadata

	snapBits = 1<<iota - 1
)

const (
	metaConfState = 1 << iota
	metaIndex
	metaTerm

	metaBits = 1<<iota - 1
)

const (
	confVoters = 1 << iota
	confLearners
	confOutgoing
	confNext
	confAutoLeave

	confBits = 1<<iota - 1
)

// AppendEntry appends the encoding of e, which must not be nil, to dst and
// returns the extended slice. It allocates only to extend dst.
func AppendEntry(dst []byte, e *raftpb.Entry) []byte {
	at := len(dst)
	dst = append(dst, 0)
	var mask byte
	if e.Term != nil {
		mask |= entryTerm
		dst = binary.AppendUvarint(dst, *e.Term)
	}
	if e.Index != nil {
		mask |= entryIndex
		dst = binary.AppendUvarint(dst, *e.Index)
	}
	if e.Type != nil {
		mask |= entryType
		dst = binary.AppendUvarint(dst, uint64(uint32(*e.Type)))
	}
	if e.Data != nil {
		mask |= entryData
		dst = appendBytes(dst, e.Data)
	}
	dst[at] = mask
	return dst
}

// AppendEntries appends a count and then each entry; see [DecodeEntries].
func AppendEntries(dst []byte, ents []*raftpb.Entry) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ents)))
	for _, e := range ents {
		dst = AppendEntry(dst, e)
	}
	return dst
}

// AppendMessage appends the encoding of m, which must not be nil, to dst and
// returns the extended slice. Entries and responses must not hold nil.
func AppendMessage(dst []byte, m *raftpb.Message) []byte {
	dst = binary.AppendUvarint(dst, messageMask(m))
	if m.Type != nil {
		dst = binary.AppendUvarint(dst, uint64(uint32(*m.Type)))
	}
	for _, p := range [...]*uint64{m.To, m.From, m.Term, m.LogTerm, m.Index, m.Commit, m.Vote, m.RejectHint} {
		if p != nil {
			dst = binary.AppendUvarint(dst, *p)
		}
	}
	if m.Reject != nil {
		dst = appendBool(dst, *m.Reject)
	}
	if m.Context != nil {
		dst = appendBytes(dst, m.Context)
	}
	if m.Snapshot != nil {
		dst = appendSnapshot(dst, m.Snapshot)
	}
	if m.Entries != nil {
		dst = AppendEntries(dst, m.Entries)
	}
	if m.Responses != nil {
		dst = appendMessages(dst, m.Responses)
	}
	return dst
}

func messageMask(m *raftpb.Message) uint64 {
	return bit(m.Type != nil, msgType) |
		bit(m.To != nil, msgTo) |
		bit(m.From != nil, msgFrom) |
		bit(m.Term != nil, msgTerm) |
		bit(m.LogTerm != nil, msgLogTerm) |
		bit(m.Index != nil, msgIndex) |
		bit(m.Commit != nil, msgCommit) |
		bit(m.Vote != nil, msgVote) |
		bit(m.RejectHint != nil, msgRejectHint) |
		bit(m.Reject != nil, msgReject) |
		bit(m.Context != nil, msgContext) |
		bit(m.Snapshot != nil, msgSnapshot) |
		bit(m.Entries != nil, msgEntries) |
		bit(m.Responses != nil, msgResponses)
}

// AppendBatch appends a batch of messages to dst: what [DecodeBatch] reads.
func AppendBatch(dst []byte, msgs []*raftpb.Message) []byte {
	return appendMessages(append(dst, Version), msgs)
}

func appendMessages(dst []byte, msgs []*raftpb.Message) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(msgs)))
	for _, m := range msgs {
		dst = AppendMessage(dst, m)
	}
	return dst
}

func appendSnapshot(dst []byte, s *raftpb.Snapshot) []byte {
	dst = append(dst, byte(bit(s.Data != nil, snapData)|bit(s.Metadata != nil, snapMetadata)))
	if s.Data != nil {
		dst = appendBytes(dst, s.Data)
	}
	m := s.Metadata
	if m == nil {
		return dst
	}
	dst = append(dst, byte(bit(m.ConfState != nil, metaConfState)|bit(m.Index != nil, metaIndex)|bit(m.Term != nil, metaTerm)))
	if m.ConfState != nil {
		dst = AppendConfState(dst, m.ConfState)
	}
	if m.Index != nil {
		dst = binary.AppendUvarint(dst, *m.Index)
	}
	if m.Term != nil {
		dst = binary.AppendUvarint(dst, *m.Term)
	}
	return dst
}

// AppendConfState appends the encoding of cs, which must not be nil, to dst.
func AppendConfState(dst []byte, cs *raftpb.ConfState) []byte {
	lists := [...][]uint64{cs.Voters, cs.Learners, cs.VotersOutgoing, cs.LearnersNext}
	mask := bit(cs.AutoLeave != nil, confAutoLeave)
	for i, l := range lists {
		mask |= bit(l != nil, confVoters<<i)
	}
	dst = append(dst, byte(mask))
	for _, l := range lists {
		if l == nil {
			continue
		}
		dst = binary.AppendUvarint(dst, uint64(len(l)))
		for _, id := range l {
			dst = binary.AppendUvarint(dst, id)
		}
	}
	if cs.AutoLeave != nil {
		dst = appendBool(dst, *cs.AutoLeave)
	}
	return dst
}

func bit(set bool, b uint64) uint64 {
	if set {
		return b
	}
	return 0
}

func appendBool(dst []byte, b bool) []byte {
	return append(dst, byte(bit(b, 1)))
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}
