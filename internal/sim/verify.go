package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coordd/coordd/server"
)

// verdict holds what clients were told against the ledger.
type verdict struct {
	c       *cluster
	r       *replay
	byValue map[string]*op
	puts    map[*op]map[int64]bool // revisions at which an op's values appear
}

// check checks everything that can be said once the ledger is complete.
func (v *verdict) check() {
	v.byValue, v.puts = map[string]*op{}, map[*op]map[int64]bool{}
	for _, o := range v.c.history.ops {
		for _, actions := range [][]action{o.req.then, o.req.orElse} {
			for _, a := range actions {
				if a.kind == put {
					v.byValue[a.value] = o
				}
			}
		}
	}
	v.attribute()
	v.realTime()
	for _, o := range v.c.history.ops {
		if o.known {
			if err := v.checkOp(o); err != nil {
				v.c.violateAt(o.back, "%v: %v", err, o)
			}
		}
	}
}

// attribute finds the op behind each change: nothing happens that nobody asked for, and nothing twice.
func (v *verdict) attribute() {
	removers := v.removers()
	for rev := int64(firstRevision); rev <= v.r.last; rev++ {
		ch := v.r.l.changes[rev]
		for _, e := range ch.events {
			if inQueue(e.key) { // looked at by lockJudge
				continue
			}
			if e.tombstone {
				// What leases end is looked at by their holders.
				if !strings.HasPrefix(e.key, leasePrefix) && !slices.ContainsFunc(removers[e.key], func(o *op) bool {
					return o.known && o.rev == rev || !o.known && o.call <= ch.seen
				}) {
					v.c.violateAt(ch.seen, "revision %d deletes %s, for which nobody asked, or who asked was told otherwise", rev, e.key)
				}
				continue
			}
			o := v.byValue[e.cell.Value]
			if o == nil {
				v.c.violateAt(ch.seen, "revision %d puts %s=%s, for which nobody asked", rev, e.key, e.cell.Value)
				continue
			}
			if v.puts[o] == nil {
				v.puts[o] = map[int64]bool{}
			}
			v.puts[o][rev] = true
			if ch.seen < o.call {
				v.c.violateAt(ch.seen, "revision %d is of an op that began later: %v", rev, o)
			}
		}
	}
	for o, revs := range v.puts {
		if len(revs) > 1 {
			v.c.violateAt(o.back, "applied more than once, at revisions %v: %v", revs, o)
		}
	}
}

// removers are the ops that have, or without an answer may have, deleted a key, by key.
func (v *verdict) removers() map[string][]*op {
	out := map[string][]*op{}
	for _, o := range v.c.history.ops {
		actions := slices.Concat(o.req.then, o.req.orElse)
		if o.known {
			actions = o.req.actions(o.succeeded)
		}
		for i, a := range actions {
			if a.kind == remove && (!o.known || o.results[i].deleted > 0) {
				out[a.key] = append(out[a.key], o)
			}
		}
	}
	return out
}

// checkOp holds one answer against what the keys held at its revision.
func (v *verdict) checkOp(o *op) error {
	if o.rev > v.r.last {
		return fmt.Errorf("an answer of revision %d, the store's last is %d", o.rev, v.r.last)
	}
	before := o.rev
	var want []event
	if o.writes() {
		before--
		want = v.effects(o)
		if got := v.r.l.changes[o.rev].events; !sameEffects(got, want) {
			return fmt.Errorf("acknowledged at revision %d, where %+v happened instead of %+v", o.rev, got, want)
		}
	} else if revs := v.puts[o]; len(revs) > 0 {
		return fmt.Errorf("answered that nothing was written, but was applied at %v", revs)
	}
	holds := true
	for _, cond := range o.req.conds {
		holds = holds && v.r.at(cond.key, before).Value == cond.value
	}
	if holds != o.succeeded {
		return fmt.Errorf("the conditions hold: %v, answered %v", holds, o.succeeded)
	}
	for i, a := range o.req.actions(o.succeeded) {
		held := v.r.at(a.key, before)
		switch {
		case a.kind == get && o.results[i].cell != held:
			return fmt.Errorf("read %s as %+v, at revision %d it held %+v", a.key, o.results[i].cell, before, held)
		case a.kind == remove && (o.results[i].deleted == 1) != (held.Version > 0):
			return fmt.Errorf("deleted %d of %s, which held %+v at revision %d", o.results[i].deleted, a.key, held, before)
		}
	}
	return nil
}

// effects are the events an acknowledged op must have made.
func (v *verdict) effects(o *op) (out []event) {
	for i, a := range o.req.actions(o.succeeded) {
		switch {
		case a.kind == put:
			c := v.r.at(a.key, o.rev)
			out = append(out, event{a.key, false, cell{a.value, c.Create, o.rev, c.Version, a.lease}})
		case a.kind == remove && o.results[i].deleted > 0:
			out = append(out, event{key: a.key, tombstone: true, cell: cell{Mod: o.rev}})
		}
	}
	return out
}

func sameEffects(a, b []event) bool {
	byKey := func(x, y event) int { return cmp.Compare(x.key, y.key) }
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, byKey)
	slices.SortFunc(b, byKey)
	return slices.Equal(a, b)
}

// realTime checks that revisions follow real time: whoever asks after somebody else was answered gets a revision not
// older, and one that is newer if it writes. With checkOp, it makes the history of all keys linearizable. Reads that may be stale
// are so by other members only: who asks a member again finds what that one has answered before.
func (v *verdict) realTime() {
	var all answers
	each := map[*server.Node]*answers{}
	slices.SortFunc(v.c.history.ops, func(a, b *op) int { return cmp.Compare(a.back, b.back) })
	for _, o := range v.c.history.ops {
		if each[o.node] == nil {
			each[o.node] = &answers{}
		}
		if o.known {
			all.add(o)
			each[o.node].add(o)
		}
	}
	for _, o := range v.c.history.ops {
		rev, wrote := o.rev, false
		switch {
		case o.known:
			wrote = o.writes()
		case len(v.puts[o]) == 1:
			for rev = range v.puts[o] {
				wrote = true
			}
		default:
			continue
		}
		before := all
		if o.req.serializable {
			before = *each[o.node]
		}
		if f := before.newest(o.call); rev < f || wrote && rev == f {
			v.c.violateAt(o.back, "took effect at revision %d though revision %d was answered before it began: %v", rev, f, o)
		}
	}
}

// answers are the newest revisions that had been answered, over time.
type answers struct {
	at  []time.Duration
	rev []int64
}

// add takes an answer not earlier than the last.
func (a *answers) add(o *op) {
	rev := o.rev
	if n := len(a.rev); n > 0 {
		rev = max(rev, a.rev[n-1])
	}
	a.at, a.rev = append(a.at, o.back), append(a.rev, rev)
}

// newest is the newest revision answered before t.
func (a *answers) newest(t time.Duration) int64 {
	i, _ := slices.BinarySearch(a.at, t)
	if i == 0 {
		return 0
	}
	return a.rev[i-1]
}
