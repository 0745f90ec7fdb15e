package watch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/api/errs"
)

// Errors of streams.
var (
	// ErrDuplicateID refuses a create whose id is in use on the stream. Its text is part of the API.
	ErrDuplicateID = errors.New("mvcc: duplicate watch ID provided on the WatchStream")
	// ErrEmptyRange refuses a create whose range holds no key. Its text is part of the API.
	ErrEmptyRange = errors.New("mvcc: watcher range is empty")
	// ErrClosed is returned on a stream after its Close.
	ErrClosed = errors.New("watch: the stream is closed")
	// ErrHubClosed is returned on all streams after Close of their hub.
	ErrHubClosed = errors.New("watch: the hub is closed because the member stops")
)

// maxAnswers is how many answers may wait in a stream before WaitRoom blocks.
const maxAnswers = 1024

// keepEntries is how many entries an idle stream may have room for.
const keepEntries = 512

// StreamOptions are the settings of one stream. The zero value takes the hub's.
type StreamOptions struct {
	// QueueBytes bounds the events that wait for Next; 0 = Options.QueueBytes.
	QueueBytes int
}

// Stream is a set of watchers whose responses are read in one place. Any goroutine may call its methods, but only one
// at a time may be in Next.
type Stream struct {
	hub    *Hub
	limit  int // bytes of the queue from which on it is full
	wake   chan struct{}
	room   chan struct{}
	queued atomic.Int64 // bytes in queue
	behind atomic.Bool  // in Hub.late: Next tells the catch-up when there is room

	// Guarded by Hub.mu.
	watchers map[int64]*watcher
	nextID   int64
	lagging  []*watcher // first in, first served; those that lag no more are dropped when it is looked at
	nLagging int        // of watchers
	nDead    int        // of watchers
	served   uint64     // the last pass that had members here
	batch    uint64     // the Publish call, or pass, in which it last got something: staged …
	staged   []entry    // … which goes to queue at its end …
	stagedB  int        // … with its bytes …
	stagedN  int        // … and events; or nothing, because …
	full     bool       // … the queue was full when the batch began

	mu       sync.Mutex
	queue    []entry
	events   int // in queue
	answers  int // in queue
	progress bool
	err      error

	// Of the goroutine in Next.
	taken    []entry
	out      []Response
	turn     uint64
	ticks    <-chan time.Time
	stopTick func()
}

// CreateOptions say what to watch and how.
type CreateOptions struct {
	ID       int64  // on this stream; 0 = the next free one
	Key, End []byte // as in the API: no End = one key, a zero byte = no upper bound; no Key = a zero byte
	Start    int64  // first revision of interest; 0 = after now
	PrevKV   bool   // events come with the pair before
	NoPut    bool   // leave out puts
	NoDelete bool   // leave out deletes
	Progress bool   // tell the revision when there were no events for an interval
	Fragment bool   // split large responses
}

// Open returns a new stream. On a hub that is closed its methods fail.
func (h *Hub) Open(o StreamOptions) *Stream {
	s := &Stream{
		hub: h, limit: o.QueueBytes,
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1),
		watchers: make(map[int64]*watcher),
	}
	if s.limit <= 0 {
		s.limit = h.o.QueueBytes
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		s.err = ErrHubClosed
		return s
	}
	h.streams[s] = struct{}{}
	return s
}

// Create adds a watcher, queues its created answer and returns its id. Events follow the answer.
//
// A refused create queues nothing; the caller queues its answer with Refuse, or drops it. The errors are
// errs.ErrCompacted for a negative start, ErrEmptyRange, ErrDuplicateID, and the error that ended the stream. A
// start that is compacted is no error: the watcher is created, and then cancelled by a second response.
func (s *Stream) Create(o CreateOptions) (int64, error) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := s.ended(); err != nil {
		return 0, err
	}
	r, single := o.keys()
	switch {
	case o.Start < 0:
		return 0, errs.ErrCompacted
	case !single && r.Empty():
		return 0, ErrEmptyRange
	case o.ID != 0 && s.watchers[o.ID] != nil:
		return 0, ErrDuplicateID
	}
	id := o.ID
	if id == 0 {
		for s.watchers[s.nextID] != nil {
			s.nextID++
		}
		id = s.nextID
		s.nextID++
	}
	w := newWatcher(s, id, o)
	s.watchers[id] = w
	h.stats.watchers.Add(1)
	w.place = h.index.add(w)
	s.answer(Response{WatchID: id, Revision: h.rev, Created: true}, o.Progress)
	if w.next = o.Start; o.Start == 0 {
		w.next = h.rev + 1
	}
	if w.next > h.rev {
		return id, nil
	}
	if compacted := h.store.CompactedRevision(); w.next < compacted {
		h.kill(w, compacted)
		return id, nil
	}
	h.lag(w, w.next)
	h.kick()
	return id, nil
}

// Refuse queues the answer to a create that failed for the given reason.
func (s *Stream) Refuse(reason string) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.answer(Response{WatchID: NoID, Revision: s.hub.rev, Created: true, Canceled: true, Reason: reason}, false)
}

