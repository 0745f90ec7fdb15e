package mvcc

import (
	"github.com/coordd/coordd/mvcc/backend"
	"github.com/coordd/coordd/mvcc/index"
	"github.com/coordd/coordd/pkg/verify"
)

// Txn is a write transaction. It sees its own changes; readers see them after [Store.Publish]. It cannot be
// undone. It belongs to the writer, and End must be called.
type Txn struct {
	s      *Store
	open   bool
	begin  int64 // the revision it began at
	sub    int64 // of the next change
	room   int   // for events that s.events had left
	events []Event
	view   backend.View
	viewed bool // view is to be released
}

// eventRoom is for how many events memory is taken at a time.
const eventRoom = 32

// Begin starts a transaction. There can be one at a time, so the one before must have ended.
func (s *Store) Begin() *Txn {
	t := &s.txn
	verify.Assert(!t.open, "transaction begun at revision %d has not ended", t.begin)
	if len(s.events) == cap(s.events) {
		s.events = make([]Event, 0, eventRoom)
	}
	*t = Txn{s: s, open: true, begin: s.rev, room: cap(s.events) - len(s.events), events: s.events[len(s.events):]}
	return t
}

// Changed says whether the transaction has changed anything.
func (t *Txn) Changed() bool { return t.sub > 0 }

// Rev is the revision the transaction began at or, once it has changed anything, the next one, which is its own.
func (t *Txn) Rev() int64 {
	if t.Changed() {
		return t.begin + 1
	}
	return t.begin
}

// nextRev takes the revision of the next change.
func (t *Txn) nextRev() Revision {
	rev := Revision{Main: t.begin + 1, Sub: t.sub}
	t.sub++
	return rev
}

// Put sets key to value, attached to lease, 0 being none. Neither slice is kept. key is not empty.
func (t *Txn) Put(key, value []byte, lease int64) {
	rev := t.nextRev()
	before, after := t.s.tree.Put(key, rev, lease)
	h := head{create: after.Create(), mod: rev.Main, version: after.Version(), lease: lease}
	row, keyIn := newRow(after.Key(), &h, value)
	t.s.b.AppendRow(rev, false, row)
	e := Event{Rev: rev, Key: keyIn, Row: row, Lease: lease, Create: h.create, Version: h.version}
	e.setPrev(before)
	t.events = append(t.events, e)
}

func (e *Event) setPrev(before *index.Entry) {
	if before != nil && before.Live() {
		e.PrevRev, e.PrevLease = before.Rev(), before.Lease()
	}
}

// DeleteRange deletes the keys of an interval, in order, and returns how many there were. end is as for
// [Store.Range].
func (t *Txn) DeleteRange(key, end []byte) (n int) {
	now := t.s.tree.Current()
	if len(end) == 0 {
		if e := now.Get(key); e != nil && e.Live() {
			t.delete(e)
			n = 1
		}
		return n
	}
	if len(end) == 1 && end[0] == 0 {
		end = nil
	}
	var doomed []*index.Entry // gathered first, since deleting changes what is walked over
	it := now.Seek(key)
	for e, _ := it.Next(); e != nil && (end == nil || e.Key() < string(end)); e, _ = it.Next() {
		doomed = append(doomed, e)
	}
	for _, e := range doomed {
		t.delete(e)
	}
	return len(doomed)
}

// delete deletes the live key of before.
func (t *Txn) delete(before *index.Entry) {
	rev := t.nextRev()
	row, keyIn := newTombstone(before.Key())
	_, ok := t.s.tree.Delete(keyIn, rev)
	verify.Assert(ok, "key %q, to be deleted, is gone", before.Key())
	t.s.b.AppendRow(rev, true, row)
	e := Event{Rev: rev, Tombstone: true, Key: keyIn, Row: row}
	e.setPrev(before)
	t.events = append(t.events, e)
}

// reader reads what the transaction sees.
func (t *Txn) reader() reader {
	if !t.viewed {
		t.view, t.viewed = t.s.b.WriterView(), true
	}
	return reader{index: t.s.tree.Current(), rev: t.Rev(), compacted: t.s.compacted, view: &t.view}
}

// Get gives the row of key as the transaction sees it; ok is false if the key does not exist. The row is valid
// until End. A row that cannot be read panics with [Damage].
func (t *Txn) Get(key []byte) (row []byte, ok bool) {
	r := t.reader()
	_ = r.aim(0) // cannot fail for the current revision
	row, ok, err := r.get(key)
	if err != nil {
		panic(Damage{err})
	}
	return row, ok
}

// Range is [Store.Range] as the transaction sees the store: also its own changes, and those of transactions not
// published. Rev in the result is [Txn.Rev].
func (t *Txn) Range(key, end []byte, o RangeOptions, visit func(row []byte) error) (RangeResult, error) {
	r := t.reader()
	if err := r.aim(o.Rev); err != nil {
		return RangeResult{}, err
	}
	return r.read(key, end, o, visit)
}

// End ends the transaction: its changes are part of the store, and visible with the next [Store.Publish]. It
// returns them in order, nil if there are none; the events and what they hold do not change any more. The Txn must
// not be used any more.
func (t *Txn) End() []Event {
	verify.Assert(t.open, "transaction ended twice")
	t.open = false
	if t.viewed {
		t.view.Release()
		t.viewed = false
	}
	s := t.s
	if !t.Changed() {
		return nil
	}
	s.rev = t.begin + 1
	s.changed = true
	n := len(t.events)
	if n <= t.room {
		s.events = s.events[:len(s.events)+n]
	}
	return t.events[:n:n]
}
