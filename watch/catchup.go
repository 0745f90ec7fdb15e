package watch

import (
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/mvcc"
)

const (
	// passSpan is the largest number of revisions in one pass.
	passSpan = 1000
	// lastStep is the largest number of events that a pass takes from the ring with Publish locked out, to close the
	// gap that has opened since it began.
	lastStep = 64
)

// catchUp is the hub's goroutine.
func (h *Hub) catchUp() {
	defer close(h.done)
	for {
		select {
		case <-h.stopped:
			return
		case <-h.wakeup:
		}
		for h.pass() {
			select {
			case <-h.stopped:
				return
			default:
			}
		}
	}
}

// pass is one round of catching up.
type pass struct {
	store    *mvcc.Store
	members  []*watcher
	index    index // of members
	from, to int64 // revisions; to shrinks to the last one gathered in full …
	cut      bool  // … when the bytes gathered end the pass early
	old      bool  // the ring does not reach back to from
	recent   []*event
	hit      []*watcher // members that the event at hand is for
	bytes    int        // of the events gathered
	err      error
}

// pass serves the watcher whose turn it is, and all that lag about as much. It reports whether there was one.
func (h *Hub) pass() bool {
	h.passMu.Lock()
	defer h.passMu.Unlock()
	p := h.choose()
	if p == nil {
		return false
	}
	for _, w := range p.members {
		p.index.add(w)
	}
	if p.old {
		p.readHistory(h.o.PassBytes)
	} else {
		p.readRing(h.o.PassBytes)
	}
	p.addPrevious()
	h.finish(p)
	return true
}

// choose picks the watchers of the next pass and its revisions; nil if no stream with room has lagging watchers.
func (h *Hub) choose() *pass {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropSettled()
	var p *pass
	for _, s := range h.late {
		if s.queued.Load() >= int64(s.limit) {
			continue
		}
		s.lagging = slices.DeleteFunc(s.lagging, func(w *watcher) bool { return w.state != lagging })
		if p == nil {
			from := s.lagging[0].next
			p = &pass{store: h.store, from: from, to: min(h.rev, from+passSpan-1)}
		}
		for _, w := range s.lagging {
			if p.from <= w.next && w.next <= p.to {
				p.members = append(p.members, w)
			}
		}
	}
	if p == nil {
		return nil
	}
	if p.old = p.from < h.ring.first; !p.old {
		p.recent = h.ring.between(p.from, p.to)
	}
	return p
}

// dropSettled takes the streams without lagging watchers off the list of late ones.
func (h *Hub) dropSettled() {
	h.late = slices.DeleteFunc(h.late, func(s *Stream) bool {
		if s.nLagging > 0 {
			return false
		}
		s.lagging = nil
		s.behind.Store(false)
		return true
	})
}

// match finds the members that want the event with these properties, for give.
func (p *pass) match(key []byte, rev int64, tombstone bool) bool {
	probe := event{rev: rev, tombstone: tombstone}
	p.hit = p.hit[:0]
	p.index.match(key, func(w *watcher) {
		if w.wants(&probe) {
			p.hit = append(p.hit, w)
		}
	})
	return len(p.hit) > 0
}

// give hands e to the members just matched.
func (p *pass) give(e *event) {
	p.bytes += e.size()
	for _, w := range p.hit {
		w.caught = append(w.caught, e)
	}
}

// full reports whether the pass has to end before an event of revision rev, and if so ends it. last is the revision of
// the event before.
func (p *pass) full(rev, last int64, limit int) bool {
	if p.bytes < limit || rev == last {
		return false
	}
	p.to, p.cut = last, true
	return true
}

// readRing gathers from the ring.
func (p *pass) readRing(limit int) {
	last := p.from - 1
	for _, e := range p.recent {
		if p.full(e.rev, last, limit) {
			return
		}
		last = e.rev
		if p.match(e.key, e.rev, e.tombstone) {
			p.give(e)
		}
	}
}

// readHistory gathers from the store.
func (p *pass) readHistory(limit int) {
	last := p.from - 1
	p.err = p.store.History(p.from, p.to, func(src mvcc.Event) bool {
		if p.full(src.Rev.Main, last, limit) {
			return false
		}
		last = src.Rev.Main
		if p.match(src.Key, last, src.Tombstone) {
			p.give(encodeOne(&src))
		}
		return true
	})
}

