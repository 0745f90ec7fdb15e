package lock

import (
	"context"
	"time"
)

// makeGuard makes the lease of the guard that an asker with a lock delay wants, long enough that at any time more than the delay
// is left of it.
func (s *Service) makeGuard(ctx context.Context, a *ask, p *place) (err error) {
	if a.delay <= 0 {
		return nil
	}
	seconds := int64((a.delay + time.Second - 1) / time.Second)
	p.guard, err = s.begin(ctx, 2*seconds, Connection{Alive: context.Background()})
	if err == nil {
		a.mode.guard = p.guard.id
	}
	return err
}

// dropGuard ends a guard that is not needed.
func (s *Service) dropGuard(p *place) {
	if p.guard != nil {
		p.guard.end(false)
		p.guard = nil
	}
}

// keepGuard sees to a guard: it is renewed as long as the place is there, and ends a delay after that; or at once when the lock is given
// back, which ends its lease. The goroutine ends with the guard.
func (s *Service) keepGuard(p *place, delay time.Duration) {
	g := p.guard // a call that fails after this takes it out of the place
	s.start(func() {
		if s.gone(p, g) {
			t := time.NewTimer(delay)
			defer t.Stop()
			select {
			case <-t.C:
			case <-g.over:
			case <-s.stopped.Done():
			}
		}
		if s.stopped.Err() != nil {
			g.drop() // it runs out by itself: a member that restarts in order takes no lock delay away
			return
		}
		g.end(false)
	})
}

// gone waits until the key of a place is gone. It returns false when the service stops, or cannot follow, or the guard g ends first.
func (s *Service) gone(p *place, g *session) bool {
	l, err := s.enter(s.stopped, p.name)
	if err != nil {
		return false
	}
	defer s.leave(l)
	t := s.follow(l, p.key, p.create, false)
	defer s.forget(t)
	for {
		select {
		case v := <-t.news:
			if v.err != nil {
				return false
			}
			if !v.held {
				return true
			}
		case <-g.over:
			return false
		case <-s.stopped.Done():
			return false
		}
	}
}
