package lock

import (
	"context"
	"errors"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/watch"
)

// dispatcher reads the one stream on which all lines of a service have their watchers. It exists, with its goroutine, while there
// are lines.
type dispatcher struct {
	stream *watch.Stream
	lines  map[int64]*line // by watcher; guarded by Service.mu
}

// enter returns the line of a name, begun if nobody follows that name, with its queue read. The caller must leave it.
func (s *Service) enter(ctx context.Context, name []byte) (*line, error) {
	s.mu.Lock()
	l := s.lines[string(name)]
	if l != nil {
		l.refs++
		s.mu.Unlock()
	} else {
		l = &line{
			name: string(name), opened: make(chan struct{}), refs: 1,
			queue: newQueue(nil), tickets: map[string][]*ticket{}, observers: map[*observer]struct{}{},
		}
		s.lines[l.name] = l
		s.mu.Unlock()
		s.open(l)
	}
	var err error
	select {
	case <-l.opened:
		s.mu.Lock()
		err = l.err
		s.mu.Unlock()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		s.leave(l)
		return nil, err
	}
	return l, nil
}

// leave ends what enter began. The last one out ends the line.
func (s *Service) leave(l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.refs--; l.refs == 0 {
		s.drop(l)
	}
}

// drop takes a line off the lists; with the last one the dispatcher ends. The caller holds s.mu.
func (s *Service) drop(l *line) {
	if s.lines[l.name] == l {
		delete(s.lines, l.name)
	}
	d := s.dispatcher
	if d == nil || d.lines[l.id] != l {
		return
	}
	delete(d.lines, l.id)
	d.stream.Cancel(l.id)
	if len(d.lines) == 0 {
		s.dispatcher = nil
		d.stream.Close()
	}
}

// open reads the queue of a new line and begins to follow it. It is not bound to a caller's context, since others may wait for
// the same; a local read does not block.
func (s *Service) open(l *line) {
	kvs, rev, err := s.readQueue(context.Background(), []byte(l.name), true)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(l.opened)
	if err == nil {
		l.reset(kvs, rev)
		err = s.watch(l)
	}
	if err != nil {
		l.err = err
		s.drop(l)
	}
}

// readQueue reads all of a queue.
func (s *Service) readQueue(ctx context.Context, name []byte, serializable bool) ([]*kvpb.KeyValue, int64, error) {
	return s.read(ctx, &rpcpb.RangeRequest{Key: prefixOf(name), RangeEnd: endOf(name), Serializable: serializable})
}

// watch makes the watcher of a line, from behind what its queue has. The caller holds s.mu, so the dispatcher cannot get a response
// before it knows the watcher.
func (s *Service) watch(l *line) error {
	d := s.dispatcher
	if d == nil {
		d = &dispatcher{stream: s.hub.Open(watch.StreamOptions{}), lines: map[int64]*line{}}
	}
	name := []byte(l.name)
	id, err := d.stream.Create(watch.CreateOptions{Key: prefixOf(name), End: endOf(name), Start: l.rev + 1})
	if err != nil {
		if s.dispatcher == nil {
			d.stream.Close()
		}
		return ended(err)
	}
	l.id = id
	d.lines[id] = l
	if s.dispatcher == nil {
		s.dispatcher = d
		if s.closed {
			return errs.ErrStopped
		}
		s.running.Go(func() { s.dispatch(d) })
	}
	return nil
}

// dispatch hands on what the stream brings until it is closed.
func (s *Service) dispatch(d *dispatcher) {
	for {
		responses, err := d.stream.Next(context.Background())
		if err != nil {
			s.failAll(d, err)
			return
		}
		for i := range responses {
			if r := &responses[i]; r.Canceled {
				s.reread(d, r.WatchID)
			} else if r.Len() > 0 {
				s.deliver(d, r)
			}
		}
	}
}

// deliver gives events to their line, revision by revision: a response has all of each.
func (s *Service) deliver(d *dispatcher, r *watch.Response) {
	events, err := r.Events()
	s.mu.Lock()
	defer s.mu.Unlock()
	l := d.lines[r.WatchID]
	if l == nil {
		return
	}
	if err != nil {
		l.fail(err)
		s.drop(l)
		return
	}
	for len(events) > 0 {
		n, rev := 1, events[0].GetKv().GetModRevision()
		for n < len(events) && events[n].GetKv().GetModRevision() == rev {
			n++
		}
		l.apply(events[:n])
		events = events[n:]
	}
}

// reread makes a line whole again whose watcher was cancelled, because a compaction took what it had not been given. For a
// line that was dropped, whose cancellation is answered like this too, there is nothing to do.
func (s *Service) reread(d *dispatcher, id int64) {
	s.mu.Lock()
	l := d.lines[id]
	s.mu.Unlock()
	if l == nil {
		return
	}
	kvs, rev, err := s.readQueue(context.Background(), []byte(l.name), true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.lines[id] != l {
		return
	}
	delete(d.lines, id)
	d.stream.Cancel(id) // a watcher that compaction has ended keeps its id
	if err == nil {
		l.reset(kvs, rev)
		err = s.watch(l)
	}
	if err != nil {
		l.fail(err)
		s.drop(l)
	}
}

// failAll ends the lines of a dispatcher whose stream has ended.
func (s *Service) failAll(d *dispatcher, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, l := range d.lines {
		l.fail(ended(err))
		delete(s.lines, l.name)
		delete(d.lines, id)
	}
	if s.dispatcher == d {
		s.dispatcher = nil
	}
	d.stream.Close()
}

// ended names the end of a stream in the API's terms.
func ended(err error) error {
	if errors.Is(err, watch.ErrHubClosed) || errors.Is(err, watch.ErrClosed) {
		return errs.ErrStopped
	}
	return err
}
