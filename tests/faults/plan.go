package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults. Those of processes and disks come first, then those of links.
const (
	Kill       Kind = "kill"        // SIGKILL, and a start at the end
	KillAll    Kind = "kill-all"    // of all members at once
	Restart    Kind = "restart"     // SIGTERM, and a start at the end
	Hold       Kind = "hold"        // SIGSTOP, shorter than leases live
	HoldLong   Kind = "hold-long"   // SIGSTOP, longer than leases live
	SlowDisk   Kind = "slow-disk"   // each flush takes long; where that cannot be done, Stutter
	Stutter    Kind = "stutter"     // SIGSTOP and SIGCONT in quick turns: all of the member is slow, not just its disk
	FlushFails Kind = "flush-fails" // a flush fails; the member must end by itself, and is started at the end
	FullDisk   Kind = "full-disk"   // no room is left; the member may end by itself, and is started at the end

	Isolate   Kind = "isolate"    // a member and all others hear nothing of each other
	Unheard   Kind = "unheard"    // a member is heard by nobody, but hears
	Deaf      Kind = "deaf"       // a member hears nobody, but is heard
	CutLink   Kind = "cut-link"   // two members hear nothing of each other
	SlowLinks Kind = "slow-links" // all links of a member are slow and narrow
	CutClient Kind = "cut-client" // some clients are cut off from all members, for longer than leases live
)

// Fault is one thing that goes wrong, from At on, for For.
type Fault struct {
	At, For time.Duration
	Kind    Kind
	Leader  bool          // the first victim is the leader, if there is one
	Victims []int         // members or, of CutClient, groups of clients
	By      time.Duration // of SlowDisk and SlowLinks
	Break   bool          // connections that were cut are broken at the end, instead of going on
}

// String is the fault in a line.
func (f Fault) String() string {
	s := fmt.Sprintf("%9.3fs +%.3fs %-11s %v", f.At.Seconds(), f.For.Seconds(), f.Kind, f.Victims)
	if f.Leader {
		s += " leader first"
	}
	if f.By > 0 {
		s += fmt.Sprintf(" by %v", f.By)
	}
	if f.Break {
		s += " breaks"
	}
	return s
}

// Shape is what a plan is drawn for.
type Shape struct {
	Members int
	Groups  int           // of clients that are cut off together
	Length  time.Duration // of the whole run
	TTL     time.Duration // of the longest leases
	Full    int           // the member that has a disk which can be made full, -1: none
	Slow    bool          // disks can be made slow and failing
}

// Plan is the faults of a run: those of processes and those of links, each in order of time.
type Plan struct{ Processes, Links []Fault }

// The calm at the end of each period lets leases end in time.
const (
	period = time.Minute
	calm   = 12 * time.Second
)

// Draw draws a plan. The same seed and shape give the same plan.
func Draw(seed uint64, s Shape) Plan {
	p := Plan{
		Processes: lane(rand.New(rand.NewPCG(seed, 1)), s, processFault),
		Links:     lane(rand.New(rand.NewPCG(seed, 2)), s, linkFault),
	}
	return p
}

func lane(r *rand.Rand, s Shape, draw func(*rand.Rand, Shape) Fault) []Fault {
	var all []Fault
	at := time.Second
	for {
		f := draw(r, s)
		at += time.Duration(300+r.IntN(2500)) * time.Millisecond
		if (at+f.For)%period > period-calm || at/period != (at+f.For)/period {
			at = (at/period + 1) * period
		}
		f.At = at
		if at += f.For; at > s.Length {
			return all
		}
		all = append(all, f)
	}
}

func processFault(r *rand.Rand, s Shape) Fault {
	f := Fault{Victims: r.Perm(s.Members)[:1], Leader: r.IntN(3) != 0}
	kinds := []Kind{Kill, Kill, Kill, Kill, KillAll, Restart, Hold, Hold, Hold, HoldLong, HoldLong, SlowDisk, SlowDisk, FlushFails, FullDisk}
	f.Kind = kinds[r.IntN(len(kinds))]
	if f.Kind == FullDisk && s.Full < 0 || f.Kind == FlushFails && !s.Slow {
		f.Kind = Kill
	}
	if f.Kind == SlowDisk && !s.Slow {
		f.Kind = Stutter
	}
	f.For = time.Duration(100+r.IntN(2400)) * time.Millisecond
	switch f.Kind {
	case Kill, Hold:
		if r.IntN(5) == 0 { // the majority
			f.Victims = r.Perm(s.Members)[:s.Members/2+1]
		}
	case KillAll:
		f.Victims = r.Perm(s.Members)
	case HoldLong:
		f.For = s.TTL + time.Duration(1000+r.IntN(3000))*time.Millisecond
	case SlowDisk:
		f.By, f.For = time.Duration(20+r.IntN(400))*time.Millisecond, f.For*2
		if r.IntN(3) == 0 { // all disks, as one store behind them may be
			f.Victims = r.Perm(s.Members)
		}
	case FlushFails:
		f.For += time.Second
	case FullDisk:
		f.Victims, f.Leader = []int{s.Full}, false
		f.For += 3 * time.Second
	}
	return f
}

func linkFault(r *rand.Rand, s Shape) Fault {
	f := Fault{Victims: r.Perm(s.Members)[:2], Leader: r.IntN(3) != 0, Break: r.IntN(2) == 0}
	kinds := []Kind{Isolate, Isolate, Unheard, Unheard, Deaf, Deaf, CutLink, CutLink, SlowLinks, CutClient, CutClient}
	f.Kind = kinds[r.IntN(len(kinds))]
	f.For = time.Duration(200+r.IntN(5000)) * time.Millisecond
	switch f.Kind {
	case Isolate, Unheard, Deaf:
		f.Victims = f.Victims[:1]
	case SlowLinks:
		f.Victims = f.Victims[:1]
		f.By = time.Duration(5+r.IntN(150)) * time.Millisecond
	case CutClient:
		if s.Groups == 0 {
			f.Kind = CutLink
			break
		}
		f.Victims, f.Leader = r.Perm(s.Groups)[:1+r.IntN((s.Groups+1)/2)], false
		f.For = s.TTL + time.Duration(500+r.IntN(2500))*time.Millisecond
	}
	return f
}

// String is the plan for people, in order of time.
func (p Plan) String() string {
	all := slices.Concat(p.Processes, p.Links)
	slices.SortStableFunc(all, func(a, b Fault) int { return int(a.At - b.At) })
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}
