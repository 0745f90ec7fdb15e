package history

import (
	"errors"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// Event is one change that a watch told of.
type Event struct {
	Revision   int64
	Group, Key int
	Value      int64 // 0: the key was deleted
}

// writes are the changes that an answered request made, in the order of its steps.
func (o Output) writes(r Request) []Event {
	var all []Event
	for i, s := range o.branch(r) {
		switch {
		case s.Kind == Put:
			all = append(all, Event{o.Revision, r.Group, s.Key, s.Value})
		case s.Kind == Delete && o.Results[i].Deleted > 0:
			all = append(all, Event{o.Revision, r.Group, s.Key, 0})
		}
	}
	return all
}

// CheckEvents holds the events of a watch, which began at revision first, against a history up to revision last. All
// revisions must be there, in order and once, with the changes of the requests that were acknowledged at them; those of others
// must be changes that a request without answer asked for. The error tells of the first few that do not fit.
func CheckEvents(ops []porcupine.Operation, events []Event, first, last int64) error {
	var wrong findings
	next := first
	for i, e := range events {
		if i > 0 && e.Revision == events[i-1].Revision && e != events[i-1] { // another change of the same revision
			continue
		}
		if e.Revision != next {
			wrong.add("event %d has revision %d where %d is due", i, e.Revision, next)
		}
		next = e.Revision + 1
	}
	if next != last+1 {
		wrong.add("the events end before revision %d, the last is %d", next, last)
	}
	return joined(append(wrong, checkChanges(ops, events)...))
}

// CheckChanges is CheckEvents for events that are known to be complete, and between which others may have used up revisions.
func CheckChanges(ops []porcupine.Operation, events []Event) error {
	return joined(checkChanges(ops, events))
}

// findings are the first few things that are wrong.
type findings []error

func (f *findings) add(format string, args ...any) {
	if len(*f) < 10 {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

func joined(wrong findings) error { return errors.Join(wrong...) }

func checkChanges(ops []porcupine.Operation, events []Event) findings {
	var wrong findings
	byRevision := map[int64][]Event{}
	for _, e := range events {
		byRevision[e.Revision] = append(byRevision[e.Revision], e)
	}
	acknowledged := map[int64]bool{}
	asked := map[Event]bool{} // by requests without answer; Revision is 0
	for _, op := range ops {
		r, out := op.Input.(Request), op.Output.(Output)
		if !out.Known {
			for _, s := range slices.Concat(r.Then, r.Else) {
				if s.Kind == Put || s.Kind == Delete {
					asked[Event{0, r.Group, s.Key, s.Value}] = true
				}
			}
			continue
		}
		want := out.writes(r)
		if len(want) == 0 {
			continue
		}
		if acknowledged[out.Revision] {
			wrong.add("two requests were acknowledged at revision %d, one being %v", out.Revision, r)
		}
		acknowledged[out.Revision] = true
		if got := byRevision[out.Revision]; !slices.Equal(got, want) {
			wrong.add("acknowledged at revision %d were %v, the watch told of %v", out.Revision, want, got)
		}
	}
	for _, e := range events {
		if !acknowledged[e.Revision] && !asked[Event{0, e.Group, e.Key, e.Value}] {
			wrong.add("nobody asked for the change %v", e)
		}
	}
	return wrong
}
