package lock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/watch"
)

// DefaultTTL is the time to live, in seconds, of a session made for lease 0 by a caller that names none.
const DefaultTTL = 60

// Options are what a Service works with. Store and Hub are required.
type Options struct {
	Store  Store
	Hub    *watch.Hub  // of the same member
	Logger *zap.Logger // nil = none
}

// Service gives locks and elections on one member. Any goroutine may call its methods.
type Service struct {
	store Store
	hub   *watch.Hub
	lg    *zap.Logger

	terms terms

	stop    context.CancelCauseFunc
	stopped context.Context // ends with Stop
	running sync.WaitGroup  // what start has started

	mu         sync.Mutex // guards what follows, and all of lines and tickets
	closed     bool       // start starts no more
	lines      map[string]*line
	dispatcher *dispatcher // nil when there are no lines
	sessions   map[int64]*session
	asking     map[string]int // calls under way, by their keys, but for those with sessions
}

// New returns a service. It has no goroutines until it is used; see Stop.
func New(o Options) *Service {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	s := &Service{store: o.Store, hub: o.Hub, lg: o.Logger, lines: map[string]*line{}, sessions: map[int64]*session{}, asking: map[string]int{}}
	s.stopped, s.stop = context.WithCancelCause(context.Background())
	return s
}

// Stop fails all who wait, and those who come later, with errs.ErrStopped, so that a member that is about to end need not wait for
// them. Locks that are held stay held; sessions live on until their connections end. It does not block and may be
// called more than once.
func (s *Service) Stop() { s.stop(errs.ErrStopped) }

// Close stops the service, gives up its sessions, whose leases then run out, and returns when none of its goroutines runs any more. The
// hub must have been closed and the store must refuse calls by then, as a member's do that has ended. It may be called more than once.
func (s *Service) Close() {
	s.Stop()
	s.mu.Lock()
	s.closed = true
	sessions := slices.Collect(maps.Values(s.sessions))
	s.mu.Unlock()
	for _, n := range sessions {
		n.drop()
	}
	s.running.Wait()
}

// start runs f in a goroutine that Close waits for. After Close it does nothing.
func (s *Service) start(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.running.Go(f)
	}
}

