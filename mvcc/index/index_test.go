package index

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coordd/coordd/mvcc/backend"
)

// model is the index as a map from key to all its changes.
type model map[string][]backend.RowID

func (m model) clone() model {
	c := model{}
	for k, v := range m {
		c[k] = slices.Clone(v)
	}
	return c
}

func (m model) live(k string) bool {
	v := m[k]
	return len(v) > 0 && !v[len(v)-1].Tombstone
}

// at gives the keys in [from, to) that existed at main, with their rows. An empty to has no upper end.
func (m model) at(from, to string, main int64) (keys []string, rows []backend.Revision) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if k < from || to != "" && k >= to {
			continue
		}
		var last *backend.RowID
		for i := range m[k] {
			if m[k][i].Main <= main {
				last = &m[k][i]
			}
		}
		if last != nil && !last.Tombstone {
			keys, rows = append(keys, k), append(rows, last.Revision)
		}
	}
	return keys, rows
}

// compact removes by the rule as the package comment of mvcc states it, and gives the rows removed.
func (m model) compact(at int64) (gone []backend.RowID) {
	for k, v := range m {
		newest := -1
		for i, c := range v {
			if c.Main <= at {
				newest = i
			}
		}
		var left []backend.RowID
		for i, c := range v {
			if c.Main >= at || i == newest && !c.Tombstone {
				left = append(left, c)
			} else {
				gone = append(gone, c)
			}
		}
		if m[k] = left; len(left) == 0 {
			delete(m, k)
		}
	}
	slices.SortFunc(gone, func(a, b backend.RowID) int { return a.Compare(b.Revision) })
	return gone
}

// checkNode checks what branches say of their kids, the order, and the sizes.
func checkNode(t *rapid.T, n *node, root bool) {
	if n.full() {
		t.Fatalf("node of %d", n.size())
	}
	if n.size() == 0 && !root {
		t.Fatal("empty node")
	}
	for i := range n.entries {
		if i > 0 && n.entries[i-1].key >= n.entries[i].key {
			t.Fatal("entries out of order")
		}
	}
	if len(n.keys.parts) != n.size() {
		t.Fatalf("%d parts of %d keys", len(n.keys.parts), n.size())
	}
	for i := n.first(); i < n.size(); i++ {
		if k := n.key(i); !strings.HasPrefix(k, n.keys.prefix) || part(k, len(n.keys.prefix)) != n.keys.parts[i] {
			t.Fatalf("key %q with prefix %q has part %x", k, n.keys.prefix, n.keys.parts[i])
		}
	}
	for i := range n.kids {
		k := &n.kids[i]
		want := describe(k.low, k.node)
		if k.live != want.live || k.garbage != want.garbage || k.newest < want.newest {
			t.Fatalf("kid says %+v, is %+v", *k, want)
		}
		if i > 0 && (k.low <= n.kids[i-1].low && i > 1 || lowest(k.node) < k.low) {
			t.Fatal("kids out of order")
		}
		checkNode(t, k.node, false)
	}
}

func lowest(n *node) string {
	for !n.leaf() {
		n = n.kids[0].node
	}
	return n.entries[0].key
}

// checkSnapshot compares s with m in all that a reader can ask, at the present (if current is its revision) and at
// a random past revision.
func checkSnapshot(t *rapid.T, s Snapshot, m model, current, compacted int64) {
	from := rapid.SampledFrom([]string{"", "a", "k", "k000000000000001", "k02", "k0500\x00", "k99", "z"}).Draw(t, "from")
	to := rapid.SampledFrom([]string{"", "b", "k", "k00000000000000k", "k03", "k0510\x00", "k98", "zz"}).Draw(t, "to")
	end := []byte(to)
	if to == "" {
		end = nil
	}
	keys, rows := m.at(from, to, current)
	if n := s.Count([]byte(from), end); n != int64(len(keys)) {
		t.Fatalf("count [%q,%q) = %d, want %d", from, to, n, len(keys))
	}
	checkIter(t, s.Seek([]byte(from)), to, keys, rows)
	main := rapid.Int64Range(max(compacted, 0), current).Draw(t, "main")
	keys, rows = m.at(from, to, main)
	if n := s.CountAt([]byte(from), end, main); n != int64(len(keys)) {
		t.Fatalf("count [%q,%q) at %d = %d, want %d", from, to, main, n, len(keys))
	}
	checkIter(t, s.SeekAt([]byte(from), main), to, keys, rows)
	if all, _ := m.at("", "", current); s.Live() != int64(len(all)) {
		t.Fatalf("live = %d, want %d", s.Live(), len(all))
	}
}

func checkIter(t *rapid.T, it Iter, to string, keys []string, rows []backend.Revision) {
	for i := 0; ; i++ {
		e, rev := it.Next()
		if e == nil || to != "" && e.Key() >= to {
			if i < len(keys) {
				t.Fatalf("iteration ends before %q", keys[i])
			}
			return
		}
		if i >= len(keys) || e.Key() != keys[i] || rev != rows[i] {
			t.Fatalf("iteration gives %q %v at %d of %v %v", e.Key(), rev, i, keys, rows)
		}
	}
}

