package sim

import (
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"
)

// event is one change as a watcher was told.
type event struct {
	key       string
	tombstone bool
	cell      cell // of a tombstone only Mod is set
}

// change is all events of one revision, in their order.
type change struct {
	events []event
	seen   time.Duration // when the first watcher was told
	by     string
}

// ledger is all changes that watchers were told, by revision: what the store has done, in order. Once it is
// complete, it says at which revision an op took effect whose client got no answer.
type ledger struct {
	mu      sync.Mutex // guards all below
	changes map[int64]change
	next    int64 // the first revision that is missing
	last    int64 // the newest that is there
}

// firstRevision is that of the first change of a store.
const firstRevision = 2

func newLedger() *ledger { return &ledger{changes: map[int64]change{}, next: firstRevision} }

// add notes what a watcher was told about one revision, all of it, and returns what is wrong with
// that, if it differs from what another was told.
func (l *ledger) add(rev int64, events []event, at time.Duration, by string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old, ok := l.changes[rev]; ok {
		if !slices.Equal(old.events, events) {
			return fmt.Errorf("revision %d: %s was told %+v, %s was told %+v", rev, old.by, old.events, by, events)
		}
		return nil
	}
	l.changes[rev] = change{slices.Clone(events), at, by}
	l.last = max(l.last, rev)
	for _, ok := l.changes[l.next]; ok; _, ok = l.changes[l.next] {
		l.next++
	}
	return nil
}

// complete is the revision up to which nothing is missing.
func (l *ledger) complete() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next - 1
}

// replay is the ledger played from the beginning: what each key held when.
type replay struct {
	l    *ledger
	last int64
	keys map[string][]version
}

type version struct {
	rev  int64
	cell cell // zero after a delete
}

// play checks that each change follows from the one before by the rules of revisions and versions.
func (l *ledger) play() (*replay, []error) {
	r := &replay{l: l, last: l.complete(), keys: map[string][]version{}}
	var bad []error
	for rev := int64(firstRevision); rev <= r.last; rev++ {
		seen := map[string]bool{}
		for _, e := range l.changes[rev].events {
			before := r.at(e.key, rev-1)
			after := cell{}
			if !e.tombstone {
				after = cell{e.cell.Value, rev, rev, 1, e.cell.Lease}
				if before.Version > 0 {
					after.Create, after.Version = before.Create, before.Version+1
				}
			}
			switch {
			case seen[e.key]:
				bad = append(bad, fmt.Errorf("revision %d has two events of %s", rev, e.key))
			case e.tombstone && before.Version == 0:
				bad = append(bad, fmt.Errorf("revision %d deletes %s, which did not exist", rev, e.key))
			case !e.tombstone && e.cell != after:
				bad = append(bad, fmt.Errorf("revision %d: the event of %s has %+v, must have %+v", rev, e.key, e.cell, after))
			}
			seen[e.key] = true
			r.keys[e.key] = append(r.keys[e.key], version{rev, after})
		}
	}
	return r, bad
}

// at is what a key held at a revision.
func (r *replay) at(key string, rev int64) cell {
	vs := r.keys[key]
	i := sort.Search(len(vs), func(i int) bool { return vs[i].rev > rev })
	if i == 0 {
		return cell{}
	}
	return vs[i-1].cell
}

// all is what existed at a revision, by key.
func (r *replay) all(rev int64) map[string]cell {
	out := map[string]cell{}
	for key := range r.keys {
		if c := r.at(key, rev); c.Version > 0 {
			out[key] = c
		}
	}
	return out
}
