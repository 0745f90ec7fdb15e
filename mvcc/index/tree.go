package index

import (
	"slices"

	"github.com/coordd/coordd/mvcc/backend"
)

// Tree is the writer's index. It belongs to one goroutine; the zero value is empty and ready.
type Tree struct {
	root  *node
	epoch uint64
}

// step is one branch on the way to a leaf, and the kid taken.
type step struct {
	node *node
	kid  int
}

// path is the way from the root to the place of a key in a leaf.
type path struct {
	steps [maxDepth]step
	depth int
	leaf  *node
	at    int  // index in the leaf
	found bool // the entry there is that of the key
}

// find fills p with the way to key.
func (t *Tree) find(key []byte, p *path) {
	if t.root == nil {
		t.root = &node{epoch: t.epoch}
	}
	n := t.root
	for !n.leaf() {
		i := n.kidFor(key)
		p.steps[p.depth] = step{n, i}
		p.depth++
		n = n.kids[i].node
	}
	p.leaf, p.at = n, n.search(key)
	p.found = n.holds(p.at, key)
}

// entry is the one found, nil if there is none.
func (p *path) entry() *Entry {
	if !p.found {
		return nil
	}
	return p.leaf.entries[p.at]
}

// own gives a node that may be changed in place of n.
func (t *Tree) own(n *node) *node {
	if n.epoch == t.epoch {
		return n
	}
	return n.copied(t.epoch)
}

// ownPath makes all nodes of p the writer's own, and adds to what the branches know.
func (t *Tree) ownPath(p *path, live, garbage int32, newest int64) {
	t.root = t.own(t.root)
	n := t.root
	for d := range p.depth {
		s := &p.steps[d]
		s.node = n
		k := &n.kids[s.kid]
		k.node = t.own(k.node)
		k.live += live
		k.garbage += garbage
		k.newest = max(k.newest, newest)
		n = k.node
	}
	p.leaf = n
}

func one(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

// Put records a put of key at rev, which must be after all of the key before. It returns the entry before, nil if
// there was none (it may be dead), and the new one. key is copied if it is new.
func (t *Tree) Put(key []byte, rev backend.Revision, lease int64) (before, after *Entry) {
	var p path
	t.find(key, &p)
	if before = p.entry(); before != nil {
		after = before.put(rev, lease)
	} else {
		after = &Entry{key: string(key), last: pack(rev, false), create: rev.Main, version: 1, lease: lease}
	}
	t.store(&p, before, after)
	return before, after
}

// Delete records the deletion of key at rev. The key must be live; ok is false, and nothing is done, if it is not.
func (t *Tree) Delete(key []byte, rev backend.Revision) (before *Entry, ok bool) {
	var p path
	t.find(key, &p)
	before = p.entry()
	if before == nil || !before.Live() {
		return before, false
	}
	t.store(&p, before, before.remove(rev))
	return before, true
}

// store puts the entry after at the place p, in the stead of before if that is not nil.
func (t *Tree) store(p *path, before, after *Entry) {
	live, garbage := one(after.Live()), one(after.garbage())
	if before != nil {
		live -= one(before.Live())
		garbage -= one(before.garbage())
	}
	t.ownPath(p, live, garbage, after.last.main)
	if before != nil {
		p.leaf.entries[p.at] = after
		return
	}
	atEnd := p.at == len(p.leaf.entries)
	p.leaf.entries = slices.Insert(p.leaf.entries, p.at, after)
	p.leaf.inserted(p.at)
	t.splitUp(p, atEnd)
}

// splitUp splits the nodes of p that have become too large, from the leaf on.
func (t *Tree) splitUp(p *path, atEnd bool) {
	n := p.leaf
	for d := p.depth - 1; n.full(); d-- {
		low, upper := n.split(atEnd)
		if d < 0 {
			t.root = &node{epoch: t.epoch, kids: []kid{describe("", n), describe(low, upper)}}
			t.root.reindex()
			return
		}
		parent, i := p.steps[d].node, p.steps[d].kid
		atEnd = atEnd && i == len(parent.kids)-1
		parent.kids[i] = describe(parent.kids[i].low, n)
		parent.kids = slices.Insert(parent.kids, i+1, describe(low, upper))
		parent.inserted(i + 1)
		n = parent
	}
}

// drop takes the entry before out of the tree at the place p.
func (t *Tree) drop(p *path, before *Entry) {
	t.ownPath(p, -one(before.Live()), -one(before.garbage()), 0)
	p.leaf.entries = slices.Delete(p.leaf.entries, p.at, p.at+1)
	p.leaf.removed(p.at)
	n, most := p.leaf, maxEntries
	for d := p.depth - 1; d >= 0; d-- {
		parent, i := p.steps[d].node, p.steps[d].kid
		switch {
		case n.size() == 0:
			parent.removeKid(i)
		case n.size() > most/4:
			return
		default:
			t.mergeKid(parent, i, most)
		}
		n, most = parent, maxKids
	}
	for !t.root.leaf() && len(t.root.kids) <= 1 {
		if len(t.root.kids) == 0 {
			t.root = &node{epoch: t.epoch}
			return
		}
		t.root = t.root.kids[0].node
	}
}

// mergeKid joins kid i of n, which is small, with a neighbour, if they fit into one node.
func (t *Tree) mergeKid(n *node, i, most int) {
	for _, i := range [2]int{i - 1, i} {
		if i < 0 || i+1 >= len(n.kids) {
			continue
		}
		low, high := &n.kids[i], &n.kids[i+1]
		if low.node.size()+high.node.size() > most {
			continue
		}
		low.node = t.own(low.node)
		low.node.merge(high.low, high.node)
		n.kids[i] = describe(low.low, low.node)
		n.removeKid(i + 1)
		return
	}
}

// Snapshot freezes the tree as it is. O(1).
func (t *Tree) Snapshot() Snapshot {
	s := t.Current()
	t.epoch++
	return s
}

// Current is the tree as it is, to be used until the next change of the tree and by the writer only.
func (t *Tree) Current() Snapshot { return Snapshot{root: t.root} }

// Compact removes, in the entries of at most most keys with garbage, from the key from on, what compaction at main
// revision at removes, and calls drop for each row. If there may be more, next is the key to go on from; otherwise
// it is nil.
func (t *Tree) Compact(from []byte, at int64, most int, drop func(backend.RowID)) (next []byte) {
	// The changes are made after the walk over a tree that they would change.
	todo := make([]*Entry, 0, most)
	it := t.Current().seek(from, walkGarbage, 0)
	for e := it.next(); e != nil; e = it.next() {
		if len(todo) == most {
			next = []byte(e.key)
			break
		}
		todo = append(todo, e)
	}
	for _, e := range todo {
		left := e.compact(at, drop)
		if left == e {
			continue
		}
		var p path
		t.find([]byte(e.key), &p)
		if left == nil {
			t.drop(&p, e)
		} else {
			t.store(&p, e, left)
		}
	}
	return next
}
