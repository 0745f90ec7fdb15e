package watch

import (
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coordd/coordd/mvcc"
)

// Field numbers of the messages written here: kvpb.KeyValue, kvpb.Event and rpcpb.WatchResponse.
const (
	fieldKVKey         = 1
	fieldKVModRevision = 3

	fieldEventType   = 1
	fieldEventKV     = 2
	fieldEventPrevKV = 3

	fieldResponseEvents = 11
)

// typeDelete is the value of kvpb.Event's type for a delete; a put is 0 and not written.
const typeDelete = 1

// event is one change, encoded. It is made once and shared by all that deliver it. All fields but prev never change.
type event struct {
	rev       int64
	key       []byte // inside wire, or a copy
	wire      []byte // as in a WatchResponse: tag and length of field 11, then the kvpb.Event
	body      int    // where the kvpb.Event begins in wire
	tombstone bool
	created   bool // a put that made the key: there is no pair before it

	// prev is wire with the previous pair added, or wire itself if there is none to add; nil while nobody
	// has looked. Several goroutines may look at once and store the same.
	prev atomic.Pointer[[]byte]
}

// size is what the event costs in a queue or in the ring, in bytes.
func (e *event) size() int { return len(e.wire) + 64 }

// withPrev returns the event's wire form with the previous pair, if that was looked up, and without it otherwise.
func (e *event) withPrev() []byte {
	if p := e.prev.Load(); p != nil {
		return *p
	}
	return e.wire
}

// lookUpPrev finds the pair that the event replaced, as it was one revision earlier, once.
func (e *event) lookUpPrev(store *mvcc.Store) {
	if e.prev.Load() != nil {
		return
	}
	wire := e.wire
	if !e.created {
		if row, ok := store.Prev(e.key, e.rev); ok {
			wire = e.encodeWithPrev(row)
		}
	}
	e.prev.Store(&wire)
}

// encodeWithPrev returns e.wire with row, a marshalled kvpb.KeyValue, as prev_kv.
func (e *event) encodeWithPrev(row []byte) []byte {
	body := e.wire[e.body:]
	size := len(body) + sizeField(fieldEventPrevKV, len(row))
	b := make([]byte, 0, sizeField(fieldResponseEvents, size))
	b = appendHead(b, fieldResponseEvents, size)
	b = append(b, body...)
	b = appendHead(b, fieldEventPrevKV, len(row))
	return append(b, row...)
}

// withoutPrev returns the event as it is delivered when the previous pair has been compacted away since.
func (e *event) withoutPrev() *event {
	if p := e.prev.Load(); p == nil || len(*p) == len(e.wire) {
		return e
	}
	return &event{rev: e.rev, key: e.key, wire: e.wire, body: e.body, tombstone: e.tombstone, created: e.created}
}

// encodeBatch encodes events into one buffer. It keeps nothing of what it is given.
func encodeBatch(events []mvcc.Event) []*event {
	if len(events) == 0 {
		return nil
	}
	total := 0
	for i := range events {
		total += wireSize(&events[i])
	}
	buf := make([]byte, 0, total)
	all := make([]event, len(events))
	out := make([]*event, len(events))
	for i := range events {
		buf = all[i].encode(&events[i], buf)
		out[i] = &all[i]
	}
	return out
}

// encodeOne encodes one event.
func encodeOne(src *mvcc.Event) *event {
	e := new(event)
	e.encode(src, make([]byte, 0, wireSize(src)))
	return e
}

// encode fills e from src and appends its wire form to buf, whose capacity must suffice: e refers to it.
func (e *event) encode(src *mvcc.Event, buf []byte) []byte {
	begin := len(buf)
	kv, size := bodySize(src)
	buf = appendHead(buf, fieldResponseEvents, size)
	body := len(buf)
	if src.Tombstone {
		buf = protowire.AppendTag(buf, fieldEventType, protowire.VarintType)
		buf = protowire.AppendVarint(buf, typeDelete)
	}
	buf = appendHead(buf, fieldEventKV, kv)
	pair := len(buf)
	if src.Tombstone {
		buf = appendHead(buf, fieldKVKey, len(src.Key))
		buf = append(buf, src.Key...)
		buf = protowire.AppendTag(buf, fieldKVModRevision, protowire.VarintType)
		buf = protowire.AppendVarint(buf, uint64(src.Rev.Main))
	} else {
		buf = append(buf, src.Row...)
	}
	e.rev = src.Rev.Main
	e.wire = buf[begin:len(buf):len(buf)]
	e.body = body - begin
	e.tombstone = src.Tombstone
	e.created = !src.Tombstone && src.Version == 1
	e.key = keyOf(buf[pair:], len(src.Key))
	if e.key == nil {
		e.key = append([]byte{}, src.Key...)
	}
	return buf
}

// keyOf returns the key inside a marshalled kvpb.KeyValue that begins with a key of n bytes, else nil. All rows
// written by coordd do; the message format does not demand it of others.
func keyOf(pair []byte, n int) []byte {
	num, typ, head := protowire.ConsumeTag(pair)
	if head < 0 || num != fieldKVKey || typ != protowire.BytesType {
		return nil
	}
	key, used := protowire.ConsumeBytes(pair[head:])
	if used < 0 || len(key) != n {
		return nil
	}
	return key[:n:n]
}

// bodySize returns the length of the event's kv, and of the kvpb.Event around it.
func bodySize(src *mvcc.Event) (kv, event int) {
	kv = len(src.Row)
	if src.Tombstone {
		kv = sizeField(fieldKVKey, len(src.Key)) +
			protowire.SizeTag(fieldKVModRevision) + protowire.SizeVarint(uint64(src.Rev.Main))
		event = protowire.SizeTag(fieldEventType) + protowire.SizeVarint(typeDelete)
	}
	return kv, event + sizeField(fieldEventKV, kv)
}

func wireSize(src *mvcc.Event) int {
	_, size := bodySize(src)
	return sizeField(fieldResponseEvents, size)
}

// sizeField is the length of a length-delimited field with n bytes of content.
func sizeField(num protowire.Number, n int) int {
	return protowire.SizeTag(num) + protowire.SizeBytes(n)
}

// appendHead appends tag and length of a length-delimited field; n bytes of content are to follow.
func appendHead(b []byte, num protowire.Number, n int) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(n))
}
