package index

import (
	"slices"
	"sort"
)

const (
	maxEntries = 64 // of a leaf
	maxKids    = 48 // of a branch
	// maxDepth bounds the branches above a leaf: far more keys than memory can hold.
	maxDepth = 16
)

// node is a leaf, with entries, or a branch, with kids. The root may be an empty leaf; no other node is empty.
type node struct {
	epoch   uint64
	entries []*Entry
	kids    []kid
	keys    keyParts
}

// kid is a child of a branch and what there is to know of it from above.
type kid struct {
	low     string // keys below are ≥ low; of the first kid it says nothing
	node    *node
	live    int32 // keys that are not dead
	garbage int32 // entries that compaction may shorten
	newest  int64 // no change below has a larger main revision
}

func (n *node) leaf() bool { return n.kids == nil }

// size is the number of entries or kids.
func (n *node) size() int { return len(n.entries) + len(n.kids) }

func (n *node) full() bool {
	return len(n.entries) > maxEntries || len(n.kids) > maxKids
}

// kidFor gives the index of the kid under which key belongs.
func (n *node) kidFor(key []byte) int {
	i := n.search(key)
	if i < len(n.kids) && n.kids[i].low == string(key) {
		return i
	}
	return i - 1
}

// first is the index of the first key that says something: that of the first kid does not.
func (n *node) first() int {
	if n.leaf() {
		return 0
	}
	return 1
}

// key is the key at i.
func (n *node) key(i int) string {
	if n.leaf() {
		return n.entries[i].key
	}
	return n.kids[i].low
}

// search gives the index of the first key, from n.first() on, that is not less than key.
func (n *node) search(key []byte) int {
	low, high := n.keys.narrow(n.first(), key)
	for low < high {
		mid := int(uint(low+high) / 2)
		if n.key(mid) < string(key) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// keyParts makes searching a node fast: it has the keys' telling bytes in one place, so that mostly only the key
// found is looked at in memory of its own. It is shared by copies of a node; parts never changes.
type keyParts struct {
	prefix string   // all keys begin so
	parts  []uint64 // of each key the 8 bytes after prefix, filled up with zeros
}

// part gives the 8 bytes of key after the first skip.
func part[K string | []byte](key K, skip int) (p uint64) {
	if len(key) >= skip+8 {
		k := key[skip : skip+8]
		return uint64(k[0])<<56 | uint64(k[1])<<48 | uint64(k[2])<<40 | uint64(k[3])<<32 |
			uint64(k[4])<<24 | uint64(k[5])<<16 | uint64(k[6])<<8 | uint64(k[7])
	}
	for i := range 8 {
		p <<= 8
		if skip+i < len(key) {
			p |= uint64(key[skip+i])
		}
	}
	return p
}

// narrow gives the interval within which the first key not less than key, from index first on, is to be searched.
func (k *keyParts) narrow(first int, key []byte) (low, high int) {
	size := len(k.parts)
	if head := key[:min(len(key), len(k.prefix))]; string(head) != k.prefix {
		if string(head) < k.prefix {
			return first, first
		}
		return max(size, first), max(size, first)
	}
	p := part(key, len(k.prefix))
	low, high = first, size
	for low < high {
		mid := int(uint(low+high) / 2)
		if k.parts[mid] < p {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low >= size || k.parts[low] != p {
		return low, low
	}
	same := sort.Search(size-low, func(i int) bool { return k.parts[low+i] != p })
	return low, low + same
}

// reindex makes the key parts anew.
func (n *node) reindex() {
	size, first := n.size(), n.first()
	n.keys = keyParts{parts: make([]uint64, size)}
	if size <= first {
		return
	}
	low := n.key(first)
	n.keys.prefix = low[:shared(low, n.key(size-1))]
	for i := first; i < size; i++ {
		n.keys.parts[i] = part(n.key(i), len(n.keys.prefix))
	}
}

// shared is the number of first bytes that a and b have in common. Of two keys, all between them have these too.
func shared(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// inserted follows the insertion of a key at i.
func (n *node) inserted(i int) {
	skip := len(n.keys.prefix)
	if n.size() <= n.first()+1 || shared(n.key(n.first()), n.key(n.size()-1)) < skip {
		n.reindex()
		return
	}
	parts := make([]uint64, 0, n.size())
	parts = append(append(parts, n.keys.parts[:i]...), part(n.key(i), skip))
	n.keys.parts = append(parts, n.keys.parts[i:]...)
}

// removed follows the removal of the key at i.
func (n *node) removed(i int) {
	parts := make([]uint64, 0, n.size())
	n.keys.parts = append(append(parts, n.keys.parts[:i]...), n.keys.parts[i+1:]...)
}

// holds says whether the entry at i, as given by search, is that of key.
func (n *node) holds(i int, key []byte) bool {
	return i < len(n.entries) && n.entries[i].key == string(key)
}

// copied gives a copy of n of another epoch, with some room to grow.
func (n *node) copied(epoch uint64) *node {
	const room = 2
	c := &node{epoch: epoch, keys: n.keys}
	if n.leaf() {
		c.entries = append(make([]*Entry, 0, len(n.entries)+room), n.entries...)
	} else {
		c.kids = append(make([]kid, 0, len(n.kids)+room), n.kids...)
	}
	return c
}

// describe gives the kid record of a node.
func describe(low string, n *node) kid {
	k := kid{low: low, node: n}
	for _, e := range n.entries {
		if e.Live() {
			k.live++
		}
		if e.garbage() {
			k.garbage++
		}
		k.newest = max(k.newest, e.last.main)
	}
	for i := range n.kids {
		c := &n.kids[i]
		k.live += c.live
		k.garbage += c.garbage
		k.newest = max(k.newest, c.newest)
	}
	return k
}

// split cuts n in two, at i, and gives the upper part with its lowest key. Nodes that grow at the end, as
// they do when keys come in order, are better cut there.
func (n *node) split(grewAtEnd bool) (low string, upper *node) {
	i := n.size() / 2
	if grewAtEnd {
		i = n.size() - 1
	}
	upper = &node{epoch: n.epoch}
	if n.leaf() {
		upper.entries = append(make([]*Entry, 0, maxEntries/2+2), n.entries[i:]...)
		clear(n.entries[i:])
		n.entries = n.entries[:i]
		n.reindex()
		upper.reindex()
		return upper.entries[0].key, upper
	}
	upper.kids = append(make([]kid, 0, maxKids/2+2), n.kids[i:]...)
	clear(n.kids[i:])
	n.kids = n.kids[:i]
	n.reindex()
	upper.reindex()
	return upper.kids[0].low, upper
}

// merge appends the contents of upper, whose lowest key is low, to n.
func (n *node) merge(low string, upper *node) {
	defer n.reindex()
	if n.leaf() {
		n.entries = append(n.entries, upper.entries...)
		return
	}
	at := len(n.kids)
	n.kids = append(n.kids, upper.kids...)
	n.kids[at].low = low
}

// removeKid takes out kid i.
func (n *node) removeKid(i int) {
	n.kids = slices.Delete(n.kids, i, i+1)
	n.removed(i)
}
