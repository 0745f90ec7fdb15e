package cache

import (
	"testing"

	"pgregory.net/rapid"
)

// The buffer against a slice that forgets nothing.
func TestRingBuffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(0, 7).Draw(t, "size")
		r := newRingBuffer[int](size)
		size = max(size, 1)
		var all []int // grows strictly
		first, last := 0, 0
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			if rapid.IntRange(0, 9).Draw(t, "what") == 0 {
				r.clear()
				first = len(all)
				continue
			}
			last += rapid.IntRange(1, 3).Draw(t, "step")
			dropped, full := r.push(last)
			all = append(all, last)
			if wantFull := len(all)-first > size; full != wantFull || full && dropped != all[first] {
				t.Fatalf("dropped %d %v", dropped, full)
			}
			first = max(first, len(all)-size)
		}
		if r.first() != uint64(first) || r.next != uint64(len(all)) {
			t.Fatalf("positions %d to %d, want %d to %d", r.first(), r.next, first, len(all))
		}
		for i := first; i < len(all); i++ {
			if got := r.at(uint64(i)); got != all[i] {
				t.Fatalf("at %d: %d, want %d", i, got, all[i])
			}
		}
		looked := rapid.IntRange(0, last+2).Draw(t, "looked for")
		want := first
		for want < len(all) && all[want] < looked {
			want++
		}
		if got := r.search(func(v int) bool { return v >= looked }); got != uint64(want) {
			t.Fatalf("search %d: %d, want %d", looked, got, want)
		}
	})
}