// writer is a tree with its model.
type writer struct {
	tree      *Tree
	m         model
	main      int64
	compacted int64
}

func (w *writer) put(t *rapid.T, key string, rev backend.Revision) {
	live := w.m.live(key)
	before, after := w.tree.Put([]byte(key), rev, rev.Main*10)
	if (before != nil) != (len(w.m[key]) > 0) || before != nil && before.Live() != live {
		t.Fatalf("put %q: before = %+v", key, before)
	}
	version, create := int64(1), rev.Main
	if live {
		version, create = before.Version()+1, before.Create()
	}
	if after.Version() != version || after.Create() != create || after.Lease() != rev.Main*10 || after.Rev() != rev || after.Key() != key {
		t.Fatalf("put %q at %v: %+v", key, rev, after)
	}
	w.m[key] = append(w.m[key], backend.RowID{Revision: rev})
}

func (w *writer) del(t *rapid.T, key string, rev backend.Revision) {
	live := w.m.live(key)
	if _, ok := w.tree.Delete([]byte(key), rev); ok != live {
		t.Fatalf("delete %q: %v", key, ok)
	}
	if live {
		w.m[key] = append(w.m[key], backend.RowID{Revision: rev, Tombstone: true})
	}
}

func (w *writer) compact(t *rapid.T, at int64, step int) {
	var gone []backend.RowID
	drop := func(id backend.RowID) { gone = append(gone, id) }
	for from := w.tree.Compact(nil, at, step, drop); from != nil; {
		from = w.tree.Compact(from, at, step, drop)
	}
	slices.SortFunc(gone, func(a, b backend.RowID) int { return a.Compare(b.Revision) })
	if want := w.m.compact(at); !slices.Equal(gone, want) {
		t.Fatalf("compact at %d drops %v, want %v", at, gone, want)
	}
	w.compacted = at
}

// frozen is a snapshot with what it must go on to show.
type frozen struct {
	s               Snapshot
	m               model
	main, compacted int64
}

func TestTreeAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &writer{tree: new(Tree), m: model{}, main: 1, compacted: -1}
		space := rapid.SampledFrom([]int{3, 60, 2000}).Draw(t, "keys")
		key := rapid.Custom(func(t *rapid.T) string {
			k := fmt.Sprintf("k%04d", rapid.IntRange(0, space).Draw(t, "key"))
			// Also keys that differ after more bytes than a part has, in zeros at the end, and in the prefix.
			return rapid.SampledFrom([]string{"", "", "k00000000000000", "a"}).Draw(t, "before") + k +
				rapid.SampledFrom([]string{"", "", "\x00", "\x00\x00", "\xff"}).Draw(t, "after")
		})
		var old []frozen
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0, 1, 2, 3: // one transaction
				w.main++
				for sub := range rapid.IntRange(1, 5).Draw(t, "changes") {
					rev := backend.Revision{Main: w.main, Sub: int64(sub)}
					if rapid.Bool().Draw(t, "put") {
						w.put(t, key.Draw(t, "k"), rev)
					} else {
						w.del(t, key.Draw(t, "k"), rev)
					}
				}
			case 4, 5: // many keys in a row
				start, n := rapid.IntRange(0, space).Draw(t, "start"), rapid.IntRange(1, 300).Draw(t, "n")
				put := rapid.Bool().Draw(t, "put")
				for i := start; i < min(start+n, space); i++ {
					w.main++
					if rev := (backend.Revision{Main: w.main}); put {
						w.put(t, fmt.Sprintf("k%04d", i), rev)
					} else {
						w.del(t, fmt.Sprintf("k%04d", i), rev)
					}
				}
			case 6:
				old = append(old, frozen{w.tree.Snapshot(), w.m.clone(), w.main, w.compacted})
			case 7:
				if at := rapid.Int64Range(0, w.main).Draw(t, "at"); at > w.compacted {
					w.compact(t, at, rapid.IntRange(1, 50).Draw(t, "step"))
				}
			case 8:
				w.rebuild(t)
			case 9:
				k := key.Draw(t, "k")
				if e := w.tree.Current().Get([]byte(k)); (e != nil) != (len(w.m[k]) > 0) || e != nil && (e.Live() != w.m.live(k) || e.Changes() != len(w.m[k])) {
					t.Fatalf("get %q: %+v, want %v", k, e, w.m[k])
				}
			}
			if w.tree.root != nil {
				checkNode(t, w.tree.root, true)
			}
			checkSnapshot(t, w.tree.Current(), w.m, w.main, w.compacted)
		}
		for _, f := range old {
			checkSnapshot(t, f.s, f.m, f.main, f.compacted)
		}
	})
}