// Cancel ends a watcher, queues the answer, and frees the id. Events queued before still come first. It reports whether
// there was such a watcher.
func (s *Stream) Cancel(id int64) bool {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	w := s.watchers[id]
	if w == nil {
		return false
	}
	h.forget(w)
	s.answer(Response{WatchID: id, Revision: h.rev, Canceled: true}, false)
	return true
}

// RequestProgress queues a progress notice for the stream, with NoID, if all its watchers have been given everything up to
// the hub's revision and none starts later. Otherwise, or when it has no watcher or its queue is full, it does nothing and
// reports false; the caller may ask again.
func (s *Stream) RequestProgress() bool {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(s.watchers) == 0 || s.nLagging > 0 || s.nDead > 0 || s.queued.Load() >= int64(s.limit) {
		return false
	}
	for _, w := range s.watchers {
		if w.next > h.rev+1 {
			return false
		}
	}
	s.answer(Response{WatchID: NoID, Revision: h.rev}, false)
	return true
}

// Next returns the responses that wait, at least one, in order; it blocks while there is none. The slice is valid until the
// next call. When ctx is done it returns its cause, at once even if responses wait; after Close ErrClosed, and after
// Close of the hub ErrHubClosed.
func (s *Stream) Next(ctx context.Context) ([]Response, error) {
	for {
		if ctx.Err() != nil {
			return nil, s.stop(context.Cause(ctx))
		}
		select {
		case <-s.ticks:
			s.notify()
		default:
		}
		got, err := s.take()
		if err != nil {
			return nil, s.stop(err)
		}
		if len(got) > 0 {
			return got, nil
		}
		select {
		case <-s.wake:
		case <-s.ticks:
			s.notify()
		case <-ctx.Done():
		}
	}
}

// take empties the queue.
func (s *Stream) take() ([]Response, error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return nil, s.err
	}
	clear(s.taken)
	clear(s.out)
	if len(s.queue) == 0 && cap(s.taken)+cap(s.queue) > keepEntries {
		s.taken, s.queue, s.out = nil, nil, nil // an idle stream gives back what a burst needed
	}
	s.taken, s.queue = s.queue, s.taken[:0]
	events := s.events
	s.events, s.answers = 0, 0
	s.queued.Store(0)
	progress := s.progress
	s.mu.Unlock()

	if progress && s.ticks == nil {
		s.startTicks()
	}
	if len(s.taken) == 0 {
		return nil, nil
	}
	if s.behind.Load() {
		s.hub.kick()
	}
	signal(s.room)
	s.hub.stats.pending.Add(-int64(events))
	s.hub.stats.sent.Add(int64(events))
	s.out, s.turn = convert(s.out[:0], s.taken, s.hub.o.FragmentBytes, s.turn)
	return s.out, nil
}

// stop ends the ticker, since Next will not wait again.
func (s *Stream) stop(err error) error {
	if s.stopTick != nil {
		s.stopTick()
		s.ticks, s.stopTick = nil, nil
	}
	return err
}

// WaitRoom blocks while many answers wait to be read, so that a client that sends requests and reads nothing does not
// fill the memory. It returns when ctx is done or the stream has ended, too.
func (s *Stream) WaitRoom(ctx context.Context) {
	for {
		s.mu.Lock()
		room := s.answers < maxAnswers || s.err != nil
		s.mu.Unlock()
		if room {
			return
		}
		select {
		case <-s.room:
		case <-ctx.Done():
			return
		}
	}
}

// Close ends the stream with all its watchers. What has not been read is lost. It may be called more than once.
func (s *Stream) Close() {
	s.fail(ErrClosed)
	// The lock is given up now and then so that a stream with very many watchers does not hold up Publish.
	const chunk = 256
	for s.forgetSome(chunk) {
	}
}

// forgetSome removes up to n watchers and reports whether there are more.
func (s *Stream) forgetSome(n int) bool {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.streams, s)
	for _, w := range s.watchers {
		if n--; n < 0 {
			return true
		}
		h.forget(w)
	}
	return false
}

// fail ends the queue with err, unless it has ended.
func (s *Stream) fail(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
		s.hub.stats.pending.Add(-int64(s.events))
		s.queue, s.events, s.answers = nil, 0, 0
	}
	s.mu.Unlock()
	signal(s.wake)
	signal(s.room)
}

// ended returns the error that ended the stream.
func (s *Stream) ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// answer queues a response without events. The caller holds Hub.mu, which gives it its place among events.
func (s *Stream) answer(r Response, progress bool) {
	s.mu.Lock()
	if s.err == nil {
		s.queue = append(s.queue, entry{answer: &r})
		s.answers++
		s.progress = s.progress || progress
	}
	s.mu.Unlock()
	signal(s.wake)
}

// flush moves what is staged to the queue and wakes the reader. The caller holds Hub.mu.
func (s *Stream) flush() {
	s.mu.Lock()
	if s.err == nil {
		if len(s.queue) == 0 {
			s.queue, s.staged = s.staged, s.queue[:0]
		} else {
			s.queue = append(s.queue, s.staged...)
		}
		s.events += s.stagedN
		s.queued.Add(int64(s.stagedB))
		s.hub.stats.pending.Add(int64(s.stagedN))
	}
	s.mu.Unlock()
	clear(s.staged)
	s.staged, s.stagedB, s.stagedN = s.staged[:0], 0, 0
	signal(s.wake)
}

// signal leaves a token in a channel of capacity one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
