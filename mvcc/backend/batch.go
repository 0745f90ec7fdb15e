package backend

import (
	"fmt"
	"slices"
	"time"

	"github.com/coordd/coordd/pkg/verify"
)

// change is a change of a small bucket.
type change struct {
	bucket     Bucket
	deletion   bool
	key, value []byte
}

// batch is what one bbolt transaction writes. The writer fills it; once sealed it is the committer's and
// does not change.
type batch struct {
	rows    []tailRow
	changes []change
	removed []RowID
	bytes   int       // about the memory of the above
	since   time.Time // when CommitIfDue first saw it with something in it
	pos     Position
	done    chan struct{} // closed when written, or failed to be
}

// rowOverhead is what a row costs in memory besides its bytes.
const rowOverhead = 64

func newBatch(rows int) *batch {
	return &batch{rows: make([]tailRow, 0, rows), done: make(chan struct{})}
}

func (t *batch) ops() int { return len(t.rows) + len(t.changes) + len(t.removed) }

// AppendRow adds a row. Its revision must be after those of all rows before. The row is kept, so the caller must
// not change it any more. Writer only, as are all methods of this file.
func (b *Backend) AppendRow(rev Revision, tombstone bool, row []byte) {
	verify.Assert(rev.Compare(b.last) > 0, "row %v appended after row %v", rev, b.last)
	b.last = rev
	b.active.rows = append(b.active.rows, tailRow{rev: rev, row: row, tombstone: tombstone})
	b.active.bytes += len(row) + rowOverhead
}

// Put sets a key of a small bucket. Both slices are kept. It becomes visible in the file, and so to
// [Backend.ForEach], by the next commit.
func (b *Backend) Put(bucket Bucket, key, value []byte) {
	verify.Assert(bucket > BucketKey && bucket < bucketCount && len(key) > 0, "put of key %x into bucket %s", key, bucket)
	b.active.changes = append(b.active.changes, change{bucket: bucket, key: key, value: value})
	b.active.bytes += len(key) + len(value) + rowOverhead
}

// Delete removes a key of a small bucket; it need not exist. The key is kept.
func (b *Backend) Delete(bucket Bucket, key []byte) {
	verify.Assert(bucket > BucketKey && bucket < bucketCount && len(key) > 0, "delete of key %x from bucket %s", key, bucket)
	b.active.changes = append(b.active.changes, change{bucket: bucket, deletion: true, key: key})
	b.active.bytes += len(key) + rowOverhead
}

// DeleteRows removes rows with the next commit, when no reader wants them any more: views go on showing
// them for a while. The slice is not kept. It is best in revision order.
func (b *Backend) DeleteRows(rows []RowID) {
	b.active.removed = append(b.active.removed, rows...)
	b.active.bytes += len(rows) * rowOverhead / 2
}

// Publish makes the rows appended so far visible to readers.
func (b *Backend) Publish() {
	rows := b.active.rows
	b.mu.Lock()
	defer b.mu.Unlock()
	st := b.state.Load()
	if len(st.tail) == len(rows) {
		return
	}
	b.state.Store(&state{tail: rows[:len(rows):len(rows)], sealed: st.sealed, file: st.file})
}

// CommitIfDue hands what was written to the committer if a commit is due: enough changes, enough bytes, or
// BatchInterval since this function first saw a change not handed over. It waits only if the tail has reached its
// bound. pos is the position of the last entry whose changes have been written. The error is that of
// [Backend.Err].
func (b *Backend) CommitIfDue(pos Position) error {
	t := b.active
	if t.ops() == 0 {
		return b.Err()
	}
	if t.ops() < b.o.BatchOps && t.bytes < b.o.BatchBytes {
		now := time.Now()
		if t.since.IsZero() {
			t.since = now
		}
		if now.Sub(t.since) < b.o.BatchInterval {
			return b.Err()
		}
	}
	return b.Commit(pos, false)
}

// Commit hands what was written to the committer, with pos, the position of the last entry whose changes have been
// written. With wait it returns when all is durable; without it, it does nothing while the committer is busy and
// the tail is within its bound, so it has to be called again. All written rows become visible. The error is that
// of [Backend.Err].
func (b *Backend) Commit(pos Position, wait bool) error {
	if err := b.Err(); err != nil {
		return err
	}
	if !b.settle(wait) {
		return b.Err()
	}
	if b.active.ops() > 0 || b.moved(pos) {
		if err := b.seal(pos); err != nil {
			return err
		}
	}
	if wait {
		b.settle(true)
	}
	return b.Err()
}

// settle reports whether no sealed batch is under way, having waited for that if asked to or if the tail is too
// large.
func (b *Backend) settle(wait bool) bool {
	if b.sealed == nil {
		return true
	}
	if wait || b.active.bytes >= b.o.MaxTailBytes/2 {
		<-b.sealed.done
		b.sealed = nil
		return true
	}
	select {
	case <-b.sealed.done:
		b.sealed = nil
		return true
	default:
		return false
	}
}

// moved says whether pos says something that the file does not.
func (b *Backend) moved(pos Position) bool {
	d := b.Position()
	return pos.Index != d.Index || pos.Term != d.Term || pos.ConfState != nil && !slices.Equal(pos.ConfState, d.ConfState)
}

// seal closes the active batch and gives it to the committer, which is idle.
func (b *Backend) seal(pos Position) error {
	if b.closed.Load() {
		return fmt.Errorf("data file %s: %w", b.path, errClosed)
	}
	verify.Assert(pos.Index >= b.Position().Index, "commit at entry %d after one at entry %d", pos.Index, b.Position().Index)
	t := b.active
	t.pos = pos
	b.active = newBatch(min(len(t.rows), b.o.BatchOps))
	b.sealed = t
	b.mu.Lock()
	b.state.Store(&state{sealed: t.rows, file: b.state.Load().file})
	b.mu.Unlock()
	b.jobs <- t // has room: the committer is idle
	return nil
}
