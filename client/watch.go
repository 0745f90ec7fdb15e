package client

import (
	"context"
	"iter"
	"sync"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
)

// WatchOption shapes a Watch.
type WatchOption interface{ applyWatch(*watchConfig) }

// watchConfig is the sum of the options.
type watchConfig struct {
	key, end []byte
	rev      int64
	prevKV   bool
	filters  []rpcpb.WatchCreateRequest_FilterType
	progress bool
	created  bool
	leader   bool
	buffer   int64
}

// watchOption is an option of Watch alone.
type watchOption func(*watchConfig)

func (f watchOption) applyWatch(c *watchConfig) { f(c) }

// WithProgressNotify has Next give a response without events now and then, when there are none, so that
// the reader can move the revision it would begin from again.
func WithProgressNotify() WatchOption { return watchOption(func(c *watchConfig) { c.progress = true }) }

// WithCreatedNotify has Next give one response when the watch has begun on the server.
func WithCreatedNotify() WatchOption { return watchOption(func(c *watchConfig) { c.created = true }) }

// WithoutPuts leaves out the events of puts.
func WithoutPuts() WatchOption { return filter(rpcpb.WatchCreateRequest_NOPUT) }

// WithoutDeletes leaves out the events of deletions.
func WithoutDeletes() WatchOption { return filter(rpcpb.WatchCreateRequest_NODELETE) }

func filter(f rpcpb.WatchCreateRequest_FilterType) WatchOption {
	return watchOption(func(c *watchConfig) { c.filters = append(c.filters, f) })
}

// WithoutLeader lets the watch stay on a member that is cut off from the others, where it sees nothing new for as
// long as that lasts. Without this option it moves to another member.
func WithoutLeader() WatchOption { return watchOption(func(c *watchConfig) { c.leader = false }) }

// WithBufferBytes sets for one watcher what WithWatchBufferBytes sets for all.
func WithBufferBytes(n int64) WatchOption {
	return watchOption(func(c *watchConfig) { c.buffer = max(n, 1) })
}

// WatchResponse is what a watcher has seen.
type WatchResponse struct {
	// Events are the changes in the order of revisions; all of a revision come together. Empty for a notice.
	Events []*kvpb.Event
	// Revision is up to where everything has been seen, this response included: a new watch that begins
	// at Revision+1 misses nothing.
	Revision int64
	// Created marks the notice of WithCreatedNotify.
	Created bool
	// Header is the header the server sent. Its revision may run ahead of the events.
	Header *rpcpb.ResponseHeader
}

// IsProgress tells a notice of progress.
func (r *WatchResponse) IsProgress() bool { return len(r.Events) == 0 && !r.Created }

// Watcher follows changes; see [Client.Watch]. Next and the iterators are for one goroutine at a time, the other
// methods for any.
type Watcher struct {
	mux   *watchMux
	cfg   watchConfig
	ready chan struct{} // something to take, or the end

	// Guarded by mux.mu.
	state   watchState
	id      int64 // on the present stream, in states creating and live
	relogin int   // how often the token was refused in a row

	mu sync.Mutex // guards the rest
	// unwatch stops the watch on the context.
	unwatch func() bool
	// next is the revision to begin from on a new stream; 0 is now.
	next int64
	// seen is the last revision that was queued.
	seen    int64
	partial []*kvpb.Event // fragments of an unfinished revision
	queue   []*WatchResponse
	bytes   int64 // in queue
	// full: the buffer ran over, and the server was told to stop until the reader has emptied it.
	full      bool
	announced bool // the created notice was given
	err       error
}

// Watch follows the changes of a key, or of several with WithPrefix, WithRange or WithFromKey, from the next change on or from
// those at the revision of WithRev. It returns at once. The watcher ends when ctx ends, when it is closed, or by what the
// server says: a [*CompactedError] when the revision to go on from is gone, errs.ErrPermissionDenied and the like. It does not
// end by failures of endpoints and connections.
func (c *Client) Watch(ctx context.Context, key string, opts ...WatchOption) *Watcher {
	cfg := watchConfig{key: []byte(key), leader: true, buffer: c.opts.watchBuffer}
	for _, o := range opts {
		o.applyWatch(&cfg)
	}
	w := &Watcher{mux: c.watch[cfg.leader], cfg: cfg, ready: make(chan struct{}, 1), next: cfg.rev}
	w.mu.Lock() // the function may run before it is stored
	w.unwatch = context.AfterFunc(ctx, func() { w.mux.drop(w, context.Cause(ctx)) })
	w.mu.Unlock()
	w.mux.add(w)
	return w
}

