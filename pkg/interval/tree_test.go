package interval

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// keys are short strings over three letters, the smallest byte among them, so that ranges often touch.
func keys() *rapid.Generator[[]byte] {
	return rapid.SliceOfN(rapid.SampledFrom([]byte{0, 'a', 'b'}), 0, 3)
}

func ranges() *rapid.Generator[Range] {
	return rapid.Custom(func(t *rapid.T) Range {
		switch begin := keys().Draw(t, "begin"); rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			return Point(begin)
		case 1:
			return Range{Begin: begin}
		default: // may be empty or upside down
			return Range{Begin: begin, End: keys().Draw(t, "end")}
		}
	})
}

// allKeys are all keys that keys can draw, and their successors: enough to tell any two ranges apart.
func allKeys() [][]byte {
	level := [][]byte{{}}
	all := [][]byte{{}}
	for range 4 {
		var next [][]byte
		for _, k := range level {
			for _, c := range []byte{0, 'a', 'b'} {
				next = append(next, append(slices.Clone(k), c))
			}
		}
		all = append(all, next...)
		level = next
	}
	return all
}

// model is the plain list that the tree is compared with.
type model []entry

type entry struct {
	Range
	v int
}

func (m model) find(r Range) int {
	return slices.IndexFunc(m, func(e entry) bool {
		return bytes.Equal(e.Begin, r.Begin) && bytes.Equal(e.End, r.End) && (e.End == nil) == (r.End == nil)
	})
}

// list runs a visiting function and writes down what it visits.
func list(visit func(func(Range, int) bool)) string {
	var b bytes.Buffer
	visit(func(r Range, v int) bool {
		fmt.Fprintf(&b, "%v=%d ", r, v)
		return true
	})
	return b.String()
}

// want is list for the entries of the model that pass.
func (m model) want(pass func(Range) bool) string {
	sorted := slices.Clone(m)
	slices.SortFunc(sorted, func(a, b entry) int { return compareRanges(a.Range, b.Range) })
	return list(func(visit func(Range, int) bool) {
		for _, e := range sorted {
			if pass(e.Range) {
				visit(e.Range, e.v)
			}
		}
	})
}

func TestModel(t *testing.T) {
	all := allKeys()
	rapid.Check(t, func(rt *rapid.T) {
		var tree Tree[int]
		var m model
		serial := 0
		rt.Repeat(map[string]func(*rapid.T){
			"insert": func(rt *rapid.T) {
				r := ranges().Draw(rt, "range")
				serial++
				old, replaced := tree.Insert(r, serial)
				i := m.find(r)
				if replaced != (i >= 0) || replaced && old != m[i].v {
					rt.Fatalf("insert of %v: %v, %v", r, old, replaced)
				}
				if i >= 0 {
					m[i].v = serial
				} else {
					m = append(m, entry{r, serial})
				}
			},
			"delete": func(rt *rapid.T) {
				r := ranges().Draw(rt, "range")
				if len(m) > 0 && rapid.Bool().Draw(rt, "present") {
					r = rapid.SampledFrom(m).Draw(rt, "which").Range
				}
				old, deleted := tree.Delete(r)
				i := m.find(r)
				if deleted != (i >= 0) || deleted && old != m[i].v {
					rt.Fatalf("delete of %v: %v, %v", r, old, deleted)
				}
				if i >= 0 {
					m = slices.Delete(m, i, i+1)
				}
			},
			"get": func(rt *rapid.T) {
				r := ranges().Draw(rt, "range")
				v, ok := tree.Get(r)
				if i := m.find(r); ok != (i >= 0) || ok && v != m[i].v {
					rt.Fatalf("get of %v: %v, %v", r, v, ok)
				}
			},
			"stab": func(rt *rapid.T) {
				key := keys().Draw(rt, "key")
				got := list(func(visit func(Range, int) bool) { tree.Stab(key, visit) })
				if want := m.want(func(r Range) bool { return r.Contains(key) }); got != want {
					rt.Fatalf("%q is in %s, want %s", key, got, want)
				}
			},
			"overlaps": func(rt *rapid.T) {
				q := ranges().Draw(rt, "range")
				got := list(func(visit func(Range, int) bool) { tree.Overlaps(q, visit) })
				want := m.want(func(r Range) bool {
					return slices.ContainsFunc(all, func(k []byte) bool { return r.Contains(k) && q.Contains(k) })
				})
				if got != want {
					rt.Fatalf("%v overlaps %s, want %s", q, got, want)
				}
			},
			"covers": func(rt *rapid.T) {
				q := ranges().Draw(rt, "range")
				want := !slices.ContainsFunc(all, func(k []byte) bool {
					return q.Contains(k) && !slices.ContainsFunc(m, func(e entry) bool { return e.Contains(k) })
				})
				if got := tree.Covers(q); got != want {
					rt.Fatalf("covers %v: %v, want %v, by %s", q, got, want, m.want(func(Range) bool { return true }))
				}
			},
			"": func(rt *rapid.T) {
				if tree.Len() != len(m) {
					rt.Fatalf("%d ranges, want %d", tree.Len(), len(m))
				}
				got := list(func(visit func(Range, int) bool) { tree.All()(visit) })
				if want := m.want(func(Range) bool { return true }); got != want {
					rt.Fatalf("all are %s, want %s", got, want)
				}
				check(rt, tree.root)
			},
		})
	})
}

