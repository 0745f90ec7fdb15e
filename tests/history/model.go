package history

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// state is what a group holds. It is comparable, and copied rather than changed.
type state struct {
	cells [GroupKeys]Cell
	last  int64 // the newest revision seen
}

// Model is the specification of one group, for porcupine. Inputs are Requests, outputs are Outputs.
func Model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(s, in, out any) (bool, any) {
			next, ok := s.(state).step(in.(Request), out.(Output))
			return ok, next
		},
		DescribeOperation: func(in, out any) string {
			return fmt.Sprintf("%v → %s", in, out.(Output).describe(in.(Request)))
		},
		DescribeState: func(s any) string {
			return fmt.Sprintf("%v @%d", s.(state).cells, s.(state).last)
		},
	}
}

// step does a request. ok tells whether it could have had that output.
func (s state) step(r Request, out Output) (next state, ok bool) {
	steps := r.Then
	if r.If != nil {
		holds := s.cells[r.If.Key].Value == r.If.Value
		if out.Known && out.Succeeded != holds {
			return s, false
		}
		if !holds {
			steps = r.Else
		}
	}
	rev := out.Revision
	if rev == 0 {
		rev = Unknown
	}
	next, wrote := s, false
	for i, st := range steps {
		var result *Result
		if out.Known {
			result = &out.Results[i]
		}
		w, ok := next.do(st, rev, result)
		if !ok {
			return s, false
		}
		wrote = wrote || w
	}
	return next, next.advance(s.last, wrote, out)
}

// do does one step; result is nil if it is not known.
func (s *state) do(st Step, rev int64, result *Result) (wrote, ok bool) {
	cell := &s.cells[st.Key]
	switch st.Kind {
	case Put:
		*cell = Cell{st.Value, rev}
		return true, true
	case Delete:
		existed := cell.Value != 0
		if result != nil && (result.Deleted == 1) != existed {
			return false, false
		}
		*cell = Cell{}
		return existed, true
	case Get:
		return false, result == nil || cell.matches(result.Cells[st.Key])
	default:
		for i := range s.cells {
			if result != nil && !s.cells[i].matches(result.Cells[i]) {
				return false, false
			}
		}
		return false, true
	}
}

// matches tells whether a read could give got, and learns a revision from it.
func (c *Cell) matches(got Cell) bool {
	if c.Revision == Unknown && c.Value == got.Value {
		c.Revision = got.Revision
	}
	return *c == got
}

// advance moves the newest revision on from last, and tells whether the revision of the output fits there.
func (s *state) advance(last int64, wrote bool, out Output) bool {
	switch {
	case out.Revision == 0: // anything may have happened
		return true
	case !out.Known && !wrote: // it was found to have written
		return false
	case out.Revision < last || wrote && out.Revision == last:
		return false
	}
	s.last = out.Revision
	return true
}
