package interval

// This file keeps the tree balanced: in every node the heights of the two subtrees differ by at
// most one.

// levels is the height of a subtree that may be empty.
func (n *node[V]) levels() int8 {
	if n == nil {
		return 0
	}
	return n.height
}

// update recomputes what n knows of its subtree from its children, which must be up to date.
func (n *node[V]) update() {
	n.height = 1 + max(n.left.levels(), n.right.levels())
	n.maxEnd = n.End
	for _, c := range [2]*node[V]{n.left, n.right} {
		if c != nil && compareEnds(c.maxEnd, n.maxEnd) > 0 {
			n.maxEnd = c.maxEnd
		}
	}
}

// balance restores the balance of n after one of its balanced subtrees grew or shrank by one level,
// and returns the node now on top.
func (n *node[V]) balance() *node[V] {
	n.update()
	switch d := n.left.levels() - n.right.levels(); {
	case d > 1:
		if n.left.left.levels() < n.left.right.levels() {
			n.left = n.left.rotateLeft()
		}
		return n.rotateRight()
	case d < -1:
		if n.right.right.levels() < n.right.left.levels() {
			n.right = n.right.rotateRight()
		}
		return n.rotateLeft()
	}
	return n
}

// rotateRight puts the left child on top, keeping the order of the ranges.
func (n *node[V]) rotateRight() *node[V] {
	top := n.left
	n.left, top.right = top.right, n
	n.update()
	top.update()
	return top
}

// rotateLeft puts the right child on top, keeping the order of the ranges.
func (n *node[V]) rotateLeft() *node[V] {
	top := n.right
	n.right, top.left = top.left, n
	n.update()
	top.update()
	return top
}
