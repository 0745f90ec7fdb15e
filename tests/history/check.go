package history

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// End is the time of return of a request that may take effect at any time.
const End = math.MaxInt64

// Verdict is the result of checking one group.
type Verdict struct {
	Group  int
	Result porcupine.CheckResult
	Size   int // number of operations
	Took   time.Duration
	Info   porcupine.LinearizationInfo
}

// Check checks each group of a history; those that are not known to be linearizable after limit are porcupine.Unknown. Operations without answer should have been through
// Resolve; those that are left take effect at any time after their call, or never.
func Check(ops []porcupine.Operation, limit time.Duration) []Verdict {
	groups := map[int][]porcupine.Operation{}
	for _, op := range ops {
		if out := op.Output.(Output); !out.Known {
			op.Return = End
		}
		g := op.Input.(Request).Group
		groups[g] = append(groups[g], op)
	}
	var all []Verdict
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		begin := time.Now()
		result, info := porcupine.CheckOperationsVerbose(Model(), groups[g], limit)
		all = append(all, Verdict{g, result, len(groups[g]), time.Since(begin), info})
	}
	return all
}

// Resolve settles what can be settled of the requests without answer, by the events of a watch over all keys from the first revision
// to the last. It gives the history without those that were not applied. An error names a value written twice.
func Resolve(ops []porcupine.Operation, events []Event) ([]porcupine.Operation, error) {
	applied := map[int64]int64{} // value to revision
	for _, e := range events {
		if e.Value == 0 {
			continue
		}
		if rev, twice := applied[e.Value]; twice {
			return nil, fmt.Errorf("the value %d was written at revision %d and again at %d", e.Value, rev, e.Revision)
		}
		applied[e.Value] = e.Revision
	}
	deletes := openDeletes(ops, events)
	var settled []porcupine.Operation
	for _, op := range ops {
		r, out := op.Input.(Request), op.Output.(Output)
		if out.Known {
			settled = append(settled, op)
			continue
		}
		rev, keep := outcome(r, applied, deletes)
		if keep {
			op.Output = Output{Revision: rev}
			settled = append(settled, op)
		}
	}
	return settled, nil
}

// outcome is the revision at which a request without answer was applied, 0 if that is open. Without keep it had no effect.
func outcome(r Request, applied map[int64]int64, deletes map[string]bool) (rev int64, keep bool) {
	puts := false
	for _, s := range slices.Concat(r.Then, r.Else) {
		if s.Kind != Put {
			continue
		}
		puts = true
		if rev := applied[s.Value]; rev > 0 {
			return rev, true
		}
	}
	if puts {
		return 0, false
	}
	for _, s := range slices.Concat(r.Then, r.Else) {
		if s.Kind == Delete && deletes[Name(r.Group, s.Key)] {
			return 0, true
		}
	}
	return 0, false
}

// openDeletes are the keys that were deleted by requests without answer.
func openDeletes(ops []porcupine.Operation, events []Event) map[string]bool {
	claimed := map[int64]bool{}
	for _, op := range ops {
		if out := op.Output.(Output); out.Known && len(out.writes(op.Input.(Request))) > 0 {
			claimed[out.Revision] = true
		}
	}
	open := map[string]bool{}
	for _, e := range events {
		if e.Value == 0 && !claimed[e.Revision] {
			open[Name(e.Group, e.Key)] = true
		}
	}
	return open
}
