package codec

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// shareFrom is the length in bytes from which [Repeated] shares an item instead of copying it: below
// it a buffer of its own costs more, in gRPC's bookkeeping and framing, than the copy.
const shareFrom = 1 << 10

// Raw is an Encoded message in one piece. The bytes must not change once it is sent.
type Raw []byte

// EncodedBuffers gives the bytes, without a copy.
func (r Raw) EncodedBuffers() mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(r)} }

// Head is a message of this API, as far as [Repeated] needs it; all of them implement it.
type Head interface {
	SizeVT() int
	MarshalToSizedBufferVT(data []byte) (int, error)
}

// Repeated encodes the message that consists of the fields of head and, in the repeated message field
// with the number field, of items, each of which is the encoding of one element. It is how a range
// is answered from stored rows, and a watch from events encoded once: the wire does not tell such a
// message from one encoded as a whole.
//
// Long items are shared, not copied, so they must not change any more; short ones are copied together
// into one buffer. The result is new and belongs to the caller; it needs no freeing, and may be
// returned from EncodedBuffers. head must not hold elements of that field itself if order matters:
// they come first.
func Repeated(head Head, field protowire.Number, items [][]byte) (mem.BufferSlice, error) {
	headLen := head.SizeVT()
	size, shared := headLen, 0
	for _, item := range items {
		size += protowire.SizeTag(field) + protowire.SizeVarint(uint64(len(item)))
		if len(item) < shareFrom {
			size += len(item)
		} else {
			shared++
		}
	}
	// run takes everything that is not shared; out gets pieces of it, between shared items.
	run := make([]byte, headLen, size)
	if n, err := head.MarshalToSizedBufferVT(run); err != nil || n != headLen {
		return nil, incomplete(n, headLen, err)
	}
	out := make(mem.BufferSlice, 0, 2*shared+1)
	start := 0
	for _, item := range items {
		run = protowire.AppendTag(run, field, protowire.BytesType)
		run = protowire.AppendVarint(run, uint64(len(item)))
		if len(item) < shareFrom {
			run = append(run, item...)
			continue
		}
		out = append(out, mem.SliceBuffer(run[start:]), mem.SliceBuffer(item))
		start = len(run)
	}
	if start < len(run) {
		out = append(out, mem.SliceBuffer(run[start:]))
	}
	return out, nil
}
