package check

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
)

// put is a key that operation number op of a list puts.
type put struct {
	key []byte
	op  int
}

// deletion is an interval that operation number op of a list deletes.
type deletion struct {
	begin []byte
	end   bound
	op    int
}

// bound is the end of an interval: the first key behind it, or nothing.
type bound struct {
	key  []byte
	none bool // no end
}

// holds reports whether key is before the end.
func (b bound) holds(key []byte) bool { return b.none || bytes.Compare(key, b.key) < 0 }

// before reports whether b ends before o.
func (b bound) before(o bound) bool {
	if b.none || o.none {
		return !b.none
	}
	return bytes.Compare(b.key, o.key) < 0
}

// writes is what a list of operations, or one operation, may write.
type writes struct {
	puts      []put
	deletions []deletion
}

// writesOf gathers what a list of operations writes, or returns [errs.ErrDuplicateKey] if two of
// them are in conflict, in this list or within a nested transaction.
func writesOf(ops []*rpcpb.RequestOp) (writes, error) {
	var all writes
	writers := 0
	for i, op := range ops {
		w, err := writesOfOp(op)
		if err != nil {
			return writes{}, err
		}
		if len(w.puts)+len(w.deletions) == 0 {
			continue
		}
		writers++
		for j := range w.puts {
			w.puts[j].op = i
		}
		for j := range w.deletions {
			w.deletions[j].op = i
		}
		all.puts = append(all.puts, w.puts...)
		all.deletions = append(all.deletions, w.deletions...)
	}
	if writers > 1 && all.conflict() {
		return writes{}, errs.ErrDuplicateKey
	}
	return all, nil
}

// writesOfOp gathers what one operation writes; the op numbers are the caller's to set.
func writesOfOp(op *rpcpb.RequestOp) (writes, error) {
	switch {
	case op.GetRequestPut() != nil:
		return writes{puts: []put{{key: op.GetRequestPut().GetKey()}}}, nil
	case op.GetRequestDeleteRange() != nil:
		d := op.GetRequestDeleteRange()
		return writes{deletions: []deletion{interval(d.GetKey(), d.GetRangeEnd())}}, nil
	case op.GetRequestTxn() != nil:
		success, err := writesOf(op.GetRequestTxn().GetSuccess())
		if err != nil {
			return writes{}, err
		}
		failure, err := writesOf(op.GetRequestTxn().GetFailure())
		if err != nil {
			return writes{}, err
		}
		return writes{
			puts:      append(success.puts, failure.puts...),
			deletions: append(success.deletions, failure.deletions...),
		}, nil
	default:
		return writes{}, nil
	}
}

// interval translates a pair from the wire.
func interval(key, rangeEnd []byte) deletion {
	switch {
	case len(rangeEnd) == 0: // the key alone: up to the next key there is
		return deletion{begin: key, end: bound{key: append(slices.Clone(key), 0)}}
	case len(rangeEnd) == 1 && rangeEnd[0] == 0:
		return deletion{begin: key, end: bound{none: true}}
	default:
		return deletion{begin: key, end: bound{key: rangeEnd}}
	}
}

// conflict reports whether two different operations write the same key, one of them by a put.
// It sorts the lists in place.
func (w *writes) conflict() bool {
	slices.SortFunc(w.puts, func(a, b put) int {
		return cmp.Or(bytes.Compare(a.key, b.key), cmp.Compare(a.op, b.op))
	})
	for i := 1; i < len(w.puts); i++ {
		a, b := w.puts[i-1], w.puts[i]
		if a.op != b.op && bytes.Equal(a.key, b.key) {
			return true
		}
	}
	slices.SortFunc(w.deletions, func(a, b deletion) int { return bytes.Compare(a.begin, b.begin) })
	var far reach
	next := 0
	for _, p := range w.puts {
		for next < len(w.deletions) && bytes.Compare(w.deletions[next].begin, p.key) <= 0 {
			far.add(w.deletions[next])
			next++
		}
		if far.holds(p) {
			return true
		}
	}
	return false
}

// reach remembers how far the deletions seen so far go: the one that goes furthest, and the
// furthest among those of other operations.
type reach struct {
	first, second       deletion
	hasFirst, hasSecond bool
}

func (r *reach) add(d deletion) {
	switch {
	case !r.hasFirst:
		r.first, r.hasFirst = d, true
	case d.op == r.first.op:
		if r.first.end.before(d.end) {
			r.first = d
		}
	case r.first.end.before(d.end):
		r.second, r.hasSecond = r.first, true
		r.first = d
	case !r.hasSecond || r.second.end.before(d.end):
		r.second, r.hasSecond = d, true
	}
}

// holds reports whether a deletion of an operation other than that of p reaches beyond its key.
// All deletions added begin at or before it.
func (r *reach) holds(p put) bool {
	if r.hasFirst && r.first.op != p.op {
		return r.first.end.holds(p.key)
	}
	return r.hasSecond && r.second.end.holds(p.key)
}
