package index

import (
	"sort"

	"github.com/coordd/coordd/mvcc/backend"
)

// change is one change of a key, packed.
type change struct {
	main int64
	sub  int32
	dead bool // a deletion
}

func pack(rev backend.Revision, dead bool) change {
	return change{main: rev.Main, sub: int32(rev.Sub), dead: dead}
}

func (c change) revision() backend.Revision {
	return backend.Revision{Main: c.main, Sub: int64(c.sub)}
}

func (c change) row() backend.RowID {
	return backend.RowID{Revision: c.revision(), Tombstone: c.dead}
}

// Entry is what is known of a key. It is immutable, and 80 bytes long.
type Entry struct {
	key     string
	last    change
	create  int64
	version int64
	lease   int64
	older   []change // oldest first; shared with the entries before and after
}

// Key is the key.
func (e *Entry) Key() string { return e.key }

// Live says that the key exists: its newest change is no deletion.
func (e *Entry) Live() bool { return !e.last.dead }

// Rev is the revision of the newest change.
func (e *Entry) Rev() backend.Revision { return e.last.revision() }

// Create is the main revision at which the key came into being; 0 if it is dead.
func (e *Entry) Create() int64 { return e.create }

// Version counts the puts since then; 0 if the key is dead.
func (e *Entry) Version() int64 { return e.version }

// Lease is the id of the lease the key is attached to, 0 if none.
func (e *Entry) Lease() int64 { return e.lease }

// Changes is the number of changes known.
func (e *Entry) Changes() int { return len(e.older) + 1 }

// At gives the row that the key had at the end of main revision main; ok is false if it did not exist then, or if
// compaction has removed what it was. O(log changes).
func (e *Entry) At(main int64) (rev backend.Revision, ok bool) {
	c, ok := e.changeAt(main)
	return c.revision(), ok && !c.dead
}

// changeAt gives the newest change not after main.
func (e *Entry) changeAt(main int64) (c change, ok bool) {
	if e.last.main <= main {
		return e.last, true
	}
	i := sort.Search(len(e.older), func(i int) bool { return e.older[i].main > main })
	if i == 0 {
		return change{}, false
	}
	return e.older[i-1], true
}

// Retained says whether compaction at main revision compacted leaves the row id of this key: it does if the row is
// after it or exactly at it, or if it is what the key was at it.
func (e *Entry) Retained(id backend.RowID, compacted int64) bool {
	if id.Main >= compacted {
		return true
	}
	c, ok := e.changeAt(compacted)
	return ok && !c.dead && c.revision() == id.Revision
}

// garbage says that compaction may find something to remove here.
func (e *Entry) garbage() bool { return len(e.older) > 0 || e.last.dead }

// put gives the entry after a put of the key.
func (e *Entry) put(rev backend.Revision, lease int64) *Entry {
	n := &Entry{key: e.key, last: pack(rev, false), create: rev.Main, version: 1, lease: lease, older: append(e.older, e.last)}
	if e.Live() {
		n.create, n.version = e.create, e.version+1
	}
	return n
}

// remove gives the entry after a deletion of the key.
func (e *Entry) remove(rev backend.Revision) *Entry {
	return &Entry{key: e.key, last: pack(rev, true), older: append(e.older, e.last)}
}

// compact gives the entry as compaction at main revision at leaves it, nil if nothing is left, and calls drop for
// each row it removes. See [Entry.Retained] for the rule.
func (e *Entry) compact(at int64, drop func(backend.RowID)) *Entry {
	all := append(e.older[:len(e.older):len(e.older)], e.last)
	first := sort.Search(len(all), func(i int) bool { return all[i].main >= at }) // left in any case
	newest := sort.Search(len(all), func(i int) bool { return all[i].main > at }) - 1
	if newest >= 0 && newest < first && !all[newest].dead {
		first = newest
	}
	if first == 0 {
		return e
	}
	for _, c := range all[:first] {
		drop(c.row())
	}
	if first == len(all) {
		return nil
	}
	n := *e
	n.older = nil
	if first < len(e.older) {
		n.older = append([]change(nil), e.older[first:]...)
	}
	return &n
}
