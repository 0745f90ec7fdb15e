package watch

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coordd/coordd/pkg/interval"
)

// state of a watcher; see the package comment.
type state uint8

const (
	live state = iota
	lagging
	dead
	gone
)

// watcher is one accepted create request.
type watcher struct {
	stream   *Stream
	id       int64
	idField  []byte         // the id as field of a WatchResponse; empty for 0
	keys     interval.Range // what it watches
	single   bool           // exactly keys.Begin
	prevKV   bool
	noPut    bool
	noDelete bool
	fragment bool
	progress bool

	// Guarded by Hub.mu.
	state state
	// next: no event of an older revision is to be delivered. For a live watcher it stays where it became live; for
	// a lagging one it is the first revision not yet delivered, and only the catch-up goroutine changes it.
	next   int64
	place  int    // in its group of the hub's index
	recent bool   // had events since the last progress tick
	batch  uint64 // the Publish call in which it last got something …
	slot   int    // … and where that is in stream.staged …
	run    int    // … which begins at this element of the batch and has no gap; -1: it has gaps, the slice is its own

	// Of the catch-up goroutine.
	caught []*event // in this pass
	served uint64   // the last pass that had it as member

	// Of the goroutine in Next.
	turn    uint64 // the run of events in which waiting and slotOut hold
	waiting int    // responses in that run
	slotOut int    // the response that takes more events; -1: none yet
	sizeOut int    // its size
}

// newWatcher makes the watcher that o asks for; o is valid.
func newWatcher(s *Stream, id int64, o CreateOptions) *watcher {
	w := &watcher{
		stream: s, id: id,
		prevKV: o.PrevKV, noPut: o.NoPut, noDelete: o.NoDelete, fragment: o.Fragment, progress: o.Progress,
	}
	w.keys, w.single = o.keys()
	if id != 0 {
		w.idField = protowire.AppendTag(nil, fieldResponseID, protowire.VarintType)
		w.idField = protowire.AppendVarint(w.idField, uint64(id))
	}
	return w
}

// wants reports whether the watcher is to get e, whose key is one of its keys.
func (w *watcher) wants(e *event) bool {
	if e.rev < w.next {
		return false
	}
	if e.tombstone {
		return !w.noDelete
	}
	return !w.noPut
}

// keys translates key and range end of the API: no key is the key of one zero byte, no end is one single key, and an
// end of one zero byte is no upper bound.
func (o *CreateOptions) keys() (r interval.Range, single bool) {
	key := o.Key
	if len(key) == 0 {
		key = []byte{0}
	}
	r.Begin = bytes.Clone(key)
	switch {
	case len(o.End) == 0:
		return r, true
	case len(o.End) == 1 && o.End[0] == 0:
		return r, false
	}
	r.End = bytes.Clone(o.End)
	return r, false
}
