package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coordd/coordd/pkg/vfs"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults.
const (
	Weather   Kind = "weather"    // messages are lost, doubled, late or out of order
	Partition Kind = "partition"  // some members and the others hear nothing of each other
	OneWay    Kind = "one-way"    // some members are heard by nobody, but hear
	Pause     Kind = "pause"      // a member does nothing; what was sent and asked meanwhile comes at the end
	Power     Kind = "power"      // a member loses power while its disk is at rest
	PowerIn   Kind = "power-in"   // a member loses power in the middle of an operation of its disk
	PowerAll  Kind = "power-all"  // all members lose power at once
	Killed    Kind = "kill"       // a member's process is killed
	SyncFails Kind = "sync-fails" // a flush of a member's disk fails
	DiskFull  Kind = "disk-full"  // nothing more can be written to a member's disk
	TornWrite Kind = "torn-write" // a write of a member's disk fails half way
	Restart   Kind = "restart"    // a member is stopped in good order and started again
	Transfer  Kind = "transfer"   // leadership is to move to a member
	Stall     Kind = "stall"      // all members are paused, as by the machine that they share
	Flip      Kind = "flip"       // a member is stopped, and a bit of its log is found inverted
	Wipe      Kind = "wipe"       // a member is killed and loses its files: it may not take part again
)

// Fault is one thing that goes wrong, from At on, for For.
type Fault struct {
	At, For time.Duration
	Kind    Kind
	Member  int    // which, by index
	Group   uint64 // of a partition: a bit for each member
	Count   int    // of operations of the disk until it happens
	Sync    bool   // count flushes rather than writes
	Weather weather
}

// String is the fault in a line.
func (f Fault) String() string {
	s := fmt.Sprintf("%8.3fs +%.3fs %-10s", f.At.Seconds(), f.For.Seconds(), f.Kind)
	switch f.Kind {
	case Weather:
		return s + fmt.Sprintf(" drop=%.2f dup=%.2f delay=%v reorder=%v", f.Weather.drop, f.Weather.dup, f.Weather.delay, f.Weather.reorder)
	case Partition, OneWay:
		return s + fmt.Sprintf(" group=%05b", f.Group)
	case PowerAll, Stall:
		return s
	case PowerIn, SyncFails, TornWrite:
		return s + fmt.Sprintf(" m%d after %d operations (flush: %v)", f.Member+1, f.Count, f.Sync)
	}
	return s + fmt.Sprintf(" m%d", f.Member+1)
}

// shape is what stays the same during a run.
type shape struct {
	members       int
	snapshotCount uint64
	catchUp       uint64
	segment       int64           // bytes of a file of the log
	batch         time.Duration   // longest age of what is applied and not in the data file
	slowDisk      time.Duration   // slowest flush, 0 = no time
	slowRemoval   time.Duration   // slowest removal of a file of the log, 0 = no time
	ticks         []time.Duration // what a tick of each member really takes
	keys          int             // of the registers
	clients       int
	think         time.Duration // longest pause of a client between two operations
	compactEvery  time.Duration
	leaseTTL      [2]int // the shortest and the longest asked for, in seconds
}

// nominalTick is what a member counts as one tick, by its own clock.
const nominalTick = 100 * time.Millisecond

// rate is how fast a member's clock runs.
func (s shape) rate(i int) float64 { return float64(nominalTick) / float64(s.ticks[i]) }

// rates are those of the slowest and the fastest clock, 1 among them.
func (s shape) rates() (slowest, fastest float64) {
	slowest, fastest = 1, 1
	for i := range s.ticks {
		slowest, fastest = min(slowest, s.rate(i)), max(fastest, s.rate(i))
	}
	return slowest, fastest
}

// shortest is what a lease's time may come to, by the fastest clock. It is less still by what clocks at different rates
// take from a change of leader: the old one trusts its leadership for 2.5 of its ticks, the next one
// adds as much by its own clock.
func (s shape) shortest(ttl time.Duration) time.Duration {
	_, fastest := s.rates()
	trusted, added := time.Duration(0), time.Hour
	for i, tick := range s.ticks {
		trusted = max(trusted, 5*tick/2)
		added = min(added, time.Duration(float64(5*tick/2)/s.rate(i)))
	}
	return time.Duration(float64(ttl)/fastest) - max(0, trusted-added)
}

