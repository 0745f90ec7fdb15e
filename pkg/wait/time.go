package wait

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// WaitTime wakes goroutines when a logical clock, a number that only grows, reaches the deadline
// they wait for. Make one with [NewWaitTime]. All methods may be called from any goroutine.
type WaitTime struct {
	passed chan struct{} // closed from the start: handed out for every deadline already reached

	// last is the highest deadline triggered. It is stored under mu and also read without it.
	last atomic.Uint64

	mu      sync.Mutex
	pending []alarm // guarded by mu; ascending, one entry a deadline, each above last
}

// alarm is the shared channel of all who wait for one deadline.
type alarm struct {
	deadline uint64
	ch       chan struct{}
}

// NewWaitTime makes a clock that stands at 0: only the deadline 0 has passed.
func NewWaitTime() *WaitTime {
	t := &WaitTime{passed: make(chan struct{})}
	close(t.passed)
	return t
}

// Wait returns a channel that is closed once the clock has reached deadline, that is after a
// Trigger with deadline or more. If it has already, the channel is one shared closed channel and
// the call takes no lock.
//
// A caller who gives up simply stops receiving: there is nothing to cancel, the channel is dropped
// when the clock gets there.
func (t *WaitTime) Wait(deadline uint64) <-chan struct{} {
	if deadline <= t.last.Load() {
		return t.passed
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if deadline <= t.last.Load() {
		return t.passed
	}
	// Deadlines mostly arrive in ascending order, so the place is nearly always the end of the list.
	i, found := slices.BinarySearchFunc(t.pending, deadline, func(a alarm, d uint64) int { return cmp.Compare(a.deadline, d) })
	if !found {
		t.pending = slices.Insert(t.pending, i, alarm{deadline, make(chan struct{})})
	}
	return t.pending[i].ch
}

// Trigger moves the clock to deadline and wakes everybody who waits for deadline or less. The clock
// never goes back: a deadline below the last one changes nothing.
func (t *WaitTime) Trigger(deadline uint64) {
	t.mu.Lock()
	if deadline <= t.last.Load() {
		t.mu.Unlock()
		return
	}
	t.last.Store(deadline)
	n := 0
	for n < len(t.pending) && t.pending[n].deadline <= deadline {
		close(t.pending[n].ch) // wakes without blocking
		n++
	}
	t.pending = slices.Delete(t.pending, 0, n)
	t.mu.Unlock()
}

// Last returns where the clock stands: the highest deadline triggered so far, 0 at first.
func (t *WaitTime) Last() uint64 { return t.last.Load() }
