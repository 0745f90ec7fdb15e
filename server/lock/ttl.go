package lock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coordd/coordd/api/errs"
)

// maxTerms is the number of leases of which the time is remembered, about.
const maxTerms = 4096

// term is what was last learned of a lease. A lease that is renewed only lives longer, and one that is revoked takes its keys with it,
// so for a key that is there it is a lower bound.
type term struct {
	until   time.Time
	granted time.Duration
}

// terms remembers the time that leases have left, so that a lock given to a caller again and again does not cost a question to the
// cluster's leader each time. Its mutex is a leaf.
type terms struct {
	mu     sync.Mutex
	leases map[int64]term
}

// left is the time that a lease has for certain; ok is false when that is less than half of what it was granted with, or not known.
func (t *terms) left(id int64, now time.Time) (left time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x, known := t.leases[id]
	left = x.until.Sub(now)
	return left, known && left >= x.granted/2
}

// learn remembers what a lease has left.
func (t *terms) learn(id int64, left, granted time.Duration, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leases == nil {
		t.leases = map[int64]term{}
	}
	if len(t.leases) >= maxTerms {
		for other, x := range t.leases {
			if len(t.leases) > maxTerms/2 || x.until.Before(now) {
				delete(t.leases, other)
			}
		}
	}
	t.leases[id] = term{now.Add(left), granted}
}

// left is the time that the lease of a place has at least, in whole seconds when it was asked; errs.ErrSessionExpired when it has ended.
func (s *Service) left(ctx context.Context, p *place) (time.Duration, error) {
	if p.session != nil {
		if left := p.session.left(); left > 0 {
			return left, nil
		}
	}
	if left, ok := s.terms.left(p.lease, time.Now()); ok {
		return left, nil
	}
	var left, granted time.Duration
	err := persist(ctx, func(ctx context.Context) (err error) {
		left, granted, err = s.timeToLive(ctx, p.lease)
		return err
	})
	if errors.Is(err, errs.ErrLeaseNotFound) {
		return 0, errs.ErrSessionExpired
	}
	if err == nil {
		s.terms.learn(p.lease, left, granted, time.Now())
	}
	return left, err
}

// askPatience is how long to ask about a lease when the answer can also be had later.
const askPatience = time.Second

// foreknow sees to it that left will know the answer. It fails only when the lease has ended.
func (s *Service) foreknow(ctx context.Context, p *place) error {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	if _, err := s.left(ctx, p); errors.Is(err, errs.ErrSessionExpired) {
		return err
	}
	return nil
}
