package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// This file is the second opinion on locks: porcupine looks for an order of who got a lock and who had lost it that a plain lock allows.
// It knows nothing of the ledger: when somebody has lost a lock is taken from what its owner did, and from the time its lease was said to last.

// lockStep is a holder's beginning or end.
type lockStep struct {
	acquire bool
	token   int64
	mode    lockMode
	by      *claim
}

// lockState is who holds a lock, and the largest token so far.
type lockState struct {
	holders []int64 // ascending
	mode    lockMode
	last    int64
}

// lockModel is the specification of one lock.
func lockModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return lockState{} },
		Step: func(s, in, _ any) (bool, any) {
			next, ok := s.(lockState).step(in.(lockStep))
			return ok, next
		},
		Equal: func(a, b any) bool {
			x, y := a.(lockState), b.(lockState)
			return slices.Equal(x.holders, y.holders) && x.mode == y.mode && x.last == y.last
		},
		DescribeOperation: func(in, _ any) string { return in.(lockStep).String() },
	}
}

func (x lockStep) String() string {
	if x.acquire {
		return fmt.Sprintf("%v", x.by)
	}
	return fmt.Sprintf("the end of token %d", x.token)
}

// step is what a lock does: it is given to one, or to several that share it, and each gives it back once. Only of those who share
// it may one with a smaller token be told later.
func (s lockState) step(x lockStep) (lockState, bool) {
	i, held := slices.BinarySearch(s.holders, x.token)
	next := lockState{slices.Clone(s.holders), s.mode, s.last}
	if !x.acquire {
		if held {
			next.holders = slices.Delete(next.holders, i, i+1)
		}
		return next, held
	}
	if held || len(s.holders) > 0 && (x.mode != s.mode || !x.mode.shared && int64(len(s.holders)) >= x.mode.limit) {
		return s, false
	}
	if x.mode == (lockMode{}) && x.token <= s.last {
		return s, false
	}
	next.holders, next.mode, next.last = slices.Insert(next.holders, i, x.token), x.mode, max(s.last, x.token)
	return next, true
}

// ownership is all claims that were told the same token of a name.
type ownership struct {
	first  *claim
	claims []*claim
}

// ownerships are those of one name, in the order of their tokens.
func (b *lockBook) ownerships() map[string][]*ownership {
	out, at := map[string][]*ownership{}, map[string]*ownership{}
	for _, k := range b.claims {
		if !k.known || !k.held {
			continue
		}
		id := fmt.Sprint(k.name, " ", k.token)
		x := at[id]
		if x == nil {
			x = &ownership{first: k}
			at[id] = x
			out[k.name] = append(out[k.name], x)
		}
		x.claims = append(x.claims, k)
		if k.heldAt < x.first.heldAt {
			x.first = k
		}
	}
	return out
}

// end is the time within which an ownership must have ended: it lasts until somebody gives it back, gives up with the same lease, lets the
// lease end, or until its time is over; and not longer than until one of these was acknowledged.
func (b *lockBook) end(x *ownership) (from, to time.Duration) {
	to = never
	bond := x.first.bond
	from = bond.alive
	for _, k := range x.claims {
		from = max(from, k.until)
	}
	from = min(from, bond.freed)
	for _, k := range b.claims {
		if k.bond == bond && k.name == x.first.name && (!k.known || !k.held) {
			from = min(from, k.call)
		}
	}
	for _, k := range x.claims {
		if k.way == byStream {
			from = min(from, k.ends, k.back, k.lost)
		}
	}
	for _, r := range b.releases {
		if r.key != x.first.key || r.token != 0 && r.token != x.first.token || r.back < x.first.call {
			continue
		}
		from = min(from, r.call)
		if r.known && r.call >= x.first.heldAt {
			to = min(to, r.back)
		}
	}
	if bond.ended >= x.first.heldAt {
		to = min(to, bond.ended)
	}
	from = max(from, x.first.call)
	return from, max(from, to)
}

// steps are the operations of one name.
func (b *lockBook) steps(of []*ownership) (ops []porcupine.Operation) {
	for i, x := range of {
		k := x.first
		from, to := b.end(x)
		back := int64(math.MaxInt64)
		if to != never {
			back = int64(to)
		}
		ops = append(ops,
			porcupine.Operation{ClientId: i, Input: lockStep{true, k.token, k.mode, k}, Call: int64(k.call), Return: int64(k.heldAt)},
			porcupine.Operation{ClientId: i, Input: lockStep{false, k.token, k.mode, k}, Call: int64(from), Return: back})
	}
	return ops
}

// linearize lets porcupine judge all locks. It returns what is broken, and whether it was not sure of a lock in its time.
func (b *lockBook) linearize(atMost time.Duration) (broken []Violation, unsure bool) {
	for name, of := range b.ownerships() {
		answer, info := porcupine.CheckOperationsVerbose(lockModel(), b.steps(of), atMost)
		switch answer {
		case porcupine.Illegal:
			broken = append(broken, b.blame(name, b.steps(of), info))
		case porcupine.Unknown:
			unsure = true
		}
	}
	return broken, unsure
}

// blame names the first who was told that it holds the lock and has no place in the longest order that was found.
func (b *lockBook) blame(name string, ops []porcupine.Operation, info porcupine.LinearizationInfo) Violation {
	longest := []int{}
	for _, partition := range info.PartialLinearizations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	var guilty *claim
	for i, o := range ops {
		k := o.Input.(lockStep)
		if k.acquire && !slices.Contains(longest, i) && (guilty == nil || k.by.heldAt < guilty.heldAt) {
			guilty = k.by
		}
	}
	if guilty == nil {
		return Violation{b.c.now(), fmt.Sprintf("no order explains who was told to hold %s", name)}
	}
	var before []string
	for _, i := range longest[max(0, len(longest)-3):] {
		x := ops[i].Input.(lockStep)
		before = append(before, x.String())
	}
	return Violation{guilty.heldAt, fmt.Sprintf("no order explains who was told to hold %s. The longest ends with: %s. It has no place for: %v", name, strings.Join(before, "; then "), guilty)}
}
