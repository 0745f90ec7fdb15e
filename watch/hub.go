package watch

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/coordd/coordd/mvcc"
)

// Options are the settings of a hub. The zero value is good for a server.
type Options struct {
	// RingBytes bounds the memory of recent events, without the previous pairs some are kept with; 0 = 16 MiB.
	RingBytes int
	// QueueBytes bounds the events that wait in one stream; 0 = 1 MiB. Events are counted for each watcher that gets
	// them, though they are in memory once.
	QueueBytes int
	// PassBytes bounds the events that one catch-up pass gathers, and with it the size of a response; 0 = 3 MiB, which
	// clients with a limit of 4 MiB per message can take.
	PassBytes int
	// FragmentBytes is the size from which a response is split for a watcher that asked for it; 0 = 2 MiB. The API says
	// the server's limit for requests plus 512 KiB.
	FragmentBytes int
	// ProgressInterval is how long a watcher that asked for progress notices must be without events to get one; 0 = 10
	// minutes; at least 100 ms.
	ProgressInterval time.Duration
	// Jitter returns a duration from 0 up to and including its argument that is added to the interval of a stream, so that
	// not all notices of all streams are due at once; nil = uniformly random.
	Jitter func(upTo time.Duration) time.Duration
	// Tick returns a channel that ticks at an interval, and a function to end it; nil = time.NewTicker.
	Tick func(every time.Duration) (ticks <-chan time.Time, stop func())
	// Logger gets what an operator should know; nil = none.
	Logger *zap.Logger
}

func (o Options) withDefaults() Options {
	set := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	set(&o.RingBytes, 16<<20)
	set(&o.QueueBytes, 1<<20)
	set(&o.PassBytes, 3<<20)
	set(&o.FragmentBytes, 2<<20)
	if o.ProgressInterval == 0 {
		o.ProgressInterval = 10 * time.Minute
	}
	o.ProgressInterval = max(o.ProgressInterval, 100*time.Millisecond)
	if o.Jitter == nil {
		o.Jitter = func(upTo time.Duration) time.Duration { return rand.N(upTo + 1) }
	}
	if o.Tick == nil {
		o.Tick = func(every time.Duration) (<-chan time.Time, func()) {
			t := time.NewTicker(every)
			return t.C, t.Stop
		}
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

// Hub gives the events of one store to the streams opened on it. All methods but Publish and Swap may be called by any
// goroutine.
type Hub struct {
	o       Options
	wakeup  chan struct{} // there may be something to catch up
	stopped chan struct{}
	done    chan struct{} // the catch-up goroutine has ended
	stats   counters

	passMu sync.Mutex // held during a pass

	mu      sync.Mutex
	store   *mvcc.Store
	rev     int64 // everything up to it was published
	ring    ring
	index   index
	streams map[*Stream]struct{}
	late    []*Stream // those marked behind, first in, first served
	batch   uint64    // counts Publish calls and passes
	touched []*Stream // got something in this batch
	closed  bool
}

// New returns a hub for store, whose current revision is where live watchers begin. Close must be called.
func New(store *mvcc.Store, o Options) *Hub {
	h := &Hub{
		o:       o.withDefaults(),
		wakeup:  make(chan struct{}, 1),
		stopped: make(chan struct{}),
		done:    make(chan struct{}),
		store:   store,
		rev:     store.Revision(),
		streams: make(map[*Stream]struct{}),
	}
	h.ring.limit = h.o.RingBytes
	h.ring.reset(h.rev + 1)
	go h.catchUp()
	return h
}

// Close ends all streams with ErrHubClosed and the hub's goroutine. It may be called more than once.
func (h *Hub) Close() {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.stopped)
	}
	streams := h.streams
	h.streams = make(map[*Stream]struct{})
	h.mu.Unlock()
	for s := range streams {
		s.fail(ErrHubClosed)
	}
	<-h.done
}

// Revision returns the revision up to which events have been published.
func (h *Hub) Revision() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rev
}

// Publish hands the events of the revisions after the last call's rev and up to this rev to the watchers. Readers of the
// store must find them already. It keeps no memory of events. Only the apply loop may call it, in order; it never waits for
// a reader of a stream.
func (h *Hub) Publish(rev int64, events []mvcc.Event) {
	batch := encodeBatch(events)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ring.add(batch)
	h.rev = rev
	h.batch++
	i, slowed := 0, false
	visit := func(w *watcher) {
		if w.state == live && w.wants(batch[i]) {
			slowed = !h.stage(w, batch, i) || slowed
		}
	}
	for ; i < len(batch); i++ {
		h.index.match(batch[i].key, visit)
	}
	h.flush()
	if slowed {
		h.kick()
	}
}