// addPrevious looks up the previous pairs for the members that want them. That is not done while reading history,
// since the store's readers must not be nested.
func (p *pass) addPrevious() {
	for _, w := range p.members {
		if w.prevKV {
			p.previous(w, 0)
		}
	}
}

// previous looks up the previous pairs of w's events, from the one at index i on. A pair that is compacted is not
// delivered, even if some watcher got it in time.
func (p *pass) previous(w *watcher, i int) {
	compacted := p.store.CompactedRevision()
	for ; i < len(w.caught); i++ {
		if e := w.caught[i]; e.rev-1 < compacted {
			w.caught[i] = e.withoutPrev()
		} else {
			e.lookUpPrev(p.store)
		}
	}
}

// finish queues what the members got, and makes them live if that was all there is.
func (h *Hub) finish(p *pass) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.batch++
	compacted := p.store.CompactedRevision()
	switch {
	case p.old && p.from < compacted:
		h.overtaken(p, compacted)
	case p.err != nil:
		h.failed(p)
	default:
		h.closeGap(p)
		for _, w := range p.members {
			// A watcher may have been cancelled meanwhile, or not be reached by a pass that ended early.
			if w.state == lagging && w.next <= p.to {
				h.advance(w, p.to)
			}
		}
	}
	for _, w := range p.members {
		w.caught = nil
	}
	h.flush()
	h.rotate(p)
}

// closeGap extends p by what was published since it began, if it has got that far and it is little.
func (h *Hub) closeGap(p *pass) {
	if p.cut || p.to == h.rev || p.to+1 < h.ring.first {
		return
	}
	gap := h.ring.between(p.to+1, h.rev)
	if len(gap) > lastStep {
		return
	}
	bytes := p.bytes
	for _, e := range gap {
		bytes += e.size()
	}
	if bytes > h.o.PassBytes {
		return
	}
	had := make([]int, len(p.members))
	for i, w := range p.members {
		had[i] = len(w.caught)
	}
	for _, e := range gap {
		if p.match(e.key, e.rev, e.tombstone) {
			p.give(e)
		}
	}
	for i, w := range p.members {
		if w.prevKV {
			p.previous(w, had[i])
		}
	}
	p.to = h.rev
}

// advance queues what w, which lags, has caught up to revision to, and makes it live if that is the hub's.
func (h *Hub) advance(w *watcher, to int64) {
	s := w.stream
	w.next = to + 1
	if len(w.caught) > 0 {
		w.recent = true
		h.touch(s)
		s.staged = append(s.staged, entry{w: w, events: w.caught, rev: h.rev})
		s.stagedN += len(w.caught)
		for _, e := range w.caught {
			s.stagedB += e.size()
		}
	}
	if to == h.rev {
		w.state = live
		s.nLagging--
		h.stats.slow.Add(-1)
	}
}

// overtaken ends a pass whose history was compacted while, or before, it was read: what it gathered may have gaps. The
// members that need what is gone are cancelled, the others go into a later pass.
func (h *Hub) overtaken(p *pass, compacted int64) {
	for _, w := range p.members {
		if w.state == lagging && w.next < compacted {
			h.kill(w, compacted)
		}
	}
}

// failed ends the streams of a pass whose history cannot be read: their watchers cannot go on without a gap.
func (h *Hub) failed(p *pass) {
	err := p.err
	if errors.Is(err, errs.ErrCompacted) {
		err = errors.New("watch: the store calls revisions compacted that it says it has: " + err.Error())
	}
	h.o.Logger.Error("cannot read the history that watchers need; their streams end",
		zap.Int64("from-revision", p.from), zap.Int64("to-revision", p.to), zap.Error(err))
	for _, w := range p.members {
		if w.state == lagging {
			w.stream.fail(err)
			h.forget(w)
		}
	}
}

// rotate puts the members that still lag behind the other watchers of their streams, and these streams behind the others.
func (h *Hub) rotate(p *pass) {
	for _, w := range p.members {
		w.served, w.stream.served = h.batch, h.batch
	}
	var others, served []*Stream
	for _, s := range h.late {
		if s.served != h.batch {
			others = append(others, s)
			continue
		}
		served = append(served, s)
		var first, then []*watcher
		for _, w := range s.lagging {
			switch {
			case w.state != lagging:
			case w.served == h.batch:
				then = append(then, w)
			default:
				first = append(first, w)
			}
		}
		s.lagging = append(first, then...)
	}
	h.late = append(others, served...)
	h.dropSettled()
}
