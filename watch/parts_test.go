package watch

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRing compares the ring with a list, and checks that slices it handed out stay as they were.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := ring{limit: rapid.IntRange(1, 3000).Draw(t, "limit")}
		r.reset(1)
		var all []*event
		rev := int64(0)
		type view struct{ got, copied []*event }
		var views []view
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				var batch []*event
				for range rapid.IntRange(0, 20).Draw(t, "revisions") {
					rev++
					for range rapid.IntRange(1, 3).Draw(t, "events") {
						batch = append(batch, &event{rev: rev, wire: make([]byte, rapid.IntRange(0, 200).Draw(t, "size"))})
					}
				}
				all = append(all, batch...)
				r.add(batch)
			},
			"read": func(t *rapid.T) {
				from := rapid.Int64Range(r.first, rev+1).Draw(t, "from")
				to := rapid.Int64Range(from-1, rev+1).Draw(t, "to")
				got := r.between(from, to)
				var want []*event
				for _, e := range all {
					if from <= e.rev && e.rev <= to {
						want = append(want, e)
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("between %d and %d: %d events, want %d", from, to, len(got), len(want))
				}
				views = append(views, view{got, slices.Clone(got)})
			},
			"": func(t *rapid.T) {
				bytes := 0
				for _, e := range r.all[r.start:] {
					bytes += e.size()
				}
				if bytes != r.bytes || bytes > r.limit {
					t.Fatalf("%d bytes, counted %d, limit %d", bytes, r.bytes, r.limit)
				}
				if r.given > r.limit && len(r.all) > r.start {
					t.Fatalf("%d bytes that were given up are still held, the limit is %d", r.given, r.limit)
				}
				for _, v := range views {
					if !slices.Equal(v.got, v.copied) {
						t.Fatal("a slice that was handed out has changed")
					}
				}
			},
		})
	})
}

// TestIndex compares the index with a walk over all watchers.
func TestIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x index
		var all []*watcher
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				o := CreateOptions{
					Key: []byte(rapid.StringMatching("[ab]{0,2}").Draw(t, "key")),
					End: []byte(rapid.SampledFrom([]string{"", "\x00", "b", "c"}).Draw(t, "end")),
				}
				w := newWatcher(nil, int64(len(all)), o)
				w.place = x.add(w)
				all = append(all, w)
			},
			"remove": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip("no watcher")
				}
				i := rapid.IntRange(0, len(all)-1).Draw(t, "watcher")
				x.remove(all[i])
				all = slices.Delete(all, i, i+1)
			},
			"match": func(t *rapid.T) {
				key := rapid.StringMatching("[abc]{1,2}").Draw(t, "key")
				got := map[*watcher]int{}
				x.match([]byte(key), func(w *watcher) { got[w]++ })
				n := 0
				for _, w := range all {
					in := w.keys.Contains([]byte(key))
					if w.single {
						in = string(w.keys.Begin) == key
					}
					if in != (got[w] == 1) {
						t.Fatalf("watcher of %v: %d times for key %q", w.keys, got[w], key)
					}
					n += got[w]
				}
				if n != len(got) {
					t.Fatalf("%d matches of %d watchers", n, len(got))
				}
			},
			"": func(t *rapid.T) {
				if len(all) == 0 && (len(x.keys) > 0 || x.ranges.Len() > 0) {
					t.Fatal("an index without watchers is not empty")
				}
			},
		})
	})
}
