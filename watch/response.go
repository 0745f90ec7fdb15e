package watch

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coordd/coordd/api/kvpb"
)

// Field numbers of rpcpb.WatchResponse.
const (
	fieldResponseID       = 2
	fieldResponseCreated  = 3
	fieldResponseCanceled = 4
	fieldResponseCompact  = 5
	fieldResponseReason   = 6
	fieldResponseFragment = 7
)

// NoID is the watch id of a refused create, and of a progress notice that is for the whole stream.
const NoID = -1

// Response is one message of a stream: the answer to a create (Created; refused if Canceled too), the end of a watcher
// (Canceled), events, or, when it has none of these, a progress notice: everything up to Revision has been delivered.
type Response struct {
	WatchID  int64
	Revision int64 // for the header; see the package comment. 0 when a compaction ends the watcher.
	Created  bool
	Canceled bool
	// CompactRevision is the compacted revision when it ended the watcher, else 0.
	CompactRevision int64
	// Reason says why a create was refused.
	Reason string
	// Fragment says that the next response of this watcher goes on with the same batch of events.
	Fragment bool

	events    []*event
	prevKV    bool
	splitting bool // a large response is to be split
	idField   []byte
}

// Len returns the number of events.
func (r *Response) Len() int { return len(r.events) }

// Progress reports whether r is a progress notice.
func (r *Response) Progress() bool { return len(r.events) == 0 && !r.Created && !r.Canceled }

// Events decodes the events. The messages share no memory with the hub.
func (r *Response) Events() ([]*kvpb.Event, error) {
	out := make([]*kvpb.Event, len(r.events))
	for i, e := range r.events {
		_, _, tag := protowire.ConsumeTag(r.wire(e))
		body, n := protowire.ConsumeBytes(r.wire(e)[tag:])
		if n < 0 {
			return nil, fmt.Errorf("watch: event at revision %d is not encoded as it should be: %w", e.rev, protowire.ParseError(n))
		}
		out[i] = new(kvpb.Event)
		if err := out[i].UnmarshalVT(body); err != nil {
			return nil, fmt.Errorf("watch: stored pair of the event at revision %d cannot be decoded: %w", e.rev, err)
		}
	}
	return out, nil
}

// AppendWire appends the pieces of r's encoding as an rpcpb.WatchResponse, without the header (field 1), to parts. The
// pieces of events are shared by all who get them, so nobody may change them. A piece per event and at most one
// more is added.
func (r *Response) AppendWire(parts [][]byte) [][]byte {
	if id := r.ownFields(); len(id) > 0 {
		parts = append(parts, id)
	}
	for _, e := range r.events {
		parts = append(parts, r.wire(e))
	}
	return parts
}

// WireSize returns the number of bytes AppendWire adds.
func (r *Response) WireSize() int {
	n := len(r.ownFields())
	for _, e := range r.events {
		n += len(r.wire(e))
	}
	return n
}

func (r *Response) wire(e *event) []byte {
	if r.prevKV {
		return e.withPrev()
	}
	return e.wire
}

// ownFields encodes all fields but header and events. For plain events that is the id, which the watcher keeps encoded.
func (r *Response) ownFields() []byte {
	if len(r.events) > 0 && !r.Fragment {
		return r.idField
	}
	var b []byte
	varint := func(num protowire.Number, v uint64) {
		if v != 0 {
			b = protowire.AppendTag(b, num, protowire.VarintType)
			b = protowire.AppendVarint(b, v)
		}
	}
	varint(fieldResponseID, uint64(r.WatchID))
	varint(fieldResponseCreated, protowire.EncodeBool(r.Created))
	varint(fieldResponseCanceled, protowire.EncodeBool(r.Canceled))
	varint(fieldResponseCompact, uint64(r.CompactRevision))
	if r.Reason != "" {
		b = protowire.AppendTag(b, fieldResponseReason, protowire.BytesType)
		b = protowire.AppendString(b, r.Reason)
	}
	varint(fieldResponseFragment, protowire.EncodeBool(r.Fragment))
	return b
}

// entry is what waits in a stream's queue: events of a watcher, or an answer.
type entry struct {
	w      *watcher
	events []*event
	rev    int64
	answer *Response
}

const (
	// mergeFrom is the number of waiting responses from which a watcher's are joined into one. Below it there is
	// little to save, and clients see one response per write, as they would from etcd.
	mergeFrom = 4
	// mergeBytes is the size from which a joined response takes no more.
	mergeBytes = 1 << 20
	// headRoom is more than header and id add to the events of a response.
	headRoom = 64
)

// response makes the message for an entry of events.
func (w *watcher) response(events []*event, rev int64) Response {
	return Response{WatchID: w.id, Revision: rev, events: events, prevKV: w.prevKV, splitting: w.fragment, idField: w.idField}
}

// convert turns queued entries into responses, in order, and appends them to out. turn counts the runs of events seen
// by the stream before and is returned moved on.
func convert(out []Response, queue []entry, fragmentBytes int, turn uint64) ([]Response, uint64) {
	for i := 0; i < len(queue); {
		if queue[i].answer != nil {
			out = append(out, *queue[i].answer)
			i++
			continue
		}
		j := i
		for j < len(queue) && queue[j].answer == nil {
			j++
		}
		turn++
		begin := len(out)
		out = join(out, queue[i:j], turn)
		out = splitLarge(out, begin, fragmentBytes)
		i = j
	}
	return out, turn
}

// join makes responses of a run of events, and one of several when a watcher has many in the run.
func join(out []Response, run []entry, turn uint64) []Response {
	if len(run) >= mergeFrom {
		for i := range run {
			w := run[i].w
			if w.turn != turn {
				w.turn, w.waiting, w.slotOut = turn, 0, -1
			}
			w.waiting++
		}
	}
	for i := range run {
		e, w := &run[i], run[i].w
		if w.turn != turn || w.waiting < mergeFrom {
			out = append(out, w.response(e.events, e.rev))
			continue
		}
		size := 0
		for _, ev := range e.events {
			size += len(ev.wire)
		}
		if w.slotOut < 0 || w.sizeOut+size > mergeBytes {
			w.slotOut, w.sizeOut = len(out), 0
			out = append(out, w.response(append(make([]*event, 0, w.waiting), e.events...), e.rev))
		} else {
			r := &out[w.slotOut]
			r.events, r.Revision = append(r.events, e.events...), e.rev
		}
		w.sizeOut += size
	}
	return out
}

// splitLarge splits those of out[begin:] that are large and whose watchers want it.
func splitLarge(out []Response, begin, limit int) []Response {
	large := func(r *Response) bool {
		return r.splitting && len(r.events) > 1 && r.WireSize()+headRoom >= limit
	}
	for i := begin; i < len(out); i++ {
		if !large(&out[i]) {
			continue
		}
		rest := append([]Response(nil), out[i:]...)
		out = out[:i]
		for j := range rest {
			if large(&rest[j]) {
				out = split(out, &rest[j], limit)
			} else {
				out = append(out, rest[j])
			}
		}
		return out
	}
	return out
}

// split appends r in parts below limit, or of one event if that is as large.
func split(out []Response, r *Response, limit int) []Response {
	events := r.events
	for len(events) > 0 {
		n, size := 1, headRoom+len(r.wire(events[0]))
		for n < len(events) && size+len(r.wire(events[n])) < limit {
			size += len(r.wire(events[n]))
			n++
		}
		part := *r
		part.events = events[:n]
		events = events[n:]
		part.Fragment = len(events) > 0
		out = append(out, part)
	}
	return out
}