// stage gives batch[i] to a live watcher. If its stream is full the watcher lags from there on, and stage reports false.
func (h *Hub) stage(w *watcher, batch []*event, i int) bool {
	e, s := batch[i], w.stream
	if !h.touch(s) {
		h.lag(w, e.rev)
		return false
	}
	if w.prevKV {
		e.lookUpPrev(h.store)
	}
	w.recent = true
	s.stagedN++
	s.stagedB += e.size()
	if w.batch != h.batch {
		w.batch, w.slot, w.run = h.batch, len(s.staged), i
		s.staged = append(s.staged, entry{w: w, events: batch[i : i+1 : i+1], rev: h.rev})
		return true
	}
	// While the watcher's events follow one another in the batch, its entry is just a longer piece of it.
	got := &s.staged[w.slot]
	if w.run >= 0 && w.run+len(got.events) == i {
		got.events = batch[w.run : i+1 : i+1]
	} else {
		got.events, w.run = append(got.events, e), -1
	}
	return true
}

// touch notes that s gets something in this batch, and reports whether it has room for all it may get.
func (h *Hub) touch(s *Stream) bool {
	if s.batch != h.batch {
		s.batch = h.batch
		s.full = s.queued.Load() >= int64(s.limit)
		h.touched = append(h.touched, s)
	}
	return !s.full
}

// flush passes on what the batch has staged.
func (h *Hub) flush() {
	for _, s := range h.touched {
		if len(s.staged) > 0 {
			s.flush()
		}
	}
	clear(h.touched)
	h.touched = h.touched[:0]
}

// lag takes w, which is live, out of Publish's care: next is the first revision it has not been given.
func (h *Hub) lag(w *watcher, next int64) {
	s := w.stream
	w.state, w.next = lagging, next
	if !s.behind.Load() {
		s.behind.Store(true)
		h.late = append(h.late, s)
	}
	s.lagging = append(s.lagging, w)
	s.nLagging++
	h.stats.slow.Add(1)
}

// kill cancels w because compaction has passed what it needs. It keeps its id.
func (h *Hub) kill(w *watcher, compacted int64) {
	h.leave(w)
	w.state = dead
	w.stream.nDead++
	w.stream.answer(Response{WatchID: w.id, Canceled: true, CompactRevision: compacted}, false)
}

// forget removes w altogether.
func (h *Hub) forget(w *watcher) {
	if w.state == dead {
		w.stream.nDead--
	} else {
		h.leave(w)
	}
	w.state = gone
	delete(w.stream.watchers, w.id)
	h.stats.watchers.Add(-1)
}

// leave takes w, which is live or lagging, out of the care of Publish and of the catch-up, whose list it is dropped from later.
func (h *Hub) leave(w *watcher) {
	h.index.remove(w)
	if w.state == lagging {
		w.stream.nLagging--
		h.stats.slow.Add(-1)
	}
}

// Swap continues with another store, which has everything the former had and perhaps more, without the events between. When
// it returns, the hub reads the former store no more. The apply loop calls it.
func (h *Hub) Swap(store *mvcc.Store) {
	h.passMu.Lock()
	defer h.passMu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.rev
	h.store, h.rev = store, store.Revision()
	h.ring.reset(h.rev + 1)
	for s := range h.streams {
		for _, w := range s.watchers {
			if w.state == live && max(w.next, before+1) <= h.rev {
				h.lag(w, max(w.next, before+1))
			}
		}
	}
	h.kick()
}

// kick wakes the catch-up goroutine.
func (h *Hub) kick() { signal(h.wakeup) }

// Stats are figures for metrics.
type Stats struct {
	Streams  int64 // open
	Watchers int64 // of all streams, dead ones too
	Slow     int64 // of these, those that lag
	Pending  int64 // events in queues, once for each watcher
	Sent     int64 // events taken from queues since the hub began, once for each watcher
}

type counters struct{ watchers, slow, pending, sent atomic.Int64 }

// Stats returns the present figures.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	streams := len(h.streams)
	h.mu.Unlock()
	return Stats{
		Streams:  int64(streams),
		Watchers: h.stats.watchers.Load(),
		Slow:     h.stats.slow.Load(),
		Pending:  h.stats.pending.Load(),
		Sent:     h.stats.sent.Load(),
	}
}
