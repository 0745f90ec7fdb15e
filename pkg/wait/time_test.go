package wait

import (
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestWaitTime(t *testing.T) {
	w := NewWaitTime()
	if !closed(w.Wait(0)) {
		t.Error("0 has passed from the start")
	}
	five, seven, six := w.Wait(5), w.Wait(7), w.Wait(6)
	if w.Wait(5) != five {
		t.Error("waiters of one deadline must share a channel")
	}
	w.Trigger(6)
	if !closed(five) || !closed(six) || closed(seven) {
		t.Errorf("after 6: five %v, six %v, seven %v", closed(five), closed(six), closed(seven))
	}
	if w.Wait(6) != w.Wait(3) || !closed(w.Wait(6)) {
		t.Error("deadlines that have passed must share one closed channel")
	}
	w.Trigger(4) // never back
	if w.Last() != 6 || closed(w.Wait(7)) {
		t.Errorf("the clock stands at %d", w.Last())
	}
	w.Trigger(1 << 63)
	if !closed(seven) {
		t.Error("7 was not woken by a later time")
	}
}

func TestPassedWaitDoesNotAllocate(t *testing.T) {
	w := NewWaitTime()
	w.Trigger(100)
	if n := testing.AllocsPerRun(100, func() { <-w.Wait(99) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestWaitTimeModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := NewWaitTime()
		last := uint64(0)
		waiters := map[uint64]<-chan struct{}{}
		deadline := rapid.Uint64Range(0, 40)
		rt.Repeat(map[string]func(*rapid.T){
			"wait": func(rt *rapid.T) {
				d := deadline.Draw(rt, "deadline")
				ch := w.Wait(d)
				if old := waiters[d]; old != nil && d > last && old != ch {
					rt.Fatalf("two channels for %d", d)
				}
				waiters[d] = ch
			},
			"trigger": func(rt *rapid.T) {
				d := deadline.Draw(rt, "deadline")
				w.Trigger(d)
				last = max(last, d)
			},
			"": func(rt *rapid.T) {
				for d, ch := range waiters {
					if closed(ch) != (d <= last) {
						rt.Fatalf("at %d the waiter of %d is woken: %v", last, d, closed(ch))
					}
				}
				if len(w.pending) > 40 || w.Last() != last {
					rt.Fatalf("%d pending at %d, want the clock at %d", len(w.pending), w.Last(), last)
				}
			},
		})
	})
}

// TestWaitTimeConcurrent has readers wait for an index that is on its way; none may be missed.
func TestWaitTimeConcurrent(t *testing.T) {
	const end = 20_000
	w := NewWaitTime()
	var wg sync.WaitGroup
	for r := range uint64(4) {
		wg.Go(func() {
			for d := r; d <= end; d += 7 {
				<-w.Wait(d)
				if w.Last() < d {
					t.Errorf("woken for %d at %d", d, w.Last())
				}
			}
		})
	}
	for i := range uint64(end + 1) {
		w.Trigger(i)
	}
	wg.Wait()
	if len(w.pending) != 0 {
		t.Errorf("%d deadlines left", len(w.pending))
	}
}

func BenchmarkWaitTimePassed(b *testing.B) {
	b.ReportAllocs()
	w := NewWaitTime()
	w.Trigger(1 << 40)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			<-w.Wait(5)
		}
	})
}

func BenchmarkWaitTimeTriggerIdle(b *testing.B) {
	b.ReportAllocs()
	w := NewWaitTime()
	i := uint64(0)
	for b.Loop() {
		i++
		w.Trigger(i)
	}
}

func BenchmarkWaitTimeWaitTrigger(b *testing.B) {
	b.ReportAllocs()
	w := NewWaitTime()
	i := uint64(0)
	for b.Loop() {
		i++
		ch := w.Wait(i)
		w.Trigger(i)
		<-ch
	}
}

func BenchmarkWaitTimeParallel(b *testing.B) {
	b.ReportAllocs()
	w := NewWaitTime()
	var index atomic.Uint64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := index.Add(1)
			ch := w.Wait(i)
			w.Trigger(i)
			<-ch
		}
	})
}
