package sim

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// baseDelay is how long a message is under way at the least.
const baseDelay = 100 * time.Microsecond

// weather is what the network does to messages, besides cuts.
type weather struct {
	drop, dup float64       // the share of messages
	delay     time.Duration // a message takes up to this much longer
	reorder   bool          // later messages may overtake earlier ones
}

// network carries messages between the ends of running members. Messages are encoded and decoded on
// the way, so members share no memory. One goroutine, carry's, delivers them in the order in which they arrive.
type network struct {
	seed uint64
	wake chan struct{} // holds one token when a parcel arrives sooner than those before

	mu      sync.Mutex // guards all below
	ends    map[uint64]*end
	links   map[[2]uint64]*link
	parcels parcels
	sent    uint64 // parcels ever
	weather weather
	cuts    map[int]func(from, to uint64) bool // by fault; true = nothing gets from one to the other
	held    map[uint64]*hold                   // members that are paused
	lost    int                                // messages
	carried int
}

// hold is a pause of a member.
type hold struct {
	until time.Time
	over  chan struct{} // closed when it has ended
}

// link is one direction between two members, with a source of randomness of its own, so that what
// happens on one link does not depend on what happens on others.
type link struct {
	rng  *rand.Rand
	last time.Time // when the last message arrives
}

func newNetwork(seed uint64) *network {
	return &network{
		seed: seed, wake: make(chan struct{}, 1), ends: map[uint64]*end{}, links: map[[2]uint64]*link{},
		cuts: map[int]func(from, to uint64) bool{}, held: map[uint64]*hold{},
	}
}

// set changes the network under its lock.
func (n *network) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// pause holds a member until then at the latest; resume ends it. A member that is paused already is
// so for as long as the later of both.
func (n *network) pause(id uint64, until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.held[id]
	if h == nil {
		h = &hold{over: make(chan struct{})}
		n.held[id] = h
	}
	if until.After(h.until) {
		h.until = until
	}
}

// resume lets a member go on whose pause is over by now, or whatever the time if it must.
func (n *network) resume(id uint64, must bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h := n.held[id]; h != nil && (must || !time.Now().Before(h.until)) {
		close(h.over)
		delete(n.held, id)
	}
}

// paused is closed when the present pause of a member has ended; nil if it is not paused.
func (n *network) paused(id uint64) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h := n.held[id]; h != nil {
		return h.over
	}
	return nil
}

// cutLocked reports whether nothing gets from one member to the other.
func (n *network) cutLocked(from, to uint64) bool {
	for _, cut := range n.cuts {
		if cut(from, to) {
			return true
		}
	}
	return false
}

// postLocked decides about one message: how many copies of it arrive, and when. once = one copy at most.
func (n *network) postLocked(from, to uint64, once bool, deliver func(*end)) (copies int) {
	if n.cutLocked(from, to) {
		n.lost++
		return 0
	}
	l := n.links[[2]uint64{from, to}]
	if l == nil {
		l = &link{rng: rand.New(rand.NewPCG(n.seed, from*31+to))}
		n.links[[2]uint64{from, to}] = l
	}
	if l.rng.Float64() < n.weather.drop {
		n.lost++
		return 0
	}
	copies = 1
	if l.rng.Float64() < n.weather.dup && !once {
		copies = 2
	}
	now := time.Now()
	for range copies {
		at := now.Add(baseDelay + time.Duration(l.rng.Int64N(int64(baseDelay))))
		if n.weather.delay > 0 {
			at = at.Add(time.Duration(l.rng.Int64N(int64(n.weather.delay))))
		}
		for _, id := range [2]uint64{from, to} {
			if h := n.held[id]; h != nil && at.Before(h.until) {
				at = h.until
			}
		}
		if !n.weather.reorder && !at.After(l.last) {
			at = l.last.Add(time.Nanosecond)
		}
		l.last = at
		n.sent++
		heap.Push(&n.parcels, parcel{at, n.sent, from, to, deliver})
	}
	n.carried += copies
	return copies
}

// post sends something; carry's goroutine calls deliver for each copy that arrives, which must not block.
func (n *network) post(from, to uint64, once bool, deliver func(*end)) (sent bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.sent
	copies := n.postLocked(from, to, once, deliver)
	if copies > 0 && n.parcels[0].n > before {
		select {
		case n.wake <- struct{}{}:
		default:
		}
	}
	return copies > 0
}

// carry delivers parcels until ctx ends.
func (n *network) carry(ctx context.Context) {
	next := time.NewTimer(0)
	defer next.Stop()
	for ctx.Err() == nil {
		p, to, wait := n.arrival()
		if wait == 0 {
			if to != nil && !to.dead.Load() {
				p.deliver(to)
			}
			continue
		}
		next.Reset(wait)
		select {
		case <-next.C:
		case <-n.wake:
		case <-ctx.Done():
		}
	}
}

// arrival takes a parcel that has arrived, with the end it reaches, nil when it is lost after all. If there is
// none, wait is the time until the next may arrive.
func (n *network) arrival() (p parcel, to *end, wait time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.parcels) == 0 {
		return p, nil, time.Hour
	}
	if wait = time.Until(n.parcels[0].at); wait > 0 {
		return p, nil, wait
	}
	p = heap.Pop(&n.parcels).(parcel)
	if n.cutLocked(p.from, p.to) {
		n.lost++
		return p, nil, 0
	}
	return p, n.ends[p.to], 0
}

// parcel is a message on its way.
type parcel struct {
	at       time.Time
	n        uint64 // in the order of sending
	from, to uint64
	deliver  func(*end)
}

// parcels is a heap of them, what arrives first at its top.
type parcels []parcel

var _ heap.Interface = (*parcels)(nil)

// Len is how many there are.
func (p parcels) Len() int { return len(p) }

// Less orders by arrival.
func (p parcels) Less(i, j int) bool {
	return p[i].at.Before(p[j].at) || p[i].at.Equal(p[j].at) && p[i].n < p[j].n
}

// Swap changes places.
func (p parcels) Swap(i, j int) { p[i], p[j] = p[j], p[i] }

// Push is for package heap.
func (p *parcels) Push(x any) { *p = append(*p, x.(parcel)) }

// Pop is for package heap.
func (p *parcels) Pop() any {
	last := len(*p) - 1
	x := (*p)[last]
	(*p)[last] = parcel{}
	*p = (*p)[:last]
	return x
}
