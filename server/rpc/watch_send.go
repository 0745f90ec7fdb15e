package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coordd/coordd/api/codec"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/watch"
)

// fieldWatchHeader is the number of field header in rpcpb.WatchResponse.
const fieldWatchHeader = 1

// watchShareFrom is the length in bytes from which an event is handed to gRPC where it lies, instead of being copied
// into the message. Below it, one more buffer costs gRPC more than the copy.
const watchShareFrom = 1 << 8

// watchSender sends the responses of one stream. It belongs to the stream's handler.
type watchSender struct {
	stream services.Watch_WatchServer
	header func(revision int64) *rpcpb.ResponseHeader
	onSend func(events int, progress bool, took time.Duration)

	parts   [][]byte // scratch
	message watchMessage
	head    []byte // field header, encoded for revision
	rev     int64
}

// watchMessage is a WatchResponse as gRPC's buffers.
type watchMessage struct{ buffers mem.BufferSlice }

var _ codec.Encoded = (*watchMessage)(nil)

// EncodedBuffers gives the buffers.
func (m *watchMessage) EncodedBuffers() mem.BufferSlice { return m.buffers }

// run sends until ctx ends, the watch stream ends or sending fails. It reports which error, and whether of sending.
func (s *watchSender) run(ctx context.Context, ws *watch.Stream) (err error, sending bool) {
	for {
		responses, err := ws.Next(ctx)
		if err != nil {
			return err, false
		}
		s.head = nil // the term may have changed
		for i := range responses {
			if err := s.send(&responses[i]); err != nil {
				return err, true
			}
			if ctx.Err() != nil {
				return context.Cause(ctx), false
			}
		}
	}
}

// send sends one response.
func (s *watchSender) send(r *watch.Response) error {
	if s.head == nil || s.rev != r.Revision {
		if err := s.encodeHeader(r.Revision); err != nil {
			return err
		}
	}
	s.parts = r.AppendWire(append(s.parts[:0], s.head))
	s.message.buffers = gatherParts(s.parts)
	// What was sent must not be held while the stream is idle.
	defer func() {
		clear(s.parts)
		s.message.buffers = nil
	}()
	if s.onSend == nil {
		return s.stream.SendMsg(&s.message)
	}
	begin := time.Now()
	err := s.stream.SendMsg(&s.message)
	s.onSend(r.Len(), r.Progress(), time.Since(begin))
	return err
}

// encodeHeader encodes the header once for all responses in a row that have the same revision.
func (s *watchSender) encodeHeader(rev int64) error {
	h := s.header(rev)
	size := h.SizeVT()
	head := protowire.AppendTag(make([]byte, 0, size+8), fieldWatchHeader, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(size))
	begin := len(head)
	head = head[:begin+size]
	if _, err := h.MarshalToSizedBufferVT(head[begin:]); err != nil {
		return err
	}
	s.head, s.rev = head, rev
	return nil
}

// gatherParts makes gRPC buffers of the parts of a message: short ones are copied together, long ones shared.
func gatherParts(parts [][]byte) mem.BufferSlice {
	size, shared := 0, 0
	for _, p := range parts {
		if len(p) < watchShareFrom {
			size += len(p)
		} else {
			shared++
		}
	}
	run := make([]byte, 0, size)
	out := make(mem.BufferSlice, 0, 2*shared+1)
	start := 0
	for _, p := range parts {
		if len(p) < watchShareFrom {
			run = append(run, p...)
			continue
		}
		if start < len(run) {
			out = append(out, mem.SliceBuffer(run[start:len(run):len(run)]))
			start = len(run)
		}
		out = append(out, mem.SliceBuffer(p))
	}
	if start < len(run) {
		out = append(out, mem.SliceBuffer(run[start:]))
	}
	return out
}