// rebuild replaces the tree by one built from the rows of the model.
func (w *writer) rebuild(t *rapid.T) {
	parts := []*Builder{{}}
	for _, k := range slices.Sorted(maps.Keys(w.m)) {
		if rapid.IntRange(0, 50).Draw(t, "part") == 50 {
			parts = append(parts, &Builder{})
		}
		b := parts[len(parts)-1]
		e := w.tree.Current().Get([]byte(k))
		for _, id := range w.m[k] {
			c := Change{Key: []byte(k), RowID: id}
			if id.Revision == e.Rev() && e.Live() {
				c.Create, c.Version, c.Lease = e.Create(), e.Version(), e.Lease()
			}
			b.Add(c)
		}
	}
	old := w.tree.Current()
	w.tree = Build(parts...)
	for k := range w.m {
		a, z := old.Get([]byte(k)), w.tree.Current().Get([]byte(k))
		if z == nil || z.last != a.last || z.create != a.create || z.version != a.version || z.lease != a.lease || !slices.Equal(z.older, a.older) {
			t.Fatalf("built %+v from %+v", z, a)
		}
	}
}

// Ten thousand keys put and deleted leave, after compaction, an empty tree and no old nodes.
func TestTreeShrinks(t *testing.T) {
	var tree Tree
	const n = 10000
	main := int64(1)
	for i := range n {
		main++
		tree.Put(fmt.Appendf(nil, "%05d", i*7919%n), backend.Revision{Main: main}, 0)
	}
	for i := range n {
		main++
		if _, ok := tree.Delete(fmt.Appendf(nil, "%05d", i), backend.Revision{Main: main}); !ok {
			t.Fatal(i)
		}
	}
	dropped := 0
	for from := tree.Compact(nil, main+1, 100, func(backend.RowID) { dropped++ }); from != nil; {
		from = tree.Compact(from, main+1, 100, func(backend.RowID) { dropped++ })
	}
	if dropped != 2*n || !tree.root.leaf() || tree.root.size() != 0 {
		t.Fatalf("dropped %d, root of %d", dropped, tree.root.size())
	}
}

func TestRetained(t *testing.T) {
	var tree Tree
	put := func(main, sub int64) { tree.Put([]byte("k"), backend.Revision{Main: main, Sub: sub}, 0) }
	put(2, 0)
	put(3, 0)
	tree.Delete([]byte("k"), backend.Revision{Main: 5})
	put(5, 1)
	tree.Delete([]byte("k"), backend.Revision{Main: 7})
	put(9, 0)
	for _, c := range []struct {
		at   int64
		want []int64 // main*10+sub of what is left
	}{
		{2, []int64{20, 30, 50, 51, 70, 90}},
		{4, []int64{30, 50, 51, 70, 90}},
		{5, []int64{50, 51, 70, 90}},
		{6, []int64{51, 70, 90}},
		{7, []int64{70, 90}},
		{8, []int64{90}},
		{10, []int64{90}},
	} {
		e := tree.Current().Get([]byte("k"))
		var left, dropped []int64
		for _, x := range append(slices.Clone(e.older), e.last) {
			if e.Retained(x.row(), c.at) {
				left = append(left, x.main*10+int64(x.sub))
			}
		}
		if !slices.Equal(left, c.want) {
			t.Errorf("retained at %d: %v, want %v", c.at, left, c.want)
		}
		after := e.compact(c.at, func(id backend.RowID) { dropped = append(dropped, id.Main*10+id.Sub) })
		left = nil
		for _, x := range append(slices.Clone(after.older), after.last) {
			left = append(left, x.main*10+int64(x.sub))
		}
		if !slices.Equal(left, c.want) || len(left)+len(dropped) != 6 {
			t.Errorf("compact at %d leaves %v and drops %v, want %v", c.at, left, dropped, c.want)
		}
	}
}

// A key with many versions is looked up at a past revision by halving, and old entries keep what they saw.
func TestHotKey(t *testing.T) {
	var tree Tree
	var entries []*Entry
	for main := int64(2); main < 5000; main++ {
		_, e := tree.Put([]byte("hot"), backend.Revision{Main: main}, 0)
		if main%500 == 0 {
			tree.Snapshot()
			entries = append(entries, e)
		}
	}
	for _, e := range entries {
		if e.Changes() != int(e.Rev().Main)-1 {
			t.Fatalf("entry at %v has %d changes", e.Rev(), e.Changes())
		}
		for main := int64(2); main <= e.Rev().Main; main += 37 {
			if rev, ok := e.At(main); !ok || rev.Main != main {
				t.Fatalf("at %d: %v %v", main, rev, ok)
			}
		}
		if _, ok := e.At(1); ok {
			t.Fatal("existed before it was put")
		}
	}
	if i := slices.IndexFunc(entries, func(e *Entry) bool { return cmp.Compare(e.Version(), 1) < 0 }); i >= 0 {
		t.Fatal(i)
	}
}
