package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/server"
	"github.com/coordd/coordd/watch"
)

// watcher watches for the whole run, on one member after the other. What it is told is checked at once
// as far as one watcher can see, and against the ledger at the end.
type watcher struct {
	c      *cluster
	name   string
	rng    *rand.Rand
	prefix string // "" = all keys
	scribe bool   // it writes the ledger, from the first revision on
	prevKV bool

	sessions []*session // run's until it has ended
}

// session is one watch on one member: a stretch of revisions of which all was told.
type session struct {
	w       *watcher
	i       int // of the member
	member  string
	from    int64 // the first revision it was to tell; 0 = not known yet
	seen    int64 // all up to here was told
	created bool
	done    bool
	events  []told
}

// told is an event and the pair before it, if that was asked for.
type told struct {
	event
	prev    cell
	hasPrev bool
	at      time.Duration
}

func newWatcher(c *cluster, i int, scribe bool) *watcher {
	w := &watcher{c: c, name: fmt.Sprintf("watcher %d", i), rng: rand.New(rand.NewPCG(c.seed, uint64(30000+i))), scribe: scribe}
	if !scribe {
		w.prefix = [...]string{"", registerPrefix, registerPrefix + "0", leasePrefix}[w.rng.IntN(4)]
	}
	w.prevKV = w.rng.IntN(2) == 0
	return w
}

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context) {
	next := int64(firstRevision)
	for ctx.Err() == nil {
		i, n, life := w.c.pick(w.rng)
		if n == nil {
			pause(ctx, 20*time.Millisecond)
			continue
		}
		s := &session{w: w, i: i, member: w.c.members[i].name, from: next}
		if !w.scribe && w.rng.IntN(3) == 0 { // from another revision: now, or any of the past
			s.from = 0
			if w.rng.IntN(2) == 0 {
				s.from = max(1, w.c.ledger.complete()-int64(w.rng.IntN(300))+10)
			}
		}
		s.seen = s.from - 1
		w.sessions = append(w.sessions, s)
		begin := w.c.now()
		limit, cancel := within(ctx, life, time.Duration(100+w.rng.IntN(8000))*time.Millisecond)
		s.run(limit, n)
		cancel()
		if w.c.now() == begin {
			breathe(ctx)
		}
		if s.seen >= firstRevision {
			next = s.seen + 1
		}
	}
}

// run takes what the stream tells until ctx or the stream ends.
func (s *session) run(ctx context.Context, n *server.Node) {
	w := s.w
	stream := n.Hub().Open(watch.StreamOptions{QueueBytes: 200 << w.rng.IntN(12)})
	defer stream.Close()
	o := watch.CreateOptions{Key: []byte{0}, End: []byte{0}, Start: s.from, PrevKV: w.prevKV, Progress: true}
	if w.prefix != "" {
		o.Key = []byte(w.prefix)
		o.End = []byte(w.prefix[:len(w.prefix)-1] + string(w.prefix[len(w.prefix)-1]+1))
	}
	if _, err := stream.Create(o); err != nil {
		if !errors.Is(err, watch.ErrHubClosed) && ctx.Err() == nil {
			w.c.violate("%s cannot watch at %s: %v", w.name, s.member, err)
		}
		return
	}
	for ctx.Err() == nil && !s.done {
		short, cancel := context.WithTimeout(ctx, time.Duration(20+w.rng.IntN(500))*time.Millisecond)
		responses, err := stream.Next(short)
		expired := short.Err() != nil
		cancel()
		w.c.awake(ctx, s.i)
		switch {
		case err != nil && expired && ctx.Err() == nil:
			stream.RequestProgress()
			continue
		case err != nil || ctx.Err() != nil: // what comes after the power went is not told
			return
		}
		for i := range responses {
			if err := s.take(&responses[i]); err != nil {
				w.c.violate("%s at %s, from revision %d, having seen %d: %v", w.name, s.member, s.from, s.seen, err)
				s.done = true
				return
			}
		}
		if w.rng.IntN(3) == 0 { // there is room again, and what had none may not have been caught up with
			stream.RequestProgress()
		}
		if w.rng.IntN(4) == 0 { // a slow reader
			pause(ctx, time.Duration(w.rng.IntN(100))*time.Millisecond)
		}
	}
}

