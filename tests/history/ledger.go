package history

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

// Pair is what a key holds. The zero Pair is that of a key that does not exist.
type Pair struct {
	Value                       string
	Create, Mod, Version, Lease int64
}

// Change is one event of a watch over any keys.
type Change struct {
	Key     string
	Deleted bool
	Pair    // of a deleted key only Mod is set
}

// FirstRevision is that of the first change of a store.
const FirstRevision = 2

// Ledger is all changes of a store by revision, as watches over all keys told them: what it has done, in order.
type Ledger struct {
	mu   sync.Mutex // guards all below
	revs map[int64]revision
	next int64 // the first one that is missing
	keys map[string][]version
}

// revision is the changes of one.
type revision struct {
	changes []Change
	seen    time.Duration // when the first watch told of it
	by      string
}

// version is what a key held from a revision on.
type version struct {
	rev int64
	Pair
}

// NewLedger gives an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{revs: map[int64]revision{}, next: FirstRevision, keys: map[string][]version{}}
}

// Add notes all changes of one revision as one watch told them. The error tells what is wrong with them: another watch told
// others, or they do not follow from what was before.
func (l *Ledger) Add(rev int64, changes []Change, at time.Duration, by string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old, ok := l.revs[rev]; ok {
		if !slices.Equal(old.changes, changes) {
			return fmt.Errorf("revision %d: %s was told %+v, %s was told %+v", rev, old.by, old.changes, by, changes)
		}
		return nil
	}
	l.revs[rev] = revision{slices.Clone(changes), at, by}
	for r, ok := l.revs[l.next]; ok; r, ok = l.revs[l.next] {
		if err := l.play(l.next, r.changes); err != nil {
			return err
		}
		l.next++
	}
	return nil
}

// play notes what the keys of a revision hold, and checks it by the rules of revisions and versions.
func (l *Ledger) play(rev int64, changes []Change) error {
	seen := map[string]bool{}
	for _, c := range changes {
		before, after := l.at(c.Key, rev-1), Pair{}
		if !c.Deleted {
			after = Pair{c.Value, rev, rev, 1, c.Lease}
			if before.Version > 0 {
				after.Create, after.Version = before.Create, before.Version+1
			}
		}
		switch {
		case seen[c.Key]:
			return fmt.Errorf("revision %d has two events of %s", rev, c.Key)
		case c.Mod != rev:
			return fmt.Errorf("revision %d has an event of revision %d, of %s", rev, c.Mod, c.Key)
		case c.Deleted && before.Version == 0:
			return fmt.Errorf("revision %d deletes %s, which did not exist", rev, c.Key)
		case !c.Deleted && c.Pair != after:
			return fmt.Errorf("revision %d: the event of %s has %+v, must have %+v", rev, c.Key, c.Pair, after)
		}
		seen[c.Key] = true
		l.keys[c.Key] = append(l.keys[c.Key], version{rev, after})
	}
	return nil
}

// Complete is the revision up to which nothing is missing.
func (l *Ledger) Complete() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next - 1
}

// At is what a key held at a revision, which must be complete.
func (l *Ledger) At(key string, rev int64) Pair {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at(key, rev)
}

func (l *Ledger) at(key string, rev int64) Pair {
	vs := l.keys[key]
	i := sort.Search(len(vs), func(i int) bool { return vs[i].rev > rev })
	if i == 0 {
		return Pair{}
	}
	return vs[i-1].Pair
}

// All is what existed at a revision, by key.
func (l *Ledger) All(rev int64) map[string]Pair {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]Pair{}
	for key := range l.keys {
		if p := l.at(key, rev); p.Version > 0 {
			all[key] = p
		}
	}
	return all
}

// Changes are those of keys with a prefix, from one revision to another, in order.
func (l *Ledger) Changes(prefix string, from, to int64) []Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Change
	for rev := max(from, FirstRevision); rev <= to; rev++ {
		for _, c := range l.revs[rev].changes {
			if strings.HasPrefix(c.Key, prefix) {
				all = append(all, c)
			}
		}
	}
	return all
}

// Life is one life of a key, from its creation to its deletion.
type Life struct {
	Key              string
	Lease            int64
	Create, Delete   int64         // revisions; Delete is 0 while it lives
	Created, Deleted time.Duration // when the first watch told of it
}

// Lives are those of keys with a prefix, in the order of their creation.
func (l *Ledger) Lives(prefix string) []Life {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Life
	for key, vs := range l.keys {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		for _, v := range vs {
			switch {
			case v.Version == 1:
				all = append(all, Life{Key: key, Lease: v.Lease, Create: v.rev, Created: l.revs[v.rev].seen})
			case v.Version == 0:
				last := &all[len(all)-1]
				last.Delete, last.Deleted = v.rev, l.revs[v.rev].seen
			}
		}
	}
	slices.SortFunc(all, func(a, b Life) int { return int(a.Create - b.Create) })
	return all
}

// Events are the changes of the keys of requests, for CheckChanges and Resolve.
func Events(changes []Change) ([]Event, error) {
	var all []Event
	for _, c := range changes {
		group, key, err := ParseName(c.Key)
		if err != nil {
			return nil, err
		}
		e := Event{Revision: c.Mod, Group: group, Key: key}
		if !c.Deleted {
			if _, err := fmt.Sscan(c.Value, &e.Value); err != nil {
				return nil, fmt.Errorf("%s holds %q", c.Key, c.Value)
			}
		}
		all = append(all, e)
	}
	return all, nil
}
