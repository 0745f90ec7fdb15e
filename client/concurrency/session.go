package concurrency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/client"
)

// DefaultTTL is the time to live of a session's lease.
const DefaultTTL = 60 * time.Second

// marginPart is the part of the time to live that a session ends earlier than its lease could: for clocks that run at different
// speeds, and for the time it takes to stop.
const marginPart = 8

// SessionOption shapes a session.
type SessionOption func(*sessionConfig)

// sessionConfig is the sum of the options.
type sessionConfig struct {
	ttl   time.Duration
	lease client.LeaseID
	life  context.Context
}

// WithTTL sets how long the session outlives its last sign of life; it is rounded up to seconds. It is the
// longest time others wait for a holder that has died. Default: DefaultTTL.
func WithTTL(d time.Duration) SessionOption { return func(c *sessionConfig) { c.ttl = d } }

// WithLease has the session live on a lease that exists, such as that of a process before its restart, and not on a new one.
// Whoever shows the lease is the owner of the locks on it, so two sessions on one lease do not exclude each
// other. Close revokes it as it does a new one.
func WithLease(id client.LeaseID) SessionOption { return func(c *sessionConfig) { c.lease = id } }

// WithContext ends the session with ctx, as Orphan does: what lives on it ends when the time to live has passed. It is the
// guard against a session that is forgotten and kept alive for ever.
func WithContext(ctx context.Context) SessionOption { return func(c *sessionConfig) { c.life = ctx } }

// Session is a lease that is kept alive, on which locks and leaderships live. Any number of goroutines may use it. End
// it with Close or Orphan, or have a context do that; otherwise it lives as long as the client.
type Session struct {
	c      *client.Client
	id     client.LeaseID
	ttl    time.Duration
	adopts bool // the lease was there before
	keeper *client.Keeper
	ctx    context.Context // ends with the session; its cause is why
	end    context.CancelCauseFunc
	ended  chan struct{} // the goroutine follow has returned

	mu sync.Mutex // guards the rest
	// used are the keys that something of this session holds or waits with.
	used map[string]bool
	// left are keys that may exist although nothing uses them, since a reply was lost.
	left map[string]bool
}

// NewSession makes a session; ctx bounds the making alone. Errors: errs.ErrLeaseNotFound for WithLease with one
// that does not exist, and those of [client.Client.Grant].
func NewSession(ctx context.Context, c *client.Client, opts ...SessionOption) (*Session, error) {
	cfg := sessionConfig{ttl: DefaultTTL, life: context.Background()}
	for _, o := range opts {
		o(&cfg)
	}
	s := &Session{
		c: c, id: cfg.lease, adopts: cfg.lease != 0, ended: make(chan struct{}),
		used: map[string]bool{}, left: map[string]bool{},
	}
	start := time.Now() // before the lease begins, so that we never think it lives longer than it does
	lives, err := s.lease(ctx, cfg.ttl)
	if err != nil {
		return nil, err
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.keeper = c.KeepAlive(cfg.life, s.id, client.EndWhenUnconfirmed(max(lives-time.Since(start), time.Nanosecond)))
	go s.follow(min(lives, s.ttl) / marginPart)
	return s, nil
}

// lease gets the lease, and gives how long it lives unless it is renewed.
func (s *Session) lease(ctx context.Context, ttl time.Duration) (time.Duration, error) {
	if !s.adopts {
		r, err := s.c.Grant(ctx, int64((max(ttl, 1)+time.Second-1)/time.Second))
		if err != nil {
			return 0, err
		}
		s.id, s.ttl = client.LeaseID(r.ID), time.Duration(r.TTL)*time.Second
		return s.ttl, nil
	}
	r, err := s.c.TimeToLive(ctx, s.id)
	if err != nil {
		return 0, err
	}
	if r.TTL < 0 {
		return 0, fmt.Errorf("concurrency: lease %x: %w", int64(s.id), errs.ErrLeaseNotFound)
	}
	s.ttl = time.Duration(r.GrantedTTL) * time.Second
	return max(time.Duration(r.TTL), 1) * time.Second, nil
}

// follow ends the session when the lease is not kept alive any more, and margin before it could end.
func (s *Session) follow(margin time.Duration) {
	defer close(s.ended)
	t := time.NewTimer(time.Until(s.keeper.Expires()) - margin)
	defer t.Stop()
	for {
		select {
		case <-s.keeper.Done():
			s.end(s.why(s.keeper.Err()))
			return
		case <-t.C:
			left := time.Until(s.keeper.Expires()) - margin
			if left <= 0 {
				s.end(s.why(client.ErrLeaseUnconfirmed))
				s.keeper.Close()
				return
			}
			t.Reset(left)
		}
	}
}

// why tells why the lease is not kept alive, in the words of a session.
func (s *Session) why(err error) error {
	if errors.Is(err, errs.ErrLeaseNotFound) || errors.Is(err, client.ErrLeaseUnconfirmed) {
		return fmt.Errorf("%w: lease %x: %w", ErrSessionExpired, int64(s.id), err)
	}
	return fmt.Errorf("%w: %w", ErrSessionClosed, err)
}

// Client is the client of the session.
func (s *Session) Client() *client.Client { return s.c }

// Lease is the lease of the session.
func (s *Session) Lease() client.LeaseID { return s.id }

// TTL is the time to live its lease was granted with.
func (s *Session) TTL() time.Duration { return s.ttl }

// Done is closed when the session has ended: if the server cannot be reached an eighth of the time to live before the lease could
// end there. A holder of a lock must stop what the lock guards then.
func (s *Session) Done() <-chan struct{} { return s.ctx.Done() }

// Err tells why the session has ended, with ErrSessionExpired or ErrSessionClosed; nil while it has not.
func (s *Session) Err() error { return context.Cause(s.ctx) }

// Context ends with the session; its cause is what Err gives. It is for work that lives on the session.
func (s *Session) Context() context.Context { return s.ctx }

// Orphan ends the session and leaves its lease, with what lives on it, to expire by itself.
func (s *Session) Orphan() {
	s.end(ErrSessionClosed)
	s.keeper.Close()
	<-s.ended
}

// Close ends the session and revokes its lease: locks and leaderships on it are free at once. It takes no longer than
// the time to live; after an error the lease expires by itself. It is nil if the lease had ended before, and may
// be called again.
func (s *Session) Close() error {
	s.Orphan()
	ctx, cancel := context.WithTimeout(context.Background(), s.ttl)
	defer cancel()
	if _, err := s.c.Revoke(ctx, s.id); err != nil && !errors.Is(err, errs.ErrLeaseNotFound) {
		return err
	}
	return nil
}

// reserve marks a key as used.
func (s *Session) reserve(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[key] {
		return fmt.Errorf("%w: key %q", ErrInUse, key)
	}
	s.used[key] = true
	return nil
}

// release takes the mark of reserve back. left tells that the key may exist all the same.
func (s *Session) release(key string, left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.used, key)
	if left {
		s.left[key] = true
	} else {
		delete(s.left, key)
	}
}

// unreserve takes the mark of reserve back, and leaves what is known of the key as it is.
func (s *Session) unreserve(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.used, key)
}

// expects tells whether a key of this session that is found to exist belongs to nobody else.
func (s *Session) expects(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.adopts || s.left[key]
}

// bind gives a context that ends with ctx and with the session, and has the cause of the one that was first.
func (s *Session) bind(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	bound, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(s.Err()) })
	return bound, func(why error) {
		stop()
		cancel(why)
	}
}