// check walks the subtree and fails unless heights, balance and bounds are right.
func check[V any](t rapid.TB, n *node[V]) (height int8) {
	if n == nil {
		return 0
	}
	l, r := check(t, n.left), check(t, n.right)
	if d := l - r; d < -1 || d > 1 || n.height != 1+max(l, r) {
		t.Fatalf("%v has height %d over %d and %d", n.Range, n.height, l, r)
	}
	want := n.End
	for _, c := range []*node[V]{n.left, n.right} {
		if c != nil && compareEnds(c.maxEnd, want) > 0 {
			want = c.maxEnd
		}
	}
	if compareEnds(want, n.maxEnd) != 0 {
		t.Fatalf("%v has highest bound %q, want %q", n.Range, n.maxEnd, want)
	}
	return n.height
}

func TestVisitorsCanStop(t *testing.T) {
	var tree Tree[int]
	for i := range 50 {
		tree.Insert(Range{Begin: []byte{byte(i)}}, i)
	}
	for name, run := range map[string]func(func(Range, int) bool){
		"stab":     func(v func(Range, int) bool) { tree.Stab([]byte{200}, v) },
		"overlaps": func(v func(Range, int) bool) { tree.Overlaps(Range{}, v) },
		"all":      func(v func(Range, int) bool) { tree.All()(v) },
	} {
		var seen []int
		run(func(_ Range, v int) bool { seen = append(seen, v); return len(seen) < 3 })
		if !slices.Equal(seen, []int{0, 1, 2}) {
			t.Errorf("%s visited %v", name, seen)
		}
	}
}

func TestBounds(t *testing.T) {
	open, point := Range{Begin: []byte("b")}, Point([]byte("b"))
	for _, c := range []struct {
		r    Range
		key  string
		want bool
	}{
		{open, "a", false}, {open, "b", true}, {open, "\xff\xff\xff", true},
		{point, "b", true}, {point, "b\x00", false}, {point, "a", false}, {point, "", false},
		{Range{}, "", true}, {Range{End: []byte{}}, "", false},
		{Range{Begin: []byte("m"), End: []byte("c")}, "k", false},
	} {
		if got := c.r.Contains([]byte(c.key)); got != c.want {
			t.Errorf("%v contains %q: %v", c.r, c.key, got)
		}
	}
	key := []byte("shared")
	p := Point(key)
	key[0] = 'X'
	if string(p.Begin) != "shared" || cap(p.Begin) != len(p.Begin) {
		t.Errorf("a point must not share memory with its key: %v", p)
	}
}

// bench makes a tree of n ranges like those of watchers: most are a prefix, some are open, some are
// wide.
func bench(n int) (Tree[int], *rand.Rand) {
	rng := rand.New(rand.NewPCG(1, 2))
	var tree Tree[int]
	for i := range n {
		tree.Insert(benchRange(rng, n), i)
	}
	return tree, rng
}

func benchKey(rng *rand.Rand, n int) []byte {
	return binary.BigEndian.AppendUint64([]byte("/registry/"), uint64(rng.IntN(8*n)))
}

func benchRange(rng *rand.Rand, n int) Range {
	begin := benchKey(rng, n)
	end := slices.Clone(begin)
	end[len(end)-1]++
	return Range{Begin: begin, End: end}
}

func BenchmarkInsertDelete100k(b *testing.B) {
	b.ReportAllocs()
	tree, rng := bench(100_000)
	for b.Loop() {
		r := benchRange(rng, 100_000)
		if _, replaced := tree.Insert(r, 1); !replaced {
			tree.Delete(r)
		}
	}
}

func BenchmarkBuild100k(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		bench(100_000)
	}
}

func BenchmarkStab(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			tree, rng := bench(n)
			key, hits := benchKey(rng, n), 0
			visit := func(Range, int) bool { hits++; return true }
			for b.Loop() {
				key[len(key)-1]++
				tree.Stab(key, visit)
			}
		})
	}
}

func BenchmarkCovers100k(b *testing.B) {
	b.ReportAllocs()
	tree, rng := bench(100_000)
	for b.Loop() {
		tree.Covers(benchRange(rng, 100_000))
	}
}