// Next waits for the next response. Its error is that of ctx, which leaves the watcher as it is, or why the watcher has
// ended, after everything that came before.
func (w *Watcher) Next(ctx context.Context) (*WatchResponse, error) {
	for {
		r, resume, err := w.take()
		if resume {
			w.mux.resume(w)
		}
		if r != nil || err != nil {
			return r, err
		}
		select {
		case <-w.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// All gives the responses until the watcher ends; the last pair is why.
func (w *Watcher) All() iter.Seq2[*WatchResponse, error] {
	return func(yield func(*WatchResponse, error) bool) {
		for {
			r, err := w.Next(context.Background())
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// RequestProgress asks the server to say up to where it has come; Next then gives a response without events. The server
// says nothing while a watch of this client is catching up with the past, so ask again after a while.
func (w *Watcher) RequestProgress() { w.mux.requestProgress(w) }

// Revision is up to where everything was queued for Next; 0 if nothing is known yet.
func (w *Watcher) Revision() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(w.next-1, 0)
}

// Close ends the watcher with ErrClosed. What was queued can still be taken.
func (w *Watcher) Close() { w.mux.drop(w, ErrClosed) }

// take gives the next of the queue, or the end. resume tells that the buffer was full and is empty now.
func (w *Watcher) take() (r *WatchResponse, resume bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) > 0 {
		r = w.queue[0]
		w.queue[0] = nil
		w.queue = w.queue[1:]
		w.bytes -= size(r.Events)
	}
	if len(w.queue) == 0 {
		w.queue = nil
		if w.full && w.err == nil {
			w.full, resume = false, true
		}
		if r == nil {
			err = w.err
		}
	}
	return r, resume, err
}

// end ends the watcher, once.
func (w *Watcher) end(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	w.err, w.partial = why, nil
	w.unwatch()
	w.signal()
}

// status tells whether the buffer has run over, and why the watcher ended.
func (w *Watcher) status() (full bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.full, w.err
}

// signal wakes Next.
func (w *Watcher) signal() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// request gives the message that begins the watch from where it stands.
func (w *Watcher) request(id int64) *rpcpb.WatchRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &rpcpb.WatchRequest{RequestUnion: &rpcpb.WatchRequest_CreateRequest{CreateRequest: &rpcpb.WatchCreateRequest{
		Key: w.cfg.key, RangeEnd: w.cfg.end, StartRevision: w.next, Filters: w.cfg.filters, PrevKv: w.cfg.prevKV,
		// Always: a quiet watch must learn how far the store has come, or it would have to begin again from a
		// revision that is long compacted.
		ProgressNotify: true,
		Fragment:       true,
		WatchId:        id,
	}}}
}

// began notes that the watch is on.
func (w *Watcher) began(h *rpcpb.ResponseHeader) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next == 0 { // a watch from now on sees what comes after the revision of the answer
		w.next = h.GetRevision() + 1
	}
	if w.cfg.created && !w.announced {
		w.announced = true
		w.pushLocked(&WatchResponse{Created: true, Revision: w.next - 1, Header: h})
	}
}

// progressed notes that everything up to the revision of a header was sent. tell says that the user asked for it.
func (w *Watcher) progressed(h *rpcpb.ResponseHeader, tell bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.partial) > 0 || w.full {
		return
	}
	w.next = max(w.next, h.GetRevision()+1)
	if (tell || w.cfg.progress) && h.GetRevision() >= w.cfg.rev {
		w.pushLocked(&WatchResponse{Revision: h.GetRevision(), Header: h})
	}
}

// saw notes events. It tells false when they do not fit the buffer any more: then they are dropped, and the watch must be
// begun again from next when the buffer is empty.
func (w *Watcher) saw(resp *rpcpb.WatchResponse) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := append(w.partial, resp.Events...)
	w.partial = nil
	if resp.Fragment {
		events, w.partial = split(events)
	}
	for len(events) > 0 && events[0].GetKv().GetModRevision() <= w.seen {
		events = events[1:] // seen on an earlier stream
	}
	if len(events) == 0 {
		return true
	}
	if len(w.queue) > 0 && w.bytes+size(events) > w.cfg.buffer {
		w.full, w.partial = true, nil
		return false
	}
	w.seen = events[len(events)-1].GetKv().GetModRevision()
	w.next = w.seen + 1
	w.bytes += size(events)
	w.pushLocked(&WatchResponse{Events: events, Revision: w.seen, Header: resp.Header})
	return true
}

// lost forgets what came incomplete over a stream that has ended.
func (w *Watcher) lost() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.partial = nil
}

// position gives the revision to go on from.
func (w *Watcher) position() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next
}

// pushLocked queues a response. A notice of progress replaces one before it, so that they cannot pile up.
func (w *Watcher) pushLocked(r *WatchResponse) {
	if w.err != nil {
		return
	}
	if n := len(w.queue); n > 0 && r.IsProgress() && w.queue[n-1].IsProgress() {
		w.queue[n-1] = r
		return
	}
	w.queue = append(w.queue, r)
	w.signal()
}

// split cuts the events of the last revision off, since more of them may follow.
func split(events []*kvpb.Event) (whole, rest []*kvpb.Event) {
	i := len(events)
	for i > 0 && events[i-1].GetKv().GetModRevision() == events[len(events)-1].GetKv().GetModRevision() {
		i--
	}
	return events[:i:i], events[i:]
}

// size is what events count in the buffer.
func size(events []*kvpb.Event) int64 {
	n := int64(0)
	for _, e := range events {
		n += 64 + int64(len(e.GetKv().GetKey())+len(e.GetKv().GetValue())+len(e.GetPrevKv().GetKey())+len(e.GetPrevKv().GetValue()))
	}
	return n
}
