package lock

import (
	"bytes"
	"cmp"
	"slices"
	"sort"

	"github.com/coordd/coordd/api/kvpb"
)

// entry is one key of a queue.
type entry struct {
	kv   *kvpb.KeyValue
	mode mode
}

func newEntry(kv *kvpb.KeyValue) *entry { return &entry{kv: kv, mode: parseMode(kv.GetValue())} }

// order is that of queues: who came first is first. Keys made by one transaction have the same create revision.
func order(a, b *entry) int {
	if c := cmp.Compare(a.kv.GetCreateRevision(), b.kv.GetCreateRevision()); c != 0 {
		return c
	}
	return bytes.Compare(a.kv.GetKey(), b.kv.GetKey())
}

// queue is all entries of one name at one revision. The zero value is empty. It knows nothing of waiting: that is line's.
type queue struct {
	entries []*entry          // in order
	byKey   map[string]*entry // the same
	owners  map[owner]int     // how many entries that are no guards there are of a lease and revision
}

// owner is what ties a guard to its entry: they are made by one transaction.
type owner struct{ lease, create int64 }

// newQueue makes a queue of keys in any order.
func newQueue(kvs []*kvpb.KeyValue) *queue {
	q := &queue{byKey: make(map[string]*entry, len(kvs)), owners: make(map[owner]int, len(kvs))}
	for _, kv := range kvs {
		e := newEntry(kv)
		q.entries = append(q.entries, e)
		q.byKey[string(kv.GetKey())] = e
		q.count(e, 1)
	}
	slices.SortFunc(q.entries, order)
	return q
}

func (q *queue) count(e *entry, by int) {
	if e.mode.guards != 0 {
		return
	}
	o := owner{e.kv.GetLease(), e.kv.GetCreateRevision()}
	if q.owners[o] += by; q.owners[o] == 0 {
		delete(q.owners, o)
	}
}

// place is the index of an entry.
func (q *queue) place(e *entry) int {
	return sort.Search(len(q.entries), func(i int) bool { return order(q.entries[i], e) >= 0 })
}

// put takes in a key that was put: a new one, or a new value.
func (q *queue) put(kv *kvpb.KeyValue) {
	key := string(kv.GetKey())
	if old := q.byKey[key]; old != nil && old.kv.GetCreateRevision() == kv.GetCreateRevision() {
		q.count(old, -1)
		old.kv, old.mode = kv, parseMode(kv.GetValue())
		q.count(old, 1)
		return
	}
	q.remove(key)
	e := newEntry(kv)
	q.entries = slices.Insert(q.entries, q.place(e), e)
	q.byKey[key] = e
	q.count(e, 1)
}

// remove takes out a key, if it is there.
func (q *queue) remove(key string) {
	e := q.byKey[key]
	if e == nil {
		return
	}
	i := q.place(e)
	q.entries = slices.Delete(q.entries, i, i+1)
	delete(q.byKey, key)
	q.count(e, -1)
}

// idle reports whether e is a guard that has nothing to do yet, since the entry it stands behind is there.
func (q *queue) idle(e *entry) bool {
	return e.mode.guards != 0 && q.owners[owner{e.mode.guards, e.kv.GetCreateRevision()}] > 0
}

// front is the number of entries, from the first on, that hold the lock, with the idle guards among them.
func (q *queue) front() int {
	holders, n := int64(0), 0
	var first mode
	for _, e := range q.entries {
		if !q.idle(e) {
			switch {
			case holders == 0:
				first = e.mode
			case !e.mode.same(first), !first.shared && holders >= first.limit:
				return n
			}
			holders++
		}
		n++
	}
	return n
}

// head is the first entry that is no idle guard; nil in an empty queue.
func (q *queue) head() *entry {
	for _, e := range q.entries {
		if !q.idle(e) {
			return e
		}
	}
	return nil
}
