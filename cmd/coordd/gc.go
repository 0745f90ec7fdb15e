package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
)

// A member with little data has a small live heap, which Go's default collects each time it has doubled: at
// thousands of requests a second, many times a second. The tuner lets the heap always grow by gcHeadroom at
// least, and by Go's usual 100 % when that is more. So memory is at most the larger of twice
// the live heap and the live heap plus gcHeadroom.
const (
	gcHeadroom   = 32 << 20
	gcPercent    = 100 // Go's default, and never less
	gcMaxPercent = 1600
	liveMetric   = "/gc/heap/live:bytes"
)

// gcTuner sets the collector's percentage after each collection. It has no goroutine: the runtime calls it
// when an object that nobody holds has been collected, and it makes the next one.
//
// mu guards stopped and current.
type gcTuner struct {
	mu      sync.Mutex
	stopped bool
	current int
}

// sentinel is the object whose collection shows that there was one.
type sentinel struct{ _ [16]byte }

// tuneGC starts a tuner, unless the environment says how to collect.
func tuneGC(environ []string) *gcTuner {
	t := &gcTuner{current: gcPercent}
	for _, e := range environ {
		if strings.HasPrefix(e, "GOGC=") || strings.HasPrefix(e, "GOMEMLIMIT=") {
			t.stopped = true
			return t
		}
	}
	t.tune()
	return t
}

// tune sets the percentage for the heap as it is, and waits for the next collection.
func (t *gcTuner) tune() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	sample := []metrics.Sample{{Name: liveMetric}}
	metrics.Read(sample)
	if p := percentFor(sample[0].Value.Uint64()); p != t.current {
		debug.SetGCPercent(p)
		t.current = p
	}
	runtime.AddCleanup(new(sentinel), (*gcTuner).tune, t)
}

// percentFor is the percentage for a live heap of so many bytes, in steps, since setting it stops the
// world for a moment.
func percentFor(live uint64) int {
	const step = 50
	p := gcHeadroom * 100 / max(live, 1)
	return int(min(max(p/step*step, gcPercent), gcMaxPercent))
}

// stop gives the collector its default back.
func (t *gcTuner) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stopped {
		t.stopped = true
		debug.SetGCPercent(gcPercent)
	}
}
