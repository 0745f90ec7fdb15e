package watch

import "github.com/coordd/coordd/pkg/interval"

// index finds the watchers of a key. The hub has one of all its watchers, guarded by Hub.mu; a catch-up
// pass makes one of its own. The zero value is empty and ready for use.
type index struct {
	keys   map[string]*group
	ranges interval.Tree[*group]
}

// group is the watchers of one and the same key or range, in no order.
type group struct{ watchers []*watcher }

// add puts w in and returns its place in its group, for remove.
func (x *index) add(w *watcher) int {
	var g *group
	if w.single {
		if g = x.keys[string(w.keys.Begin)]; g == nil {
			if x.keys == nil {
				x.keys = make(map[string]*group)
			}
			g = new(group)
			x.keys[string(w.keys.Begin)] = g
		}
	} else {
		var ok bool
		if g, ok = x.ranges.Get(w.keys); !ok {
			g = new(group)
			x.ranges.Insert(w.keys, g)
		}
	}
	g.watchers = append(g.watchers, w)
	return len(g.watchers) - 1
}

// remove takes out w, which is at w.place. The last watcher of its group moves there.
func (x *index) remove(w *watcher) {
	var g *group
	if w.single {
		g = x.keys[string(w.keys.Begin)]
	} else {
		g, _ = x.ranges.Get(w.keys)
	}
	last := len(g.watchers) - 1
	moved := g.watchers[last]
	g.watchers[w.place], g.watchers[last] = moved, nil
	moved.place = w.place
	g.watchers = g.watchers[:last]
	if last > 0 {
		return
	}
	if w.single {
		delete(x.keys, string(w.keys.Begin))
	} else {
		x.ranges.Delete(w.keys)
	}
}

// match calls visit for each watcher whose keys include key.
func (x *index) match(key []byte, visit func(*watcher)) {
	if g := x.keys[string(key)]; g != nil {
		for _, w := range g.watchers {
			visit(w)
		}
	}
	if x.ranges.Len() == 0 {
		return
	}
	x.ranges.Stab(key, func(_ interval.Range, g *group) bool {
		for _, w := range g.watchers {
			visit(w)
		}
		return true
	})
}