// longest is what a lease's time may come to, by the slowest clock.
func (s shape) longest(ttl time.Duration) time.Duration {
	slowest, _ := s.rates()
	return time.Duration(float64(ttl) / slowest)
}

// maxKeys is how many registers there are at most.
const maxKeys = 8

// newShape draws the shape of a run.
func newShape(r *rand.Rand, members int) shape {
	s := shape{
		members: members, keys: 2 + r.IntN(maxKeys-3), clients: 3 + r.IntN(4),
		snapshotCount: uint64(20 + r.IntN(300)), catchUp: uint64(1 + r.IntN(60)),
		segment:      int64(16+r.IntN(32)) << 10,
		batch:        time.Duration(20+r.IntN(2000)) * time.Millisecond,
		think:        time.Duration(10+r.IntN(120)) * time.Millisecond,
		compactEvery: time.Duration(500+r.IntN(4000)) * time.Millisecond,
	}
	if s.members == 0 {
		s.members = 3 + 2*(r.IntN(4)/3) // one in four has 5
	}
	if r.IntN(3) == 0 {
		s.slowDisk = time.Duration(1+r.IntN(60)) * time.Millisecond
	}
	if r.IntN(2) == 0 { // what is committed waits to be applied meanwhile
		s.slowRemoval = time.Duration(1+r.IntN(800)) * time.Millisecond
	}
	s.leaseTTL = [2]int{1, 6}
	if r.IntN(4) == 0 { // long enough for checkpoints of what is left
		s.leaseTTL = [2]int{19, 25}
	}
	skewed := r.IntN(2) == 0
	for range s.members {
		tick := nominalTick
		if skewed { // clocks that run at different rates
			tick = time.Duration(80+r.IntN(40)) * time.Millisecond
		}
		s.ticks = append(s.ticks, tick)
	}
	return s
}

