package mvcc

import (
	"fmt"
	"slices"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/mvcc/backend"
	"github.com/coordd/coordd/mvcc/index"
)

// reader reads at one state of the store.
type reader struct {
	index     index.Snapshot
	rev       int64 // current
	compacted int64
	view      *backend.View
	// past says that the index is newer than at, the revision to read at.
	past bool
	at   int64
}

// aim sets the revision to read at, ≤ 0 being the current one.
func (r *reader) aim(rev int64) error {
	switch {
	case rev <= 0:
		r.at = r.rev
	case rev > r.rev:
		return errs.ErrFutureRev
	case rev < r.compacted:
		return errs.ErrCompacted
	default:
		r.at, r.past = rev, rev < r.rev
	}
	return nil
}

// Range reads the keys of an interval, in order, and calls visit for the row of each, a marshalled kvpb.KeyValue,
// valid during the call only. end is as on the wire: empty means the one key, "\x00" all keys from key on, else
// the interval is [key, end). An error of visit ends the read and is returned as it is. Other errors:
// errs.ErrCompacted, errs.ErrFutureRev, errs.ErrStopped after Close of the backend, and a damaged file. Rows
// visited before an error must be discarded.
//
// Counting and limits cost O(log n + visited) at the current revision and at revisions that a page was read at
// lately; at others what has changed since comes in addition. Any goroutine; visit must not read from the store.
func (s *Store) Range(key, end []byte, o RangeOptions, visit func(row []byte) error) (RangeResult, error) {
	st, v, err := s.pin()
	if err != nil {
		return RangeResult{}, err
	}
	defer v.Release()
	r := reader{index: st.index, rev: st.rev, compacted: st.compacted, view: &v}
	if err := r.aim(o.Rev); err != nil {
		return RangeResult{}, err
	}
	if r.past && len(end) > 0 {
		if snapshot, ok := s.pages.get(r.at); ok {
			r.index, r.past = snapshot, false
		}
	}
	res, err := r.read(key, end, o, visit)
	if res.More && r.at == st.rev {
		s.pages.put(r.at, st.index)
	}
	return res, err
}

// Get reads one key at main revision rev, ≤ 0 being the current one: it appends the row to dst. A key that does
// not exist has Count 0, and nothing is appended. It is Range of one key without a visitor. Any goroutine.
func (s *Store) Get(key []byte, rev int64, dst []byte) ([]byte, RangeResult, error) {
	st, v, err := s.pin()
	if err != nil {
		return dst, RangeResult{}, err
	}
	defer v.Release()
	r := reader{index: st.index, rev: st.rev, compacted: st.compacted, view: &v}
	if err := r.aim(rev); err != nil {
		return dst, RangeResult{}, err
	}
	row, ok, err := r.get(key)
	if err != nil || !ok {
		return dst, RangeResult{Rev: st.rev}, err
	}
	return append(dst, row...), RangeResult{Rev: st.rev, Count: 1}, nil
}

// read does Range at the revision aimed at.
func (r *reader) read(key, end []byte, o RangeOptions, visit func(row []byte) error) (RangeResult, error) {
	res := RangeResult{Rev: r.rev}
	if len(end) == 0 {
		return r.readOne(key, o, visit)
	}
	from, to := key, end
	if len(end) == 1 && end[0] == 0 {
		to = nil
	}
	if o.CountOnly {
		res.Count = r.count(from, to)
		return res, nil
	}
	var buf []byte
	it := r.seek(from)
	for {
		e, rev := it.Next()
		if e == nil || to != nil && e.Key() >= string(to) {
			return res, nil
		}
		if o.Limit > 0 && res.Count == o.Limit {
			res.More, res.Next = true, []byte(e.Key())
			res.Count = r.count(from, to)
			return res, nil
		}
		row, err := r.row(e, rev, o.KeysOnly, &buf)
		if err != nil {
			return res, err
		}
		if err := visit(row); err != nil {
			return res, err
		}
		res.Count++
	}
}

