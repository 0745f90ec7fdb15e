package query

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
)

// sorted answers in an order that is not the store's, keeping no more rows than it needs to.
func sorted(src Source, r *rpcpb.RangeRequest, visit func(row []byte) error) (Result, error) {
	limit := max(r.GetLimit(), 0)
	if limit > absurd {
		limit = 0
	}
	o := options(r)
	if r.GetSortOrder() == rpcpb.RangeRequest_NONE && limit > 0 && !hasFilter(r) {
		o.Limit = limit + 1
	}
	best := &selection{limit: limit, target: r.GetSortTarget(), descend: r.GetSortOrder() == rpcpb.RangeRequest_DESCEND}
	var kv kvpb.KeyValue
	res, err := src.Range(r.GetKey(), r.GetRangeEnd(), o, func(row []byte) error {
		if err := decode(&kv, row); err != nil {
			return err
		}
		if passes(&kv, r) {
			best.add(&kv, row)
		}
		return nil
	})
	out := Result{Rev: res.Rev, Count: res.Count, More: limit > 0 && best.seen > limit}
	if err != nil {
		return out, err
	}
	visit = stripping(r, visit)
	for _, c := range best.rows() {
		if err := visit(c.row); err != nil {
			return out, err
		}
	}
	return out, nil
}

// absurd is a limit no store can reach; above it arithmetic might overflow.
const absurd = 1 << 48

// candidate is a row that may be in the answer.
type candidate struct {
	row   []byte
	key   []byte
	value []byte // only when sorting by value
	num   int64  // what is sorted by otherwise
}

// selection keeps the first limit rows in the wanted order out of all that are added, or all
// of them when there is no limit.
type selection struct {
	limit   int64
	target  rpcpb.RangeRequest_SortTarget
	descend bool
	seen    int64
	kept    []candidate
	full    bool // kept[limit-1] is the last that has a chance
}

// slack is how many more rows than twice the limit are kept before the worst are thrown out, so
// that small limits do not sort all the time.
const slack = 64

func (s *selection) add(kv *kvpb.KeyValue, row []byte) {
	s.seen++
	c := candidate{row: row, key: kv.Key}
	switch s.target {
	case rpcpb.RangeRequest_VERSION:
		c.num = kv.Version
	case rpcpb.RangeRequest_CREATE:
		c.num = kv.CreateRevision
	case rpcpb.RangeRequest_MOD:
		c.num = kv.ModRevision
	case rpcpb.RangeRequest_VALUE:
		c.value = kv.Value
	}
	if s.full && s.compare(s.kept[s.limit-1], c) <= 0 {
		return
	}
	s.kept = append(s.kept, c.owned())
	if s.limit > 0 && int64(len(s.kept))-slack >= 2*s.limit {
		s.prune()
	}
}

// owned copies what points into the store.
func (c candidate) owned() candidate {
	c.row = bytes.Clone(c.row)
	c.key = bytes.Clone(c.key)
	c.value = bytes.Clone(c.value)
	return c
}

// prune throws out what cannot be in the answer any more.
func (s *selection) prune() {
	slices.SortFunc(s.kept, s.compare)
	clear(s.kept[s.limit:])
	s.kept = s.kept[:s.limit]
	s.full = true
}

// rows returns the answer in order.
func (s *selection) rows() []candidate {
	slices.SortFunc(s.kept, s.compare)
	if s.limit > 0 && int64(len(s.kept)) > s.limit {
		return s.kept[:s.limit]
	}
	return s.kept
}

// compare is the wanted order. Keys are distinct, so it is total.
func (s *selection) compare(a, b candidate) int {
	var c int
	switch s.target {
	case rpcpb.RangeRequest_KEY:
		c = bytes.Compare(a.key, b.key)
	case rpcpb.RangeRequest_VALUE:
		c = bytes.Compare(a.value, b.value)
	default:
		c = cmp.Compare(a.num, b.num)
	}
	if s.descend {
		c = -c
	}
	return cmp.Or(c, bytes.Compare(a.key, b.key))
}
