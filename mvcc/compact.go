package mvcc

import (
	"container/heap"
	"slices"
	"sync"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/mvcc/backend"
)

// removal is the removing of what one compaction leaves unneeded.
type removal struct {
	rev    int64
	walked bool   // the index is done
	from   []byte // else the key to go on from
	rows   doomed
}

// doomed is rows to be removed: sorted runs, none empty, in a heap by their first rows.
type doomed [][]backend.RowID

// The methods of heap.Interface.
func (d doomed) Len() int           { return len(d) }
func (d doomed) Less(i, j int) bool { return d[i][0].Compare(d[j][0].Revision) < 0 }
func (d doomed) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *doomed) Push(x any)        { *d = append(*d, x.([]backend.RowID)) }
func (d *doomed) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return x
}

// take removes the first n rows, or all, and gives them in order.
func (d *doomed) take(n int) []backend.RowID {
	var out []backend.RowID
	for len(*d) > 0 && len(out) < n {
		out = append(out, (*d)[0][0])
		if (*d)[0] = (*d)[0][1:]; len((*d)[0]) == 0 {
			heap.Pop(d)
		} else {
			heap.Fix(d, 0)
		}
	}
	return out
}

// waits is who waits for which compaction.
type waits struct {
	mu        sync.Mutex
	scheduled int64  // guarded by mu: the last compaction
	finished  int64  // guarded by mu: the last one whose removal is done
	list      []wait // guarded by mu
}

type wait struct {
	rev  int64
	done chan struct{}
}

// Compact makes revisions before rev unreadable, with the next [Store.Publish], and schedules the removal of what
// only they need. errs.ErrCompacted if rev is not after the last compaction, errs.ErrFutureRev if it is after the
// current revision. It is durable with the changes around it. Writer only.
func (s *Store) Compact(rev int64) error {
	if rev <= s.compacted {
		return errs.ErrCompacted
	}
	if rev > s.rev {
		return errs.ErrFutureRev
	}
	s.compacted = rev
	s.changed = true
	s.putMetaRevision(backend.MetaScheduledCompactRev, rev)
	s.waits.mu.Lock()
	s.waits.scheduled = rev
	s.waits.mu.Unlock()
	if s.removal == nil {
		s.removal = &removal{rev: rev}
	} else {
		s.next = rev
	}
	return nil
}

// CompactStep does a small part of the removal under way: it looks at no more than maxRows keys, or removes no
// more than maxRows rows, and reports whether there is more to do. Writer only; call it between batches, and
// commit as usual.
func (s *Store) CompactStep(maxRows int) (more bool) {
	r := s.removal
	if r == nil {
		return false
	}
	if st := *s.state.Load(); st.compacted < r.rev {
		// Readers must know before rows go.
		st.compacted = r.rev
		s.state.Store(&st)
	}
	maxRows = max(maxRows, 1)
	if !r.walked {
		s.walk(r, maxRows)
		return true
	}
	rows := r.rows.take(maxRows)
	s.b.DeleteRows(rows)
	s.removed += int64(len(rows))
	if len(r.rows) > 0 {
		return true
	}
	s.finish(r)
	return s.removal != nil
}

// Removed is the number of rows that CompactStep has removed since the store was opened. Writer only.
func (s *Store) Removed() int64 { return s.removed }

// walk compacts some entries of the index.
func (s *Store) walk(r *removal, keys int) {
	var rows []backend.RowID
	r.from = s.tree.Compact(r.from, r.rev, keys, func(id backend.RowID) { rows = append(rows, id) })
	r.walked = r.from == nil
	s.changed = true
	if len(rows) > 0 {
		slices.SortFunc(rows, func(a, b backend.RowID) int { return a.Compare(b.Revision) })
		heap.Push(&r.rows, rows)
	}
}

// finish ends the removal r and starts the next.
func (s *Store) finish(r *removal) {
	s.putMetaRevision(backend.MetaFinishedCompactRev, r.rev)
	s.pages.forget(r.rev)
	s.removal = nil
	if s.next > 0 {
		s.removal, s.next = &removal{rev: s.next}, 0
	}
	w := &s.waits
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finished = r.rev
	w.list = slices.DeleteFunc(w.list, func(x wait) bool {
		if x.rev > r.rev {
			return false
		}
		close(x.done)
		return true
	})
}

// CompactDone gives a channel that is closed when the removal of the compaction at rev, or else of the last one
// before it, is done: the rows are gone with the next commit. Any goroutine.
func (s *Store) CompactDone(rev int64) <-chan struct{} {
	w := &s.waits
	w.mu.Lock()
	defer w.mu.Unlock()
	x := wait{rev: min(rev, w.scheduled), done: make(chan struct{})}
	if x.rev <= w.finished {
		close(x.done)
	} else {
		w.list = append(w.list, x)
	}
	return x.done
}