// Plan draws the faults of a run, in order of time. The same seed, size and length give the same plan.
func Plan(r *rand.Rand, members int, length time.Duration) []Fault {
	var plan []Fault
	last := Fault{For: 7*time.Second + time.Duration(r.IntN(4000))*time.Millisecond, Kind: Stall}
	stalls := r.IntN(5) == 0 && length > 2*last.For
	if stalls { // nothing else follows it, so that the leader stays the leader
		length -= last.For
		last.At = length
	}
	at := 2 * time.Second // the cluster is founded first
	rough := 1 + r.IntN(3)
	for {
		at += time.Duration(100+r.IntN(4000/rough)) * time.Millisecond
		f := drawFault(r, members)
		f.At, f.For = at, time.Duration(50+r.IntN(3500))*time.Millisecond
		switch f.Kind {
		case Pause: // long enough for leases to end
			f.For *= time.Duration(1 + r.IntN(2))
		case Stall: // long enough for requests to time out
			f.For *= time.Duration(1 + r.IntN(4))
		}
		if f.At+f.For > length {
			break
		}
		plan = append(plan, f)
	}
	if stalls {
		plan = append(plan, last)
	}
	if room := length - 3*time.Second; r.IntN(4) == 0 && room > 0 { // one member, as a majority must be left
		plan = append(plan, Fault{At: 2*time.Second + time.Duration(r.Int64N(int64(room))), For: time.Second, Kind: Wipe, Member: r.IntN(members)})
		slices.SortStableFunc(plan, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	}
	return plan
}

func drawFault(r *rand.Rand, members int) Fault {
	f := Fault{Member: r.IntN(members), Count: r.IntN(40), Sync: r.IntN(2) == 0}
	f.Group = 1 << f.Member
	if r.IntN(3) == 0 { // an unequal split, perhaps without the leader
		f.Group |= 1 << r.IntN(members)
	}
	kinds := []Kind{
		Weather, Weather, Partition, Partition, Partition, OneWay, OneWay, Pause, Pause, Power, Power, PowerIn, PowerIn, PowerIn,
		PowerAll, Killed, Killed, SyncFails, DiskFull, TornWrite, Restart, Transfer, Transfer, Stall, Flip,
	}
	f.Kind = kinds[r.IntN(len(kinds))]
	if f.Kind == Weather {
		f.Weather = weather{drop: 0.3 * r.Float64() * r.Float64(), dup: 0.3 * r.Float64() * r.Float64(), reorder: r.IntN(2) == 0}
		if r.IntN(2) == 0 {
			f.Weather.delay = time.Duration(1 + r.Int64N(int64(300*time.Millisecond)))
		}
	}
	return f
}

// step is the beginning or the end of a fault.
type step struct {
	at time.Duration
	do func()
}

// run plays the faults until all have ended. It is the only goroutine that starts and stops members.
func (c *cluster) run(plan []Fault) {
	var steps []step
	for i, f := range plan {
		steps = append(steps,
			step{f.At, func() {
				c.timeline.add("fault", "begins: %v", f)
				c.disturb()
				c.count(func(s *Stats) { s.Faults++ })
				c.begin(i, f)
			}},
			step{f.At + f.For, func() { c.disturb(); c.end(i, f); c.timeline.add("fault", "ends: %v", f) }})
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	for _, s := range steps {
		if c.failed() {
			return
		}
		time.Sleep(s.at - time.Since(c.begun))
		s.do()
	}
}

// begin lets a fault begin.
func (c *cluster) begin(i int, f Fault) {
	m := c.members[f.Member]
	op := vfs.OpWrite
	if f.Sync {
		op = vfs.OpSync
	}
	switch f.Kind {
	case Weather:
		c.network.set(func() { c.network.weather = f.Weather })
	case Partition, OneWay:
		inside := func(id uint64) bool { return f.Group&(1<<c.index[id]) != 0 }
		c.network.set(func() {
			c.network.cuts[i] = func(from, to uint64) bool {
				return inside(from) && !inside(to) || f.Kind == Partition && inside(to) && !inside(from)
			}
		})
	case Pause:
		c.network.pause(m.id, time.Now().Add(f.For))
	case Stall:
		for _, m := range c.members {
			c.network.pause(m.id, time.Now().Add(f.For))
		}
	case Power, Killed:
		c.rest()
		m.cut(f.Kind == Killed)
	case Wipe:
		c.rest()
		m.cut(true)
		m.wipe()
	case Flip:
		m.stop()
		m.flip()
	case PowerIn:
		m.cutDuring(op, f.Count)
	case PowerAll:
		c.rest()
		for _, m := range c.members {
			m.cut(false)
		}
	case SyncFails:
		m.fail(vfs.Fault{Op: vfs.OpSync, After: f.Count, Times: 1, Err: syscall.EIO})
	case DiskFull:
		m.fail(vfs.Fault{Op: vfs.OpWrite | vfs.OpCreate | vfs.OpPreallocate, Err: syscall.ENOSPC})
	case TornWrite:
		m.fail(vfs.Fault{Op: vfs.OpWrite, After: f.Count, Err: syscall.EIO, Torn: func(sector int) bool { return (sector+f.Count)%2 == 0 }})
	case Restart:
		m.stop()
	case Transfer:
		c.transfer(m)
	}
}

// end lets a fault end. A member that is down is started again.
func (c *cluster) end(i int, f Fault) {
	switch f.Kind {
	case Weather:
		c.network.set(func() { c.network.weather = weather{} })
	case Partition, OneWay:
		c.network.set(func() { delete(c.network.cuts, i) })
	case Pause:
		c.network.resume(c.members[f.Member].id, false)
	case PowerAll:
		for _, m := range c.members {
			c.revive(m)
		}
	case Stall:
		for _, m := range c.members {
			c.network.resume(m.id, false)
		}
	case Flip:
		c.members[f.Member].refuse()
		c.revive(c.members[f.Member])
	case Power, Killed, Restart, Wipe:
		c.revive(c.members[f.Member])
	case PowerIn, SyncFails, DiskFull, TornWrite:
		m := c.members[f.Member]
		m.mu.Lock()
		sick := m.up && m.sick
		m.mu.Unlock()
		if sick { // it has not come to it yet; the disk gets well by a restart only
			c.rest()
			m.cut(false)
		}
		c.revive(m)
	}
}

// describe is a plan, one fault per line.
func describe(plan []Fault) string {
	var b strings.Builder
	for _, f := range plan {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}
