package mvcc

import (
	"fmt"
	"sync/atomic"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/mvcc/backend"
	"github.com/coordd/coordd/mvcc/index"
)

// never is the compacted revision of a store that was never compacted.
const never = -1

// adviceRestore ends the errors about a damaged file.
const adviceRestore = "restore it from a snapshot, or remove this member and add it again with an empty data directory"

// state is what readers see. It never changes once it is stored.
type state struct {
	rev       int64
	compacted int64
	index     index.Snapshot
}

// Store is the store. See the package comment for which goroutine may call what.
type Store struct {
	b *backend.Backend

	// The writer's.
	tree      *index.Tree
	rev       int64
	compacted int64
	changed   bool // since the last Publish
	txn       Txn
	events    []Event // room for the events of the next transactions
	removal   *removal
	next      int64 // to be compacted at after removal; 0 = nothing
	removed   int64 // rows, by compaction

	state atomic.Pointer[state]
	pages pages
	waits waits
}

// Open builds the store from the rows in b. Errors name the row that cannot be read. The removal of rows that a
// compaction left unfinished goes on with the next [Store.CompactStep].
func Open(b *backend.Backend, o Options) (*Store, error) {
	if o.Pages <= 0 {
		o.Pages = defaultPages
	}
	s := &Store{b: b, rev: 1, compacted: never}
	s.pages.max = o.Pages
	finished, err := s.metaRevision(backend.MetaFinishedCompactRev)
	if err != nil {
		return nil, err
	}
	scheduled, err := s.metaRevision(backend.MetaScheduledCompactRev)
	if err != nil {
		return nil, err
	}
	last, err := s.load(o.OnLive)
	if err != nil {
		return nil, fmt.Errorf("data file %s: %w", b.Path(), err)
	}
	s.compacted = max(scheduled, finished)
	s.rev = max(s.rev, last, s.compacted)
	s.waits.scheduled, s.waits.finished = s.compacted, s.compacted
	if scheduled > finished {
		s.waits.finished = finished
		s.removal = &removal{rev: scheduled}
	}
	s.changed = true
	s.Publish()
	return s, nil
}

// metaRevision reads a main revision from the bucket meta, never if it is not there.
func (s *Store) metaRevision(key string) (int64, error) {
	v, ok := s.b.Get(backend.BucketMeta, []byte(key))
	if !ok {
		return never, nil
	}
	id, ok := backend.DecodeRowKey(v)
	if !ok {
		return 0, fmt.Errorf("data file %s: bucket %s: %s is %x, not a revision: %s",
			s.b.Path(), backend.BucketMeta, key, v, adviceRestore)
	}
	return id.Main, nil
}

// putMetaRevision is the inverse.
func (s *Store) putMetaRevision(key string, rev int64) {
	k := backend.EncodeRowKey(backend.RowID{Revision: Revision{Main: rev}})
	s.b.Put(backend.BucketMeta, []byte(key), k.Bytes())
}

// Revision is the current revision. It has been published: reads see all of it.
func (s *Store) Revision() int64 { return s.state.Load().rev }

// CompactedRevision is the revision of the last compaction, −1 if there was none. Reads at earlier revisions are
// refused.
func (s *Store) CompactedRevision() int64 { return s.state.Load().compacted }

// Publish makes all transactions ended so far visible to readers, at once. Writer only; call it at the end of each
// batch.
func (s *Store) Publish() {
	s.b.Publish()
	if !s.changed {
		return
	}
	s.changed = false
	s.state.Store(&state{rev: s.rev, compacted: s.compacted, index: s.tree.Snapshot()})
}

// pin gives the present state and a view of the rows that has all it needs. The caller releases the view.
func (s *Store) pin() (*state, backend.View, error) {
	for {
		st := s.state.Load()
		v := s.b.View()
		if v.Closed() {
			return nil, v, errs.ErrStopped
		}
		if s.state.Load().compacted == st.compacted {
			return st, v, nil
		}
		v.Release()
	}
}
