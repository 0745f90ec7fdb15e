package rpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coordd/coordd/api/codec"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/apply/check"
)

// firstChunk is the number of keys in the first message of a RangeStream.
const firstChunk = 10

// RangeStream reads an interval in portions, all as of one revision: the one asked for, or the
// current one at the first portion. All messages have rows; the last one also has the header, more and count. It
// goes to the stream's SendMsg as codec.Encoded. Whoever appends the rows and takes the other fields from the last message has what
// Range would have answered.
//
// The answer is in the order of the keys; orders and filters are refused with code Unimplemented.
func (s *KVService) RangeStream(r *rpcpb.RangeRequest, stream grpc.ServerStreamingServer[rpcpb.RangeStreamResponse]) error {
	if err := checkStream(r); err != nil {
		return err
	}
	b := s.buffer(stream.Context())
	defer s.release(b)
	b.keep = true
	p := &portions{
		service: s, rows: b, chunk: firstChunk, left: max(r.GetLimit(), 0), limited: r.GetLimit() > 0,
		next: &rpcpb.RangeRequest{
			Key: r.GetKey(), RangeEnd: r.GetRangeEnd(), Revision: max(r.GetRevision(), 0),
			Serializable: r.GetSerializable(), KeysOnly: r.GetKeysOnly(), CountOnly: r.GetCountOnly(),
		},
	}
	for last := false; !last; {
		var message codec.Encoded
		var err error
		if message, last, err = p.read(stream.Context()); err != nil {
			return err
		}
		if err := stream.SendMsg(message); err != nil {
			return err
		}
		if stream.Context().Err() != nil {
			return context.Cause(stream.Context())
		}
	}
	return nil
}

// checkStream checks a request for a RangeStream.
func checkStream(r *rpcpb.RangeRequest) error {
	if err := check.Range(r); err != nil {
		return err
	}
	inOrder := r.GetSortOrder() == rpcpb.RangeRequest_NONE ||
		r.GetSortOrder() == rpcpb.RangeRequest_ASCEND && r.GetSortTarget() == rpcpb.RangeRequest_KEY
	switch {
	case !inOrder:
		return status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")
	case r.GetMinModRevision() != 0 || r.GetMaxModRevision() != 0 || r.GetMinCreateRevision() != 0 || r.GetMaxCreateRevision() != 0:
		return status.Error(codes.Unimplemented, "RangeStream does not support revision filters")
	}
	return nil
}

// portions is where a RangeStream is in its interval.
type portions struct {
	service *KVService
	rows    *rowBuffer
	next    *rpcpb.RangeRequest // reads the rest of the interval; its limit is set for each portion
	chunk   int64               // keys in the next message
	limited bool
	left    int64 // keys that the limit still allows
	started bool
	header  int64 // revision of the header, from the first portion
	count   int64 // keys in the whole interval, likewise
	sent    int64
}

// read makes the next message and tells whether it is the last.
func (p *portions) read(ctx context.Context) (message codec.Encoded, last bool, err error) {
	p.next.Limit = p.chunk
	if p.limited {
		p.next.Limit = min(p.chunk, p.left)
	}
	p.rows.rows = 0
	res, err := p.service.keys.Range(ctx, p.next, p.rows.add)
	if err != nil {
		return nil, false, err
	}
	if !p.started {
		p.started, p.header, p.count = true, res.Rev, res.Count
		if p.next.Revision == 0 {
			p.next.Revision = res.Rev
		}
		p.next.Serializable = true // the point of the read is settled
	}
	n := int64(p.rows.rows)
	p.sent += n
	p.left -= n
	last = p.next.CountOnly || n == 0 || p.sent >= p.count || p.limited && p.left <= 0
	p.next.Key = append(append(make([]byte, 0, len(p.rows.lastKey)+1), p.rows.lastKey...), 0)
	message, size := p.encode(last)
	p.resize(size)
	return message, last, nil
}

// fieldRangeResponse is the number of the field range_response of rpcpb.RangeStreamResponse.
const fieldRangeResponse = 1

// encode makes a message of the rows at hand.
func (p *portions) encode(last bool) (message codec.Encoded, size int) {
	b := p.rows
	var inner [64]byte // what is before the rows within range_response
	header, tail := inner[:0], b.tail[:0]
	if last {
		header = appendHeader(header, fieldRangeHeader, p.service.id, p.header)
		more := p.limited && p.sent < p.count && !p.next.CountOnly
		tail = appendRangeTail(tail, more, p.count)
	}
	size = len(header) + b.size + len(tail)
	head := protowire.AppendTag(b.head[:0], fieldRangeResponse, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(size))
	head = append(head, header...)
	return b.message(head, tail), size
}

// resize adapts the number of keys per message to the size of the last one.
func (p *portions) resize(size int) {
	switch target := p.service.chunk; {
	case size < target/2:
		p.chunk *= 2
	case size > 2*target:
		p.chunk = max(1, p.chunk/2)
	}
}
