package idutil

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestLayout(t *testing.T) {
	g := New(0x1234, time.UnixMilli(0x0a_bc_de_f0_12_34))
	// The sixth byte of the time does not fit and is cut off; the counter starts at 1.
	if got, want := g.Next(), uint64(0x1234_bcdef01234_01); got != want {
		t.Errorf("first id %016x, want %016x", got, want)
	}
	for range 255 {
		g.Next()
	}
	if got, want := g.Next(), uint64(0x1234_bcdef01235_01); got != want {
		t.Errorf("id 257 is %016x, want %016x: the counter overflows into the time", got, want)
	}
}

func TestOverflowLeavesTheMember(t *testing.T) {
	g := New(7, time.UnixMilli(1<<40-1)) // all ones: the next overflow of the counter wraps the time
	for range 600 {
		if id := g.Next(); id>>48 != 7 {
			t.Fatalf("id %016x belongs to member %x", id, id>>48)
		}
	}
}

// TestRunsAndMembersDiffer draws ids of a few runs of a few members; none may come twice.
func TestRunsAndMembersDiffer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seen := map[uint64]bool{}
		start := time.UnixMilli(rapid.Int64Range(0, 1<<41).Draw(rt, "start"))
		for _, member := range rapid.SliceOfNDistinct(rapid.Uint16(), 1, 4, rapid.ID).Draw(rt, "members") {
			now := start
			for range 3 {
				g := New(member, now)
				n := rapid.IntRange(1, 1000).Draw(rt, "ids")
				for range n {
					id := g.Next()
					if seen[id] {
						rt.Fatalf("%016x came twice", id)
					}
					seen[id] = true
				}
				now = now.Add(time.Duration(n/256+1) * time.Millisecond) // as long as so many ids take at full speed
			}
		}
	})
}

func TestConcurrent(t *testing.T) {
	g := New(1, time.UnixMilli(1))
	const workers, each = 8, 5000
	lists := make([][]uint64, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range each {
				lists[w] = append(lists[w], g.Next())
			}
		})
	}
	wg.Wait()
	seen := make(map[uint64]bool, workers*each)
	for _, l := range lists {
		for _, id := range l {
			seen[id] = true
		}
	}
	if len(seen) != workers*each {
		t.Errorf("%d different ids of %d", len(seen), workers*each)
	}
}

func BenchmarkNext(b *testing.B) {
	b.ReportAllocs()
	g := New(1, time.UnixMilli(1))
	for b.Loop() {
		g.Next()
	}
}

func BenchmarkNextParallel(b *testing.B) {
	g := New(1, time.UnixMilli(1))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			g.Next()
		}
	})
}