func (r *reader) readOne(key []byte, o RangeOptions, visit func(row []byte) error) (RangeResult, error) {
	res := RangeResult{Rev: r.rev}
	if o.CountOnly {
		if _, _, ok := r.find(key); ok {
			res.Count = 1
		}
		return res, nil
	}
	row, ok, err := r.get(key)
	if err != nil || !ok {
		return res, err
	}
	res.Count = 1
	return res, visit(row)
}

// find looks key up in the index.
func (r *reader) find(key []byte) (e *index.Entry, rev Revision, ok bool) {
	if e = r.index.Get(key); e == nil {
		return nil, rev, false
	}
	if r.past {
		rev, ok = e.At(r.at)
		return e, rev, ok
	}
	return e, e.Rev(), e.Live()
}

// get gives the row of key; ok is false if the key does not exist.
func (r *reader) get(key []byte) (row []byte, ok bool, err error) {
	e, rev, ok := r.find(key)
	if !ok {
		return nil, false, nil
	}
	if row, ok = r.view.Row(rev); !ok {
		return nil, false, missing(e, rev)
	}
	return row, true, nil
}

// row gives the row rev of e. If it may come without its value and all is known in memory, it is made in buf.
func (r *reader) row(e *index.Entry, rev Revision, keysOnly bool, buf *[]byte) ([]byte, error) {
	if keysOnly && rev == e.Rev() {
		h := head{create: e.Create(), mod: rev.Main, version: e.Version(), lease: e.Lease()}
		*buf = appendRow((*buf)[:0], e.Key(), &h, nil)
		return *buf, nil
	}
	row, ok := r.view.Row(rev)
	if !ok {
		return nil, missing(e, rev)
	}
	return row, nil
}

// missing is the error for a row that the index knows and the file does not have.
func missing(e *index.Entry, rev Revision) error {
	return fmt.Errorf("mvcc: the row %d.%d of key %q is missing: the data file is damaged; %s",
		rev.Main, rev.Sub, e.Key(), adviceRestore)
}

func (r *reader) seek(from []byte) index.Iter {
	if r.past {
		return r.index.SeekAt(from, r.at)
	}
	return r.index.Seek(from)
}

func (r *reader) count(from, to []byte) int64 {
	if r.past {
		return r.index.CountAt(from, to, r.at)
	}
	return r.index.Count(from, to)
}

// History calls visit for all changes with from ≤ main revision ≤ to, in order, until it returns false. Events are
// valid during the call only. Changes not yet published are not there. errs.ErrCompacted if from is before the
// compacted revision; at it, all is there that the transaction of that revision did. Any goroutine; visit must not
// read from the store.
func (s *Store) History(from, to int64, visit func(Event) bool) error {
	st, v, err := s.pin()
	if err != nil {
		return err
	}
	defer v.Release()
	if from < st.compacted {
		return errs.ErrCompacted
	}
	var bad error
	err = v.Scan(Revision{Main: max(from, 0)}, backend.EndOf(min(to, st.rev)), func(id backend.RowID, row []byte) bool {
		h, err := readHead(row)
		if err != nil {
			bad = badRow(id, err)
			return false
		}
		return visit(Event{
			Rev: id.Revision, Tombstone: id.Tombstone, Key: h.key, Row: row,
			Lease: h.lease, Create: h.create, Version: h.version,
		})
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return fmt.Errorf("data file %s: %w", s.b.Path(), err)
	}
	return nil
}

func badRow(id backend.RowID, err error) error {
	return fmt.Errorf("row %d.%d: %w: %s", id.Main, id.Sub, err, adviceRestore)
}

// Prev gives the row of key as of the revision before rev, as prev_kv wants it. ok is false if the key did not
// exist then, or that revision is compacted. The row is the caller's. Any goroutine.
func (s *Store) Prev(key []byte, rev int64) (row []byte, ok bool) {
	st, v, err := s.pin()
	if err != nil {
		return nil, false
	}
	defer v.Release()
	r := reader{index: st.index, rev: st.rev, compacted: st.compacted, view: &v}
	if rev <= 1 || r.aim(rev-1) != nil {
		return nil, false
	}
	row, ok, err = r.get(key)
	return slices.Clone(row), ok && err == nil
}
