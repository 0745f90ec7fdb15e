package server

import (
	"sync"
	"time"
)

// leadership knows who leads, tells when that changes, and when this member
// last lost its leader.
type leadership struct {
	mu     sync.Mutex // guards all below
	leader uint64     // 0 when unknown
	term   uint64
	since  time.Time     // of the present leader, or of its absence
	lostAt time.Time     // when a leader was last lost
	change chan struct{} // closed at the next change
}

func newLeadership(now time.Time) *leadership {
	return &leadership{since: now, change: make(chan struct{})}
}

// set is called by the drive loop with every change of leader or term.
func (l *leadership) set(leader, term uint64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if leader == l.leader && term == l.term {
		return
	}
	if l.leader != 0 {
		l.lostAt = now
	}
	l.leader, l.term, l.since = leader, term, now
	close(l.change)
	l.change = make(chan struct{})
}

// changed returns a channel that is closed at the next change.
func (l *leadership) changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.change
}

// lostSince reports whether a leader was lost at or after t.
func (l *leadership) lostSince(t time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.lostAt.IsZero() && !l.lostAt.Before(t)
}

// absent reports for how long no leader has been known, 0 when there is one.
func (l *leadership) absent(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leader != 0 {
		return 0
	}
	return now.Sub(l.since)
}
