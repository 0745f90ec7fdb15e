package backend

import (
	"fmt"
	"sort"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"
)

// tailRow is a row that is in memory.
type tailRow struct {
	rev       Revision
	row       []byte
	tombstone bool
}

// state is what readers see: every row is in exactly one of its parts. It never changes once it is stored.
type state struct {
	tail   []tailRow // the published part of the active batch
	sealed []tailRow // the batch being written
	file   *fileView // all before; nil after Close
}

// fileView is a read transaction shared by all readers of some states.
type fileView struct {
	tx      *bbolt.Tx
	rows    *bbolt.Bucket
	cursors sync.Pool    // of *fileCursor, over rows
	refs    atomic.Int64 // readers, and one for the owner; 0 = ended
	retired atomic.Bool  // no new readers: they wait for replaced
	// replaced is closed after a state with another file, or none, has been stored.
	replaced chan struct{}
}

// fileCursor is a cursor with a memory of where it stands, to find the next row without a search.
type fileCursor struct {
	*bbolt.Cursor
	at    Revision
	valid bool
}

func newFileView(db *bbolt.DB) (*fileView, error) {
	tx, err := db.Begin(false)
	if err != nil {
		return nil, err
	}
	f := &fileView{tx: tx, rows: tx.Bucket([]byte(BucketKey.String())), replaced: make(chan struct{})}
	f.cursors.New = func() any { return &fileCursor{Cursor: f.rows.Cursor()} }
	f.refs.Store(1)
	return f, nil
}

