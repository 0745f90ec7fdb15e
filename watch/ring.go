package watch

import "sort"

// ring holds the newest events in revision order, whole revisions only, up to a number of bytes. Guarded by Hub.mu;
// a slice it has handed out may be read without the lock, since elements are never overwritten: the
// live part moves to a new array when enough of the old one has been given up.
type ring struct {
	all   []*event // all[start:] is the live part
	start int
	first int64 // every event from this revision on is here
	bytes int   // of the live part
	given int   // bytes of all[:start], which the array still holds
	limit int
}

// reset empties the ring; the next event will be of revision next or later.
func (r *ring) reset(next int64) {
	*r = ring{first: next, limit: r.limit}
}

// add appends whole revisions and gives up the oldest ones beyond the limit.
func (r *ring) add(batch []*event) {
	r.all = append(r.all, batch...)
	for _, e := range batch {
		r.bytes += e.size()
	}
	for r.bytes > r.limit && r.start < len(r.all) {
		for rev := r.all[r.start].rev; r.start < len(r.all) && r.all[r.start].rev == rev; r.start++ {
			r.bytes -= r.all[r.start].size()
			r.given += r.all[r.start].size()
			r.first = rev + 1
		}
	}
	if r.given > r.limit/2 || r.start > 1024 && r.start > len(r.all)/2 {
		live := r.all[r.start:]
		r.all = append(make([]*event, 0, len(live)+len(live)/2+64), live...)
		r.start, r.given = 0, 0
	}
}

// between returns the events with from ≤ revision ≤ to. from must not be below r.first.
func (r *ring) between(from, to int64) []*event {
	live := r.all[r.start:]
	i := sort.Search(len(live), func(i int) bool { return live[i].rev >= from })
	j := i + sort.Search(len(live)-i, func(j int) bool { return live[i+j].rev > to })
	return live[i:j:j]
}
