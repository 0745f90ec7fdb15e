package index

import "github.com/coordd/coordd/mvcc/backend"

// Snapshot is an unchanging index. The zero value is empty. Intervals of keys are half open, [from, to); nil for
// to means no upper end.
type Snapshot struct {
	root *node
}

// Get gives the entry of key, which may be dead; nil if there is none. It allocates nothing.
func (s Snapshot) Get(key []byte) *Entry {
	n := s.root
	if n == nil {
		return nil
	}
	for !n.leaf() {
		n = n.kids[n.kidFor(key)].node
	}
	if i := n.search(key); n.holds(i, key) {
		return n.entries[i]
	}
	return nil
}

// Live is the number of live keys. It looks at the root only.
func (s Snapshot) Live() int64 {
	if s.root == nil {
		return 0
	}
	return int64(describe("", s.root).live)
}

// Count is the number of live keys in [from, to). O(log n).
func (s Snapshot) Count(from, to []byte) int64 {
	if s.root == nil {
		return 0
	}
	high := int64(0)
	if to == nil {
		high = s.Live()
	} else {
		high = s.rank(to)
	}
	return max(high-s.rank(from), 0)
}

// rank is the number of live keys less than key.
func (s Snapshot) rank(key []byte) (n int64) {
	at := s.root
	for !at.leaf() {
		i := at.kidFor(key)
		for j := range at.kids[:i] {
			n += int64(at.kids[j].live)
		}
		at = at.kids[i].node
	}
	for _, e := range at.entries[:at.search(key)] {
		if e.Live() {
			n++
		}
	}
	return n
}

// CountAt is the number of keys of [from, to) that existed at the end of main revision main. Only what has changed
// since is looked at; the rest costs O(log n).
func (s Snapshot) CountAt(from, to []byte, main int64) int64 {
	if s.root == nil {
		return 0
	}
	return countAt(s.root, from, to, main)
}

// countAt counts below n. A nil from means that the lower end of the interval is not within n, a nil to likewise.
func countAt(n *node, from, to []byte, main int64) (count int64) {
	if n.leaf() {
		i, end := 0, len(n.entries)
		if from != nil {
			i = n.search(from)
		}
		if to != nil {
			end = n.search(to)
		}
		for ; i < end; i++ {
			if _, ok := n.entries[i].At(main); ok {
				count++
			}
		}
		return count
	}
	first, last := 0, len(n.kids)-1
	if from != nil {
		first = n.kidFor(from)
	}
	if to != nil {
		last = n.kidFor(to)
	}
	for i := first; i <= last; i++ {
		k := &n.kids[i]
		low, high := from, to
		if i > first {
			low = nil
		}
		if i < last {
			high = nil
		}
		if low == nil && high == nil && k.newest <= main {
			count += int64(k.live)
		} else {
			count += countAt(k.node, low, high, main)
		}
	}
	return count
}

// walk says which entries an [Iter] gives.
type walk uint8

const (
	walkLive    walk = iota // live keys
	walkAt                  // keys that existed at a main revision
	walkGarbage             // entries that compaction may shorten
)

// wants says whether there may be something to give below k.
func (it *Iter) wants(k *kid) bool {
	switch it.walk {
	case walkLive:
		return k.live > 0
	case walkAt:
		return k.live > 0 || k.newest > it.main
	default:
		return k.garbage > 0
	}
}

// Iter goes over the entries of a snapshot in key order. It is made to live on the stack; it allocates nothing.
type Iter struct {
	walk  walk
	main  int64
	depth int
	leaf  *node
	at    int
	steps [maxDepth]step
}

// Seek gives an iterator over the live keys from key on.
func (s Snapshot) Seek(key []byte) Iter { return s.seek(key, walkLive, 0) }

// SeekAt gives an iterator over the keys from key on that existed at the end of main revision main.
func (s Snapshot) SeekAt(key []byte, main int64) Iter { return s.seek(key, walkAt, main) }

func (s Snapshot) seek(key []byte, w walk, main int64) (it Iter) {
	it.walk, it.main = w, main
	n := s.root
	if n == nil {
		return it
	}
	for !n.leaf() {
		i := n.kidFor(key)
		it.steps[it.depth] = step{n, i}
		it.depth++
		n = n.kids[i].node
	}
	it.leaf, it.at = n, n.search(key)
	return it
}

// Next gives the next entry and the revision of its row as the iterator sees it; nil if there are no more.
func (it *Iter) Next() (e *Entry, rev backend.Revision) {
	if it.walk == walkAt {
		return it.nextAt()
	}
	if e = it.next(); e == nil {
		return nil, rev
	}
	return e, e.last.revision()
}

func (it *Iter) nextAt() (*Entry, backend.Revision) {
	for e := it.next(); e != nil; e = it.next() {
		if rev, ok := e.At(it.main); ok {
			return e, rev
		}
	}
	return nil, backend.Revision{}
}

// next gives the next entry of the walk; of walkAt, the next that may be one.
func (it *Iter) next() *Entry {
	for it.leaf != nil {
		for it.at < len(it.leaf.entries) {
			e := it.leaf.entries[it.at]
			it.at++
			if it.walk == walkLive && !e.Live() || it.walk == walkGarbage && !e.garbage() {
				continue
			}
			return e
		}
		it.nextLeaf()
	}
	return nil
}

// nextLeaf moves to the next leaf that may have something, or sets leaf to nil.
func (it *Iter) nextLeaf() {
	it.leaf, it.at = nil, 0
	for it.depth > 0 {
		s := &it.steps[it.depth-1]
		s.kid++
		for s.kid < len(s.node.kids) && !it.wants(&s.node.kids[s.kid]) {
			s.kid++
		}
		if s.kid == len(s.node.kids) {
			it.depth--
			continue
		}
		n := s.node.kids[s.kid].node
		if n.leaf() {
			it.leaf = n
			return
		}
		it.steps[it.depth] = step{n, -1}
		it.depth++
	}
}