// take checks one response.
func (s *session) take(r *watch.Response) error {
	switch {
	case r.Created && r.Canceled:
		return fmt.Errorf("refused: %s", r.Reason)
	case r.Created:
		if s.created {
			return errors.New("created twice")
		}
		s.created = true
		if s.from == 0 {
			s.from, s.seen = r.Revision+1, r.Revision
		}
		return nil
	case !s.created:
		return errors.New("a response before the answer to the create")
	case r.Canceled:
		s.done = true
		if r.CompactRevision <= s.seen+1 {
			return fmt.Errorf("cancelled by a compaction at %d, which does not hurt it", r.CompactRevision)
		}
		s.seen = r.CompactRevision - 1 // go on from there, with a hole
		return nil
	}
	events, err := r.Events()
	if err != nil {
		return err
	}
	if len(events) == 0 {
		return s.progress(r.Revision)
	}
	s.w.c.count(func(st *Stats) { st.Events += len(events) })
	return s.takeEvents(r.Revision, events)
}

// progress checks a notice: all up to rev has been told.
func (s *session) progress(rev int64) error {
	if rev < s.seen && s.seen >= s.from {
		return fmt.Errorf("progress at revision %d after events up to %d", rev, s.seen)
	}
	s.w.c.count(func(st *Stats) { st.Notices++ })
	s.seen = max(s.seen, rev)
	return nil
}

// takeEvents checks that whole revisions come in order, once each, and none ahead of the header.
func (s *session) takeEvents(header int64, events []*kvpb.Event) error {
	for i := 0; i < len(events); {
		rev := events[i].Kv.ModRevision
		if rev <= s.seen {
			return fmt.Errorf("an event of revision %d after all up to %d was told", rev, s.seen)
		}
		if rev > header {
			return fmt.Errorf("an event of revision %d under a header of revision %d", rev, header)
		}
		var group []event
		for ; i < len(events) && events[i].Kv.ModRevision == rev; i++ {
			e := event{key: string(events[i].Kv.Key), tombstone: events[i].Type == kvpb.Event_DELETE, cell: cellOf(events[i].Kv)}
			if !strings.HasPrefix(e.key, s.w.prefix) {
				return fmt.Errorf("an event of %s, which it does not watch", e.key)
			}
			if events[i].PrevKv != nil && !s.w.prevKV {
				return fmt.Errorf("the event of %s has a previous pair, which was not asked for", e.key)
			}
			group = append(group, e)
			s.events = append(s.events, told{e, cellOf(events[i].PrevKv), events[i].PrevKv != nil, s.w.c.now()})
		}
		s.seen = rev
		if s.w.scribe {
			if err := s.w.c.ledger.add(rev, group, s.w.c.now(), s.w.name+" at "+s.member); err != nil {
				return err
			}
		}
	}
	return nil
}

// check holds a session against the ledger: of the revisions it covers, it was told exactly what it watches.
func (s *session) check(r *replay, compacted func(rev int64, by time.Duration) bool) error {
	var want []event
	to := s.seen
	if s.done && len(s.events) > 0 { // ended by a compaction: it has a hole after its last event
		to = s.events[len(s.events)-1].cell.Mod
	} else if s.done {
		return nil
	}
	for rev := max(s.from, firstRevision); rev <= min(to, r.last); rev++ {
		for _, e := range r.l.changes[rev].events {
			if strings.HasPrefix(e.key, s.w.prefix) {
				want = append(want, e)
			}
		}
	}
	for i := range max(len(want), len(s.events)) {
		switch {
		case i >= len(s.events):
			return fmt.Errorf("%s at %s, revisions %d to %d, was not told %+v", s.w.name, s.member, s.from, to, want[i])
		case i >= len(want):
			return fmt.Errorf("%s at %s, revisions %d to %d, was told %+v, which did not happen", s.w.name, s.member, s.from, to, s.events[i])
		case s.events[i].event != want[i]:
			return fmt.Errorf("%s at %s, revisions %d to %d, was told %+v where %+v happened", s.w.name, s.member, s.from, to, s.events[i].event, want[i])
		}
		if err := s.checkPrev(r, s.events[i], compacted); err != nil {
			return err
		}
	}
	return nil
}

// checkPrev holds the previous pair of an event against the ledger. It may be missing only if
// it did not exist or compaction has taken it.
func (s *session) checkPrev(r *replay, e told, compacted func(rev int64, by time.Duration) bool) error {
	if !s.w.prevKV {
		return nil
	}
	prev := r.at(e.key, e.cell.Mod-1)
	switch {
	case e.hasPrev && e.prev != prev:
		return fmt.Errorf("%s at %s: the event of %s at revision %d comes with %+v as the pair before, it was %+v", s.w.name, s.member, e.key, e.cell.Mod, e.prev, prev)
	case !e.hasPrev && prev.Version > 0 && !compacted(e.cell.Mod, e.at):
		return fmt.Errorf("%s at %s: the event of %s at revision %d comes without the pair before, %+v", s.w.name, s.member, e.key, e.cell.Mod, prev)
	}
	return nil
}
