package wait

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

func TestTriggerReachesItsWaiterOnly(t *testing.T) {
	w := New[string]()
	a, b := w.Register(1), w.Register(1+shards) // the same shard
	if !w.Trigger(1, "one") {
		t.Error("nobody waited for 1")
	}
	if got := <-a; got != "one" {
		t.Errorf("got %q", got)
	}
	select {
	case got := <-b:
		t.Errorf("the other waiter got %q", got)
	default:
	}
	if w.Trigger(1, "again") {
		t.Error("a second trigger found a waiter")
	}
	if w.IsRegistered(1) || !w.IsRegistered(1+shards) || w.Len() != 1 {
		t.Errorf("registered: %v %v, %d in all", w.IsRegistered(1), w.IsRegistered(1+shards), w.Len())
	}
}

func TestCancel(t *testing.T) {
	w := New[int]()
	ch := w.Register(7)
	if !w.Cancel(7) || w.Cancel(7) || w.Trigger(7, 1) {
		t.Error("the first cancel must find the waiter, and nothing after it")
	}
	select {
	case v, ok := <-ch:
		t.Errorf("a cancelled channel yielded %v, %v", v, ok)
	default:
	}
	ch = w.Register(7) // free again
	w.Trigger(7, 2)
	if w.Cancel(7) {
		t.Error("cancel after trigger found a waiter")
	}
	if got := <-ch; got != 2 {
		t.Errorf("got %d", got)
	}
}

func TestDuplicateRegistrationPanics(t *testing.T) {
	w := New[int]()
	first := w.Register(0xabc)
	func() {
		defer func() {
			if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), "0000000000000abc") {
				t.Errorf("panic value %v", v)
			}
		}()
		w.Register(0xabc)
	}()
	if !w.Trigger(0xabc, 5) || <-first != 5 {
		t.Error("the first registration did not survive")
	}
}

// TestModel compares random calls with a plain map of what each id should hold.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := New[int]()
		model := map[uint64]<-chan int{}
		id := rapid.Uint64Range(0, 3*shards)
		serial := 0
		rt.Repeat(map[string]func(*rapid.T){
			"register": func(rt *rapid.T) {
				id := id.Draw(rt, "id")
				if model[id] == nil {
					model[id] = w.Register(id)
				}
			},
			"trigger": func(rt *rapid.T) {
				id := id.Draw(rt, "id")
				serial++
				ch := model[id]
				if got := w.Trigger(id, serial); got != (ch != nil) {
					rt.Fatalf("trigger of %d says %v", id, got)
				}
				if ch != nil {
					if got := <-ch; got != serial {
						rt.Fatalf("%d got %d, want %d", id, got, serial)
					}
				}
				delete(model, id)
			},
			"cancel": func(rt *rapid.T) {
				id := id.Draw(rt, "id")
				if got := w.Cancel(id); got != (model[id] != nil) {
					rt.Fatalf("cancel of %d says %v", id, got)
				}
				delete(model, id)
			},
			"": func(rt *rapid.T) {
				if w.Len() != len(model) {
					rt.Fatalf("%d registered, want %d", w.Len(), len(model))
				}
				probe := id.Draw(rt, "probe")
				if w.IsRegistered(probe) != (model[probe] != nil) {
					rt.Fatalf("IsRegistered(%d) is wrong", probe)
				}
			},
		})
	})
}

// TestConcurrent has proposers and one trigger work at once; every proposer must get its own result.
func TestConcurrent(t *testing.T) {
	const proposers, each = 8, 2000
	w := New[uint64]()
	ids := make(chan uint64, 64)
	var wg sync.WaitGroup
	for p := range uint64(proposers) {
		wg.Go(func() {
			for i := range uint64(each) {
				id := p<<48 | i
				ch := w.Register(id)
				ids <- id
				if got := <-ch; got != id*3 {
					t.Errorf("%x got %x", id, got)
				}
			}
		})
	}
	go func() { wg.Wait(); close(ids) }()
	for id := range ids {
		if !w.Trigger(id, id*3) {
			t.Errorf("%x is not registered", id)
		}
	}
	if w.Len() != 0 {
		t.Errorf("%d left", w.Len())
	}
}

func BenchmarkRegisterTrigger(b *testing.B) {
	b.ReportAllocs()
	w := New[uint64]()
	id := uint64(0)
	for b.Loop() {
		id++
		ch := w.Register(id)
		w.Trigger(id, id)
		<-ch
	}
}

func BenchmarkRegisterTriggerParallel(b *testing.B) {
	b.ReportAllocs()
	w := New[uint64]()
	var ids atomic.Uint64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			id := ids.Add(1)
			ch := w.Register(id)
			w.Trigger(id, id)
			<-ch
		}
	})
}
