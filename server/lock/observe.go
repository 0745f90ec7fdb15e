package lock

import (
	"bytes"
	"context"
	"sync"

	"github.com/coordd/coordd/api/kvpb"
)

// maxNews is how many changes may wait for a slow observer before it is told only the last one.
const maxNews = 1024

// News is what an observer of an election is told.
type News struct {
	Revision int64          // of the change; at the beginning, of the look
	Leader   *kvpb.KeyValue // who leads, with the proclaimed value; nil when nobody does. It must not be changed.
	Elected  bool           // the leader is another than in the news before
}

// observer is one who looks at the head of a line.
type observer struct {
	wake chan struct{} // holds one token when there is something in news, or err is set

	mu   sync.Mutex // guards all below; Service.mu may be held
	from int64      // revision of the first look; older changes are in it
	last *kvpb.KeyValue
	news []News
	err  error
}

// see takes in that kv is the head since rev.
func (o *observer) see(rev int64, kv *kvpb.KeyValue) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if rev <= o.from {
		return
	}
	o.add(rev, kv)
}

// add appends to the news. The caller holds o.mu.
func (o *observer) add(rev int64, kv *kvpb.KeyValue) {
	elected := kv != nil && (!bytes.Equal(kv.GetKey(), o.last.GetKey()) || kv.GetCreateRevision() != o.last.GetCreateRevision())
	if len(o.news) >= maxNews {
		for i := range o.news {
			elected = elected || kv != nil && o.news[i].Elected
		}
		o.news = o.news[:0]
	}
	o.last = kv
	o.news = append(o.news, News{rev, kv, elected})
	o.signal()
}

func (o *observer) end(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
	o.signal()
}

func (o *observer) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take empties the news.
func (o *observer) take() ([]News, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	news := o.news
	o.news = nil
	if len(news) > 0 {
		return news, nil
	}
	return nil, o.err
}

// Observe calls tell with who leads the election of a name now, also if nobody does, and then with each change of leader and each
// proclamation, in order. Only who comes first in the queue is ever named. An observer that is very slow misses changes, never the
// last one. It returns the error of tell, the cause of ctx, or errs.ErrStopped.
func (s *Service) Observe(ctx context.Context, name []byte, tell func(News) error) error {
	ctx, done := s.bound(ctx)
	defer done()
	l, err := s.enter(ctx, name)
	if err != nil {
		return err
	}
	defer s.leave(l)
	o := &observer{wake: make(chan struct{}, 1)}
	if err := s.look(ctx, l, o); err != nil {
		return err
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(l.observers, o)
	}()
	for {
		news, err := o.take()
		if err != nil {
			return err
		}
		for _, n := range news {
			if err := tell(n); err != nil {
				return err
			}
		}
		if len(news) > 0 {
			continue
		}
		select {
		case <-o.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// look gives an observer its first news, which is as new as any leader's the caller may know of, and puts it on the line's list. The
// line may lag behind that, or be ahead by now.
func (s *Service) look(ctx context.Context, l *line, o *observer) error {
	s.mu.Lock()
	l.observers[o] = struct{}{}
	s.mu.Unlock()
	var first *kvpb.KeyValue
	var rev int64
	err := persist(ctx, func(ctx context.Context) error {
		kvs, r, err := s.readQueue(ctx, []byte(l.name), false)
		if e := newQueue(kvs).head(); e != nil {
			first = e.kv
		}
		rev = r
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(l.observers, o)
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := o.news
	o.news, o.from = nil, rev
	o.last = nil
	o.add(rev, first)
	for _, n := range seen {
		if n.Revision > rev {
			o.add(n.Revision, n.Leader)
		}
	}
	if l.err != nil {
		o.err = l.err
	}
	return nil
}