func (f *fileView) acquire() bool {
	if f.retired.Load() {
		return false
	}
	for {
		n := f.refs.Load()
		if n == 0 {
			return false
		}
		if f.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (f *fileView) release() {
	if f.refs.Add(-1) == 0 {
		_ = f.tx.Rollback() // fails for a transaction that has ended already only
	}
}

// View is an unchanging view of the rows published when it was taken, and a bit more: rows published since by the
// same batch may be found too. A View belongs to one goroutine and must be released, once, by it; while holding
// one the goroutine must not take another. Not to be copied after first use.
type View struct {
	tail   []tailRow
	sealed []tailRow
	file   *fileView
	live   *batch // for the writer: look here instead of in tail
	cursor *fileCursor
}

// View gives the present view. It does not wait, except while the file's memory map moves (see the package
// comment). May be called by any goroutine. After Close it gives one that is [View.Closed].
func (b *Backend) View() View {
	for {
		st := b.state.Load()
		if st.file == nil {
			return View{}
		}
		if st.file.acquire() {
			return View{tail: st.tail, sealed: st.sealed, file: st.file}
		}
		<-st.file.replaced
	}
}

// WriterView is View for the writer: it also shows rows not yet published, and those appended after it was taken
// up to the next commit.
func (b *Backend) WriterView() View {
	v := b.View()
	v.live = b.active
	return v
}

// Closed says that the backend was closed when the view was taken. Such a view has no rows.
func (v *View) Closed() bool { return v.file == nil }

// Release ends the view. Rows got from it must not be used any more.
func (v *View) Release() {
	if v.file == nil {
		return
	}
	if v.cursor != nil {
		v.file.cursors.Put(v.cursor)
	}
	v.file.release()
	*v = View{}
}

// Row gives the row at exactly rev, which must not be a tombstone. It is valid until Release.
func (v *View) Row(rev Revision) ([]byte, bool) {
	tail := v.tail
	if v.live != nil {
		tail = v.live.rows
	}
	if len(tail) > 0 && rev.Compare(tail[0].rev) >= 0 {
		return findRow(tail, rev)
	}
	if len(v.sealed) > 0 && rev.Compare(v.sealed[0].rev) >= 0 {
		return findRow(v.sealed, rev)
	}
	if v.file == nil {
		return nil, false
	}
	if v.cursor == nil {
		v.cursor = v.file.cursors.Get().(*fileCursor)
	}
	return v.cursor.row(rev)
}

// row finds rev in the file.
func (c *fileCursor) row(rev Revision) ([]byte, bool) {
	key := EncodeRowKey(RowID{Revision: rev})
	if c.valid && (rev == Revision{Main: c.at.Main + 1} || rev == Revision{Main: c.at.Main, Sub: c.at.Sub + 1}) {
		// Keys written one after the other are often read so, too.
		if k, row := c.Next(); string(k) == string(key.Bytes()) {
			c.at = rev
			return row, true
		}
	}
	k, row := c.Seek(key.Bytes())
	if c.valid = string(k) == string(key.Bytes()); !c.valid {
		return nil, false
	}
	c.at = rev
	return row, true
}

// findRow looks rev up in rows. Mostly each transaction has one row, so the place can be calculated: no row
// can stand earlier than the distance of the main revisions says.
func findRow(rows []tailRow, rev Revision) ([]byte, bool) {
	i := searchRows(rows, rev)
	if i == len(rows) || rows[i].rev != rev || rows[i].tombstone {
		return nil, false
	}
	return rows[i].row, true
}

// searchRows gives the index of the first row not before rev.
func searchRows(rows []tailRow, rev Revision) int {
	if len(rows) == 0 {
		return 0
	}
	if guess := rev.Main - rows[0].rev.Main; guess >= 0 && guess < int64(len(rows)) && rows[guess].rev == rev {
		return int(guess)
	}
	return sort.Search(len(rows), func(i int) bool { return rows[i].rev.Compare(rev) >= 0 })
}

// Scan calls visit for each row with from ≤ revision ≤ to, in order, until visit returns false. Rows are valid
// until Release. The error names a malformed row key of the file.
func (v *View) Scan(from, to Revision, visit func(id RowID, row []byte) bool) error {
	if more, err := v.scanFile(from, to, visit); !more || err != nil {
		return err
	}
	tail := v.tail
	if v.live != nil {
		tail = v.live.rows
	}
	for _, rows := range [2][]tailRow{v.sealed, tail} {
		for _, r := range rows[searchRows(rows, from):] {
			if r.rev.Compare(to) > 0 || !visit(RowID{r.rev, r.tombstone}, r.row) {
				return nil
			}
		}
	}
	return nil
}

// scanFile is the part of Scan that is in the file; more is false if visit wants no more.
func (v *View) scanFile(from, to Revision, visit func(id RowID, row []byte) bool) (more bool, err error) {
	if v.file == nil {
		return false, nil
	}
	c := v.file.cursors.Get().(*fileCursor)
	defer v.file.cursors.Put(c)
	c.valid = false
	start := EncodeRowKey(RowID{Revision: from})
	for k, row := c.Seek(start.Bytes()); k != nil; k, row = c.Next() {
		id, ok := DecodeRowKey(k)
		if !ok {
			return false, fmt.Errorf("bucket %s has a malformed row key %x: %s", BucketKey, k, adviceDamaged)
		}
		if id.Compare(to) > 0 {
			break
		}
		if !visit(id, row) {
			return false, nil
		}
	}
	return true, nil
}

// Bounds gives the revisions of the first and the last row; ok is false if there are no rows.
func (v *View) Bounds() (first, last Revision, ok bool) {
	if v.file != nil {
		c := v.file.cursors.Get().(*fileCursor)
		defer v.file.cursors.Put(c)
		c.valid = false
		a, _ := c.First()
		z, _ := c.Last()
		low, ok1 := DecodeRowKey(a)
		high, ok2 := DecodeRowKey(z)
		if ok1 && ok2 {
			first, last, ok = low.Revision, high.Revision, true
		}
	}
	for _, rows := range [2][]tailRow{v.sealed, v.tail} {
		if len(rows) == 0 {
			continue
		}
		if last = rows[len(rows)-1].rev; !ok {
			first, ok = rows[0].rev, true
		}
	}
	return first, last, ok
}
