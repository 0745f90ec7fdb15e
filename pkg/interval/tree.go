// Package interval is a map from key ranges to values that answers which ranges hold a key. The watch
// hub keeps watchers of ranges in one, the auth store the ranges that a user may read or write.
//
// # Structure
//
// [Tree] is an AVL tree (Adelson-Velsky and Landis, 1962) of distinct [Range] values, ordered by
// first key and then by bound, in which each node also knows the highest bound in its subtree, as
// in Cormen et al., Introduction to Algorithms, section 14.3. A subtree whose highest bound is not
// above a key cannot hold a range with that key, and ranges right of one that begins behind the key
// cannot either; so a search goes only where answers are.
//
//	Insert, Delete, Get   O(log n)
//	Stab, Overlaps        O(k log n) at worst for k answers, in practice near log n + k
//	Covers                O(s log n) for the s ranges needed to get from one end to the other
//
// # Use
//
// One range has one value: callers with several owners of one range keep them together in V. A tree
// is not safe for concurrent use, except that any number of goroutines may read while none writes.
// The tree keeps the byte slices it is given; nobody may change them afterwards. Visitors must not
// change the tree.
package interval

import (
	"bytes"
	"iter"
)

// Tree maps ranges to values. The zero value is an empty tree, ready to use.
type Tree[V any] struct {
	root *node[V]
	size int
}

// node is a range with its value, at the top of a subtree.
type node[V any] struct {
	Range
	value       V
	left, right *node[V]
	maxEnd      []byte // highest bound in the subtree; nil: no bound
	height      int8   // levels of the subtree; 64 would need more nodes than fit in memory
}

// Len counts the ranges in the tree.
func (t *Tree[V]) Len() int { return t.size }

// Insert sets the value of r. If r was there already, its former value is returned with true. An
// empty range may be stored like any other; it holds no key and no search finds it.
func (t *Tree[V]) Insert(r Range, v V) (old V, replaced bool) {
	t.root = t.insert(t.root, r, v, &old, &replaced)
	if !replaced {
		t.size++
	}
	return old, replaced
}

func (t *Tree[V]) insert(n *node[V], r Range, v V, old *V, replaced *bool) *node[V] {
	if n == nil {
		return &node[V]{Range: r, value: v, maxEnd: r.End, height: 1}
	}
	switch c := compareRanges(r, n.Range); {
	case c < 0:
		n.left = t.insert(n.left, r, v, old, replaced)
	case c > 0:
		n.right = t.insert(n.right, r, v, old, replaced)
	default:
		*old, *replaced = n.value, true
		n.value = v
		return n
	}
	return n.balance()
}

// Delete removes r, the very same range, and returns the value it had; false if it is not in the tree.
func (t *Tree[V]) Delete(r Range) (old V, deleted bool) {
	t.root = t.delete(t.root, r, &old, &deleted)
	if deleted {
		t.size--
	}
	return old, deleted
}

func (t *Tree[V]) delete(n *node[V], r Range, old *V, deleted *bool) *node[V] {
	if n == nil {
		return nil
	}
	switch c := compareRanges(r, n.Range); {
	case c < 0:
		n.left = t.delete(n.left, r, old, deleted)
	case c > 0:
		n.right = t.delete(n.right, r, old, deleted)
	default:
		*old, *deleted = n.value, true
		if n.left == nil {
			return n.right
		}
		if n.right == nil {
			return n.left
		}
		// The next range in order takes the place of the one that goes.
		rest, next := n.right.takeFirst()
		next.left, next.right = n.left, rest
		n = next
	}
	return n.balance()
}

// takeFirst splits the subtree into its first node and the rest.
func (n *node[V]) takeFirst() (rest, first *node[V]) {
	if n.left == nil {
		return n.right, n
	}
	n.left, first = n.left.takeFirst()
	return n.balance(), first
}

// Get returns the value of r, the very same range.
func (t *Tree[V]) Get(r Range) (v V, ok bool) {
	for n := t.root; n != nil; {
		switch c := compareRanges(r, n.Range); {
		case c < 0:
			n = n.left
		case c > 0:
			n = n.right
		default:
			return n.value, true
		}
	}
	return v, false
}

// Stab calls visit for every range that contains key, in order of first key and bound, until visit
// returns false.
func (t *Tree[V]) Stab(key []byte, visit func(Range, V) bool) { t.root.stab(key, visit) }

func (n *node[V]) stab(key []byte, visit func(Range, V) bool) bool {
	if n == nil || !endAbove(n.maxEnd, key) {
		return true
	}
	if !n.left.stab(key, visit) {
		return false
	}
	if bytes.Compare(n.Begin, key) > 0 {
		return true // all to the right begin behind the key too
	}
	if endAbove(n.End, key) && !visit(n.Range, n.value) {
		return false
	}
	return n.right.stab(key, visit)
}

// Overlaps calls visit for every range that shares a key with r, in order of first key and bound,
// until visit returns false.
func (t *Tree[V]) Overlaps(r Range, visit func(Range, V) bool) {
	if !r.Empty() {
		t.root.overlaps(r, visit)
	}
}

func (n *node[V]) overlaps(r Range, visit func(Range, V) bool) bool {
	if n == nil || !endAbove(n.maxEnd, r.Begin) {
		return true
	}
	if !n.left.overlaps(r, visit) {
		return false
	}
	if !endAbove(r.End, n.Begin) {
		return true // all to the right begin behind r too
	}
	if n.Range.Overlaps(r) && !visit(n.Range, n.value) {
		return false
	}
	return n.right.overlaps(r, visit)
}

// Covers reports whether every key of r is in some range of the tree, be it in one or in several that
// meet. An empty r is always covered.
func (t *Tree[V]) Covers(r Range) bool {
	// Every key before reached is covered. The range that begins no later than reached and goes
	// furthest takes us on; if none goes further, the key reached itself is not covered.
	reached := r.Begin
	for endAbove(r.End, reached) {
		end, ok := t.root.furthest(reached)
		if !ok || !endAbove(end, reached) {
			return false
		}
		if end == nil {
			return true
		}
		reached = end
	}
	return true
}

// furthest returns the highest bound among the ranges of the subtree that begin at key or before;
// false if there is none.
func (n *node[V]) furthest(key []byte) (end []byte, ok bool) {
	take := func(e []byte) {
		if !ok || compareEnds(e, end) > 0 {
			end, ok = e, true
		}
	}
	for n != nil {
		if bytes.Compare(n.Begin, key) > 0 {
			n = n.left
			continue
		}
		take(n.End)
		if n.left != nil { // begins no later than n, so all of it counts
			take(n.left.maxEnd)
		}
		n = n.right
	}
	return end, ok
}

// All yields every range with its value, in order of first key and bound.
func (t *Tree[V]) All() iter.Seq2[Range, V] {
	return func(yield func(Range, V) bool) { t.root.all(yield) }
}

func (n *node[V]) all(yield func(Range, V) bool) bool {
	return n == nil || n.left.all(yield) && yield(n.Range, n.value) && n.right.all(yield)
}
