package index

import (
	"strings"

	"github.com/coordd/coordd/mvcc/backend"
)

const (
	// slabSize is how many bytes of keys share one allocation when an index is built. It is small since a slab
	// lives as long as any of its keys.
	slabSize = 2 << 10
	// fill is how many entries a leaf gets, or kids a branch: there is room for what comes between.
	fillEntries = maxEntries * 7 / 8
	fillKids    = maxKids * 7 / 8
)

// Change is one row, as given to a [Builder].
type Change struct {
	Key []byte
	backend.RowID
	// Of a put: what its row says.
	Create, Version, Lease int64
}

// Builder makes a part of a tree from rows in the order of their keys, and of their revisions within a key; see
// [Build]. Several builders may work at the same time. The zero value is ready.
type Builder struct {
	slab    strings.Builder
	leaves  []kid
	leaf    *node
	pending Change // the newest of the present key
	older   []change
	any     bool
}

// Add adds the next row. The key is not kept.
func (b *Builder) Add(c Change) {
	if b.any && string(b.pending.Key) == string(c.Key) {
		b.older = append(b.older, pack(b.pending.Revision, b.pending.Tombstone))
	} else {
		b.flush()
	}
	b.pending, b.any = c, true
}

// flush makes the entry of the present key.
func (b *Builder) flush() {
	if !b.any {
		return
	}
	p := &b.pending
	e := &Entry{key: b.intern(p.Key), last: pack(p.Revision, p.Tombstone), create: p.Create, version: p.Version, lease: p.Lease}
	if len(b.older) > 0 {
		e.older = append([]change(nil), b.older...)
		b.older = b.older[:0]
	}
	if b.leaf == nil || len(b.leaf.entries) == fillEntries {
		b.endLeaf()
		b.leaf = &node{entries: make([]*Entry, 0, fillEntries)}
	}
	b.leaf.entries = append(b.leaf.entries, e)
}

func (b *Builder) endLeaf() {
	if b.leaf != nil {
		b.leaf.reindex()
		b.leaves = append(b.leaves, describe(b.leaf.entries[0].key, b.leaf))
	}
}

// intern copies a key into a slab.
func (b *Builder) intern(key []byte) string {
	if len(key) > slabSize/8 {
		return string(key)
	}
	if b.slab.Cap()-b.slab.Len() < len(key) {
		b.slab = strings.Builder{}
		b.slab.Grow(slabSize)
	}
	at := b.slab.Len()
	b.slab.Write(key)
	return b.slab.String()[at:]
}

// Build ends the building and gives the tree of all rows added to parts, whose keys are in the order of the parts.
// The builders must not be used any more.
func Build(parts ...*Builder) *Tree {
	var level []kid
	for _, b := range parts {
		b.flush()
		b.endLeaf()
		level = append(level, b.leaves...)
	}
	for len(level) > 1 {
		var above []kid
		for len(level) > 0 {
			n := min(len(level), fillKids)
			branch := &node{kids: append([]kid(nil), level[:n]...)}
			branch.reindex()
			above = append(above, describe(level[0].low, branch))
			level = level[n:]
		}
		level = above
	}
	if len(level) == 0 {
		return new(Tree)
	}
	return &Tree{root: level[0].node}
}
