package mvcc

import (
	"slices"
	"sync"

	"github.com/coordd/coordd/mvcc/index"
)

const defaultPages = 32

// page is the index as of a revision.
type page struct {
	rev   int64
	index index.Snapshot
}

// pages remembers the snapshots of the index at which pages of listings were read lately, since their next pages
// are read at the same revision. The least recently used goes first.
type pages struct {
	max  int
	mu   sync.Mutex
	list []page // guarded by mu; the most recently used is last
}

// get finds the snapshot of rev.
func (p *pages) get(rev int64) (index.Snapshot, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.list, func(x page) bool { return x.rev == rev })
	if i < 0 {
		return index.Snapshot{}, false
	}
	x := p.list[i]
	p.list = append(slices.Delete(p.list, i, i+1), x)
	return x.index, true
}

// put remembers the snapshot of rev.
func (p *pages) put(rev int64, s index.Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.IndexFunc(p.list, func(x page) bool { return x.rev == rev }); i >= 0 {
		p.list = slices.Delete(p.list, i, i+1)
	} else if len(p.list) >= p.max {
		p.list = slices.Delete(p.list, 0, 1)
	}
	p.list = append(p.list, page{rev, s})
}

// forget drops the snapshots of revisions before rev, which can be read no more.
func (p *pages) forget(rev int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = slices.DeleteFunc(p.list, func(x page) bool { return x.rev < rev })
}
