package history

import (
	"slices"
	"sort"
	"time"
)

// Clock knows within which times revisions came to be, by linearizable calls whose answers carry one. Add all calls before
// asking. It is for one goroutine.
type Clock struct {
	calls  []reading
	sorted bool
}

type reading struct {
	rev       int64
	call, ret time.Duration
	// latest is the latest call up to this revision, earliest the earliest return from it on.
	latest, earliest time.Duration
}

// Add notes that a call that went on from one time to another had an answer of a revision.
func (c *Clock) Add(rev int64, call, ret time.Duration) {
	c.calls, c.sorted = append(c.calls, reading{rev: rev, call: call, ret: ret}), false
}

// forever is later than all times of a run.
const forever = time.Duration(1<<63 - 1)

func (c *Clock) sort() {
	if c.sorted {
		return
	}
	c.sorted = true
	slices.SortFunc(c.calls, func(a, b reading) int { return int(a.rev - b.rev) })
	latest, earliest := time.Duration(0), forever
	for i := range c.calls {
		latest = max(latest, c.calls[i].call)
		c.calls[i].latest = latest
	}
	for i := range slices.Backward(c.calls) {
		earliest = min(earliest, c.calls[i].ret)
		c.calls[i].earliest = earliest
	}
}

// NotBefore is the earliest time a revision can have come to be: a call that began then saw an older one.
func (c *Clock) NotBefore(rev int64) time.Duration {
	c.sort()
	i := sort.Search(len(c.calls), func(i int) bool { return c.calls[i].rev >= rev })
	if i == 0 {
		return 0
	}
	return c.calls[i-1].latest
}

// NotAfter is the latest time a revision can have come to be: a call that had ended by then saw it.
func (c *Clock) NotAfter(rev int64) time.Duration {
	c.sort()
	i := sort.Search(len(c.calls), func(i int) bool { return c.calls[i].rev >= rev })
	if i == len(c.calls) {
		return forever
	}
	return c.calls[i].earliest
}
