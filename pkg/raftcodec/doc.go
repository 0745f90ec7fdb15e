// Package raftcodec turns raft entries and messages into bytes and back, by
// hand instead of through protobuf reflection: the log writes every entry and
// the peer streams send every entry, so this is among the hottest code of a
// member.
//
// # Format
//
// All numbers are unsigned varints as of encoding/binary. A byte string is its
// length followed by its bytes. A field that is a nil pointer (or a nil slice)
// is absent and comes back as nil, so a round trip gives an equal message.
//
//	entry     mask(1 byte) [term] [index] [type] [data]
//	message   mask [type] [to] [from] [term] [logTerm] [index] [commit] [vote]
//	          [rejectHint] [reject(1 byte)] [context] [snapshot] [entries] [responses]
//	entries   count, then the entries
//	responses count, then the messages
//	snapshot  mask(1 byte) [data] [metadata]
//	metadata  mask(1 byte) [conf state] [index] [term]
//	confstate mask(1 byte) [voters] [learners] [outgoing] [next] [auto leave(1 byte)]
//	batch     version(1 byte) count, then the messages
//
// Masks have one bit for each optional field in the order drawn above, lowest
// first. Bits that are not defined must be zero: a decoder refuses them, so a
// later version can use them without being misread. [Version] belongs to the
// frame around the bytes: a batch carries it, a log segment carries its own.
//
// # Decoding
//
// Decoders accept any bytes: they return an error that wraps [ErrMalformed]
// and never panic. They believe no count or length before the bytes are there,
// so memory stays within a constant factor of the input. Byte strings of the
// result alias the input, which must therefore not be changed while the result
// lives. Entries of one message or one call to [DecodeEntries], and their
// numbers, are allocated together, a few hundred at a time: as long as one
// of them is reachable its neighbours stay in memory.
//
// There is no state; everything may be called from any goroutine.
package raftcodec
