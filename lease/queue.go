package lease

import (
	"container/heap"
	"time"
)

// item is what the Expirer knows of one lease. The Expirer's mutex guards it. Times are measured
// from the start of the Expirer.
type item struct {
	id  ID
	ttl time.Duration
	// deadline is when the lease ends.
	deadline time.Duration
	// logged is what the log has, or will have, as the time left: the value last proposed or
	// applied, ttl if there is none. The next checkpoint is due one step below.
	logged time.Duration
	// saved is the remaining time the table has been seen with; 0 is none.
	saved int64
	// handed counts checkpoints handed out, settled those of them that are known to be in the
	// table or to be lost. While they differ, the table may yet come to hold less time than
	// the lease has after a renewal.
	handed, settled int
	// reset is handed as it was when a renewal first asked for a reset that is not applied
	// yet; -1 if none is awaited.
	reset int
	// renewed: a client has renewed the lease under this leader.
	renewed bool
	// revoking: the lease was handed out for revocation, and neither revoked nor given back.
	revoking bool
	// slot and at are the item's place and order in each queue; slot is -1 when it is not in it.
	slot [queues]int
	at   [queues]time.Duration
}

// The queues an item may be in.
const (
	byDeadline = iota
	byCheckpoint
	queues
)

// queue is a heap of items by the time at which each has to be looked at. That time may be early: a
// renewal moves the true time and leaves the queue alone, and who looks at the item then puts it
// back for the true time. So a renewal costs no reordering, and an item is moved
// at most once per period.
type queue struct {
	which int
	items []*item
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (q *queue) Len() int { return len(q.items) }

func (q *queue) Less(i, j int) bool {
	return q.items[i].at[q.which] < q.items[j].at[q.which]
}

func (q *queue) Swap(i, j int) {
	q.items[i], q.items[j] = q.items[j], q.items[i]
	q.items[i].slot[q.which] = i
	q.items[j].slot[q.which] = j
}

func (q *queue) Push(x any) {
	it := x.(*item)
	it.slot[q.which] = len(q.items)
	q.items = append(q.items, it)
}

func (q *queue) Pop() any {
	last := len(q.items) - 1
	it := q.items[last]
	q.items[last] = nil
	q.items = q.items[:last]
	it.slot[q.which] = -1
	return it
}

// put places an item for the given time, moving it if it is in the queue already.
func (q *queue) put(it *item, at time.Duration) {
	it.at[q.which] = at
	if i := it.slot[q.which]; i >= 0 {
		heap.Fix(q, i)
		return
	}
	heap.Push(q, it)
}

// remove takes an item out, if it is in.
func (q *queue) remove(it *item) {
	if i := it.slot[q.which]; i >= 0 {
		heap.Remove(q, i)
	}
}

// first returns the item to look at next, or nil.
func (q *queue) first() *item {
	if len(q.items) == 0 {
		return nil
	}
	return q.items[0]
}
