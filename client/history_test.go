package client_test

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
)

// history is a log of changes that the members of a network share, and a watch service over it: the plain rules of the
// API, without its speed. Revisions begin at 2.
type history struct {
	mu        sync.Mutex
	rev       int64
	compacted int64
	events    []*kvpb.Event
	changed   chan struct{}

	// batch is how many events a response holds at most, cutting revisions into fragments; 0 is no bound.
	batch int
	// mute has creates go without an answer.
	mute bool
	// creates counts them.
	creates int
	// refuse gives the reason to refuse a create, empty for none.
	refuse func(*rpcpb.WatchCreateRequest) string
	// cancelled are the ids that clients gave back.
	cancelled []int64
	streams   int
}

func newHistory() *history { return &history{rev: 1, changed: make(chan struct{})} }

// put makes one revision that changes the keys.
func (h *history) put(value string, keys ...string) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rev++
	for _, k := range keys {
		h.events = append(h.events, &kvpb.Event{Kv: &kvpb.KeyValue{Key: []byte(k), Value: []byte(value), ModRevision: h.rev}})
	}
	close(h.changed)
	h.changed = make(chan struct{})
	return h.rev
}

func (h *history) compact(rev int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.compacted = rev
}

// served is a watcher on a stream.
type served struct {
	req  *rpcpb.WatchCreateRequest
	next int64
	dead bool // compacted, kept until it is cancelled
}

func (h *history) watch(g grpc.BidiStreamingServer[rpcpb.WatchRequest, rpcpb.WatchResponse]) error {
	h.mu.Lock()
	h.streams++
	h.mu.Unlock()
	requests := make(chan *rpcpb.WatchRequest)
	ctx, stop := context.WithCancel(g.Context())
	defer stop()
	go func() {
		defer close(requests)
		for {
			r, err := g.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	watchers := map[int64]*served{}
	for {
		h.mu.Lock()
		out, changed := h.due(watchers), h.changed
		h.mu.Unlock()
		for _, r := range out {
			if err := g.Send(r); err != nil {
				return err
			}
		}
		select {
		case r, ok := <-requests:
			if !ok {
				return io.ErrUnexpectedEOF
			}
			h.mu.Lock()
			answer := h.request(watchers, r)
			h.mu.Unlock()
			if answer != nil {
				if err := g.Send(answer); err != nil {
					return err
				}
			}
		case <-changed:
		}
	}
}

// request handles one message and gives the answer, if there is one.
func (h *history) request(watchers map[int64]*served, r *rpcpb.WatchRequest) *rpcpb.WatchResponse {
	header := &rpcpb.ResponseHeader{Revision: h.rev}
	if c := r.GetCreateRequest(); c != nil {
		h.creates++
		if h.mute {
			return nil
		}
		if h.refuse != nil && h.refuse(c) != "" {
			return &rpcpb.WatchResponse{Header: header, WatchId: -1, Created: true, Canceled: true, CancelReason: h.refuse(c)}
		}
		w := &served{req: c, next: c.StartRevision}
		if w.next == 0 {
			w.next = h.rev + 1
		}
		watchers[c.WatchId] = w
		return &rpcpb.WatchResponse{Header: header, WatchId: c.WatchId, Created: true}
	}
	if c := r.GetCancelRequest(); c != nil {
		h.cancelled = append(h.cancelled, c.WatchId)
		if _, ok := watchers[c.WatchId]; ok {
			delete(watchers, c.WatchId)
			return &rpcpb.WatchResponse{Header: header, WatchId: c.WatchId, Canceled: true}
		}
		return nil
	}
	return &rpcpb.WatchResponse{Header: header, WatchId: -1}
}

// due gives what the watchers have not seen.
func (h *history) due(watchers map[int64]*served) (out []*rpcpb.WatchResponse) {
	for id, w := range watchers {
		if w.dead {
			continue
		}
		if w.next < h.compacted {
			w.dead = true
			out = append(out, &rpcpb.WatchResponse{Header: new(rpcpb.ResponseHeader), WatchId: id, Canceled: true, CompactRevision: h.compacted})
			continue
		}
		var events []*kvpb.Event
		for _, e := range h.events {
			if e.Kv.ModRevision >= w.next && inRange(e.Kv.Key, w.req.Key, w.req.RangeEnd) {
				events = append(events, e)
			}
		}
		w.next = max(w.next, h.rev+1)
		for len(events) > 0 {
			n := len(events)
			if h.batch > 0 {
				n = min(n, h.batch)
			}
			out = append(out, &rpcpb.WatchResponse{
				Header: &rpcpb.ResponseHeader{Revision: h.rev}, WatchId: id, Events: events[:n], Fragment: n < len(events),
			})
			events = events[n:]
		}
	}
	return out
}

func inRange(key, from, end []byte) bool {
	switch {
	case len(end) == 0:
		return string(key) == string(from)
	case len(end) == 1 && end[0] == 0:
		return string(key) >= string(from)
	}
	return string(key) >= string(from) && string(key) < string(end)
}
