package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
)

// watchSession is one stream of a watchMux: which watcher has which id on it, and what is to be sent. All of it is guarded
// by watchMux.mu.
//
// Ids are chosen here, from 1 up and never twice on a stream, so that an answer names its watch. A proxy may choose its
// own all the same; since answers to creates come in the order of the creates, one with an unknown id belongs to
// the oldest that is open. A create that failed is answered with id -1, likewise in order.
type watchSession struct {
	m      *watchMux
	cancel context.CancelCauseFunc
	wake   chan struct{}

	lastID   int64
	live     map[int64]*Watcher
	creating []creation            // in the order sent
	asked    map[*Watcher]struct{} // want to be told of progress
	out      []*rpcpb.WatchRequest
	heard    time.Time // of the last message, or of the start
	progress time.Time // of the last request for progress
}

// creation is a create without an answer.
type creation struct {
	id int64
	w  *Watcher
	at time.Time
}

func newWatchSession(m *watchMux, cancel context.CancelCauseFunc) *watchSession {
	now := time.Now()
	return &watchSession{
		m: m, cancel: cancel, wake: make(chan struct{}, 1),
		live: map[int64]*Watcher{}, asked: map[*Watcher]struct{}{}, heard: now, progress: now,
	}
}

// stop ends the stream.
func (s *watchSession) stop(why error) { s.cancel(why) }

// push queues a request.
func (s *watchSession) push(req *rpcpb.WatchRequest) {
	s.out = append(s.out, req)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// create asks for a watch that is idle.
func (s *watchSession) create(w *Watcher) {
	if w.state != watchIdle {
		return
	}
	s.lastID++
	w.state, w.id = watchCreating, s.lastID
	s.creating = append(s.creating, creation{s.lastID, w, time.Now()})
	s.push(w.request(s.lastID))
}

// leave gives a live watch back. One that is being created is given back when its answer comes.
func (s *watchSession) leave(w *Watcher) {
	delete(s.asked, w)
	if w.state == watchLive {
		delete(s.live, w.id)
		s.push(cancelRequest(w.id))
	}
}

// handle notes a message of the server.
func (s *watchSession) handle(resp *rpcpb.WatchResponse) {
	s.heard = time.Now()
	switch {
	case resp.Created:
		s.answered(resp)
	case resp.Canceled:
		if w := s.live[resp.WatchId]; w != nil {
			s.canceled(w, resp)
		}
	case resp.WatchId == -1 && len(resp.Events) == 0:
		for _, w := range s.live {
			s.progressed(w, resp)
		}
	default:
		w := s.live[resp.WatchId]
		switch {
		case w == nil: // ended or full meanwhile; the cancellation is on its way
		case len(resp.Events) == 0 && !resp.Fragment:
			s.progressed(w, resp)
		case !w.saw(resp):
			s.leave(w)
			w.state = watchFull
			// The reader may have emptied the buffer just now, and seen no watch to resume.
			if full, _ := w.status(); !full {
				w.state = watchIdle
				s.create(w)
			}
		}
	}
}

// progressed tells a watcher of progress.
func (s *watchSession) progressed(w *Watcher, resp *rpcpb.WatchResponse) {
	_, asked := s.asked[w]
	delete(s.asked, w)
	w.progressed(resp.Header, asked)
}

// answered notes the answer to a create.
func (s *watchSession) answered(resp *rpcpb.WatchResponse) {
	i := slices.IndexFunc(s.creating, func(c creation) bool { return c.id == resp.WatchId })
	if i < 0 {
		i = 0
	}
	if len(s.creating) == 0 {
		return
	}
	w := s.creating[i].w
	s.creating = slices.Delete(s.creating, i, i+1)
	failed := resp.Canceled || resp.WatchId == -1
	if w.state == watchEnded {
		if !failed {
			s.push(cancelRequest(resp.WatchId))
		}
		return
	}
	if failed {
		s.canceled(w, resp)
		return
	}
	w.state, w.id, w.relogin = watchLive, resp.WatchId, 0
	s.live[w.id] = w
	w.began(resp.Header)
}

// canceled notes that the server ended a watch or did not begin it.
func (s *watchSession) canceled(w *Watcher, resp *rpcpb.WatchResponse) {
	err := reason(resp.CancelReason)
	if resp.CompactRevision != 0 || errors.Is(err, errs.ErrCompacted) {
		// The server keeps the id until it is cancelled, which leave does.
		s.m.endLocked(w, &CompactedError{NextRevision: w.position(), CompactRevision: resp.CompactRevision})
		return
	}
	delete(s.live, resp.WatchId)
	w.state = watchIdle
	switch known, _ := err.(*errs.Error); {
	case known == nil:
		s.m.endLocked(w, fmt.Errorf("client: the server ended the watch: %s", describe(err)))
	case s.m.c.tokens != nil && s.m.c.tokens.renewable() && w.relogin < 3 &&
		(known == errs.ErrInvalidAuthToken || known == errs.ErrAuthOldRevision || known == errs.ErrUserEmpty):
		w.relogin++
		s.stop(errRelogin)
	case known.Kind() == errs.Unavailable:
		s.stop(errSilent) // resume all, elsewhere
	default:
		s.m.endLocked(w, known)
	}
}

// quiet looks at the clock: it tells whether the server owes an answer for so long that something must be wrong, and asks for
// the progress if nothing has come for a while.
func (s *watchSession) quiet(now time.Time) bool {
	if len(s.creating) > 0 {
		return now.Sub(s.creating[0].at) >= watchTick && now.Sub(s.heard) >= watchTick
	}
	if now.Sub(s.heard) >= watchProgress && now.Sub(s.progress) >= watchProgress {
		s.progress = now
		s.push(progressRequest())
	}
	return false
}

func progressRequest() *rpcpb.WatchRequest {
	return &rpcpb.WatchRequest{RequestUnion: &rpcpb.WatchRequest_ProgressRequest{ProgressRequest: new(rpcpb.WatchProgressRequest)}}
}

func cancelRequest(id int64) *rpcpb.WatchRequest {
	return &rpcpb.WatchRequest{RequestUnion: &rpcpb.WatchRequest_CancelRequest{CancelRequest: &rpcpb.WatchCancelRequest{WatchId: id}}}
}