// bound derives a context that also ends when the service stops.
func (s *Service) bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(s.stopped, func() { cancel(errs.ErrStopped) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// Connection is what the life of a session made for lease 0 is bound to.
type Connection struct {
	// Alive ends with the connection of the caller. nil: nobody can tell; then such a session is not renewed and ends after its
	// time to live.
	Alive context.Context
}

// errBusy is how acquire says that an asker with try would have to wait.
var errBusy = errors.New("lock: somebody else holds it")

// ask is what a caller wants of a queue.
type ask struct {
	name     []byte
	lease    int64 // 0 = a session
	ttl      int64 // of the session, in seconds; 0 = DefaultTTL
	try      bool
	election bool
	value    []byte // what the candidate proclaims, in an election
	mode     mode   // in a lock
	delay    time.Duration
	conn     Connection
	// waiting, if not nil, is told when the caller has to wait, and again when fewer are ahead (milestone in line.go).
	waiting func(p *place, ahead int64) error
}

// place is a caller's key in a queue.
type place struct {
	name    []byte
	key     []byte
	lease   int64
	create  int64 // its create revision
	rev     int64 // at which it was found to hold the lock, or to be in the queue
	made    bool  // by this call, and not known to be gone
	value   []byte
	session *session // nil if the lease is the caller's
	guard   *session // of the guard made by this call; nil if there is none
}

// acquire takes a place in a queue and waits until it is at the front. When it fails, the place is given up again.
func (s *Service) acquire(ctx context.Context, a *ask) (*place, time.Duration, error) {
	if s.stopped.Err() != nil {
		return nil, 0, errs.ErrStopped
	}
	if a.try {
		if err := s.foresee(ctx, a); err != nil {
			return nil, 0, err
		}
	}
	p := &place{name: a.name, lease: a.lease}
	if a.lease != 0 {
		key := keyOf(a.name, a.lease)
		s.asks(key, 1)
		defer s.asks(key, -1)
	}
	left, err := s.takeTurn(ctx, a, p)
	if err != nil {
		return nil, 0, err
	}
	return p, left, nil
}

// takeTurn does the work of acquire.
func (s *Service) takeTurn(ctx context.Context, a *ask, p *place) (left time.Duration, err error) {
	if a.lease == 0 {
		if p.session, err = s.begin(ctx, a.ttl, a.conn); err != nil {
			return 0, err
		}
		p.lease = p.session.id
	}
	defer func() {
		if err != nil {
			s.abandon(p)
		}
	}()
	p.key = keyOf(a.name, p.lease)
	if err := s.makeGuard(ctx, a, p); err != nil {
		return 0, err
	}
	alone, err := s.enqueue(ctx, a, p)
	if err != nil {
		return 0, err
	}
	if p.session != nil {
		p.session.keeps(p.key)
	}
	if p.guard != nil {
		p.guard.keeps(keyOf(p.name, p.guard.id))
	}
	switch {
	case alone:
	case a.try:
		if err = s.evaluate(ctx, p); err != nil {
			return 0, err
		}
	default:
		if err = s.wait(ctx, a, p); err != nil {
			return 0, err
		}
	}
	if p.guard != nil {
		s.keepGuard(p, a.delay)
	}
	if left, err = s.left(ctx, p); err == nil && ctx.Err() != nil {
		return 0, context.Cause(ctx) // the caller has gone and would not learn what it holds
	}
	return left, err
}

// foresee fails with errBusy if whoever asks now would have to wait, and changes nothing.
func (s *Service) foresee(ctx context.Context, a *ask) error {
	kvs, _, err := s.readQueue(ctx, a.name, false)
	if err != nil {
		return err
	}
	q := newQueue(kvs)
	if a.lease != 0 && q.byKey[string(keyOf(a.name, a.lease))] != nil {
		return nil
	}
	if first := q.head(); first != nil && !a.election && first.mode.limit != a.mode.limit {
		return errs.ErrMixedLimits
	}
	q.entries = append(q.entries, &entry{mode: a.mode})
	if q.front() < len(q.entries) {
		return errBusy
	}
	return nil
}

// evaluate tells whether a place in a queue is at the front: nil, errBusy, or errs.ErrSessionExpired when it is not there.
func (s *Service) evaluate(ctx context.Context, p *place) error {
	kvs, rev, err := s.readQueue(ctx, p.name, true)
	if err != nil {
		return err
	}
	q := newQueue(kvs)
	e := q.byKey[string(p.key)]
	if e == nil || e.kv.GetCreateRevision() != p.create {
		p.made = false
		return errs.ErrSessionExpired
	}
	if q.place(e) >= q.front() {
		return errBusy
	}
	p.rev = rev
	return nil
}

// wait waits until a place is at the front.
func (s *Service) wait(ctx context.Context, a *ask, p *place) error {
	l, err := s.enter(ctx, a.name)
	if err != nil {
		return err
	}
	defer s.leave(l)
	t := s.follow(l, p.key, p.create, a.waiting != nil)
	defer s.forget(t)
	if !a.election && s.mixed(l, p.key, a.mode) {
		return errs.ErrMixedLimits
	}
	if len(t.news) == 0 && a.waiting != nil {
		if err := a.waiting(p, s.ahead(t)); err != nil {
			return err
		}
	}
	if len(t.news) == 0 {
		// What the lease has left is asked now, when there is time, and not when the lock is free. That it has ended comes as news, too.
		if err := s.foreknow(ctx, p); err != nil {
			return err
		}
	}
	return s.hear(ctx, a, p, t)
}

// hear waits for the news that a place is at the front, and passes on how many are ahead meanwhile.
func (s *Service) hear(ctx context.Context, a *ask, p *place, t *ticket) error {
	for {
		select {
		case v := <-t.news:
			switch {
			case v.err != nil:
				return v.err
			case !v.held:
				p.made = false // nothing is left to clean up, which would have to wait for a leader
				return errs.ErrSessionExpired
			}
			p.rev = v.rev
			return nil
		case ahead := <-t.ahead: // from nobody, if waiting is nil
			if err := a.waiting(p, ahead); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.stopped.Done():
			return errs.ErrStopped
		}
	}
}
