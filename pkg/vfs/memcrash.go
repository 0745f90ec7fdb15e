package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Crash returns what the disk holds after a power cut at this moment: all that
// was synced, and of the rest what r chooses (nothing when r is nil). The
// result is independent of m, holds no locks, and regards all it holds as
// durable. m stays usable, so that one history can be cut in many ways.
func (m *Mem) Crash(r *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	copies := make(map[*memData]*memData)
	return &Mem{
		root: crashDir(m.root, r, func(d *memData) *memData {
			if _, ok := copies[d]; !ok {
				copies[d] = d.afterCrash(r)
			}
			return copies[d]
		}),
		locks: make(map[string]struct{}),
	}
}

// Kill returns what the next process sees after this one was killed: all that
// was written, synced or not, and no locks. What was not durable still is not.
func (m *Mem) Kill() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	copies := make(map[any]any)
	return &Mem{root: killCopy(m.root, copies).(*memDir), locks: make(map[string]struct{})}
}

// crashDir rebuilds a directory from its durable names and a choice of the
// changes since: a prefix of them, as a journal would keep, or any subset.
func crashDir(d *memDir, r *rand.Rand, file func(*memData) *memData) *memDir {
	names := maps.Clone(d.durable)
	if r != nil && len(d.changes) > 0 {
		prefix := r.IntN(len(d.changes) + 1)
		anySubset := r.IntN(2) == 0
		for i, c := range d.changes {
			if keep := i < prefix; anySubset && r.IntN(2) == 0 || !anySubset && keep {
				applyChange(names, c)
			}
		}
	}
	out := newMemDir()
	for _, name := range slices.Sorted(maps.Keys(names)) { // in order: r must be used the same way each time
		switch n := names[name].(type) {
		case *memDir:
			out.names[name] = crashDir(n, r, file)
		case *memData:
			out.names[name] = file(n)
		}
	}
	out.durable = maps.Clone(out.names)
	return out
}

// killCopy copies a node with everything remembered about it. copies keeps
// one copy per node, since names and changes refer to the same nodes.
func killCopy(node any, copies map[any]any) any {
	if c, ok := copies[node]; ok {
		return c
	}
	switch n := node.(type) {
	case *memData:
		c := n.clone()
		copies[node] = c
		return c
	case *memDir:
		c := newMemDir()
		copies[node] = c
		for name, child := range n.names {
			c.names[name] = killCopy(child, copies)
		}
		for name, child := range n.durable {
			c.durable[name] = killCopy(child, copies)
		}
		for _, ch := range n.changes {
			if ch.node != nil {
				ch.node = killCopy(ch.node, copies)
			}
			c.changes = append(c.changes, ch)
		}
		return c
	}
	return nil
}
