package concurrency

import (
	"context"
	"errors"
	"sync"

	"github.com/coordd/coordd/client"
)

// Mutex is a lock among all sessions of a cluster. Who asks first gets it first. It is the lock of the service Lock
// and of etcd's clients under the same name. Any number of goroutines may use it, but it has one holder: a second Lock of
// one session, through this or another Mutex of the name, is ErrInUse. A lock that was lost has to be given back, too, before
// the same session can take it again.
type Mutex struct {
	s    *Session
	line line
	// value is that of its keys: how it holds the lock.
	value string

	mu   sync.Mutex // guards held
	held *place     // nil if the lock is not held
}

// NewMutex gives the lock of a name for a session.
func NewMutex(s *Session, name string) *Mutex { return &Mutex{s: s, line: newLine(s, name)} }

// Lock waits for the lock and takes it. Errors: ErrInUse; ErrSessionExpired as soon as the lease ends, while the lock
// may still be held by another; ErrSessionClosed; the cause of ctx. After an error nothing waits any more; if the server
// could not be told so, what stays goes with the session.
func (m *Mutex) Lock(ctx context.Context) error {
	p, err := m.line.join(ctx, m.s, m.value, false)
	if err != nil {
		return err
	}
	if err := p.wait(ctx); err != nil {
		return err
	}
	m.set(p)
	return nil
}

// TryLock takes the lock if nobody holds it or waits for it, and is ErrLocked otherwise. A try in vain writes nothing. Its other
// errors are those of Lock.
func (m *Mutex) TryLock(ctx context.Context) error {
	p, err := m.line.join(ctx, m.s, m.value, true)
	if err != nil {
		return err
	}
	if !p.front { // one from before, with others before it
		before, _, err := p.look(ctx)
		if err != nil || before != nil {
			p.abandon(ctx)
			return errors.Join(err, orLocked(before != nil))
		}
	}
	m.set(p)
	return nil
}

// orLocked gives ErrLocked if so.
func orLocked(locked bool) error {
	if locked {
		return ErrLocked
	}
	return nil
}

// Unlock gives the lock back. ErrNotHeld: it was not held, or was lost. After any other error it may or may not be held
// still, and Unlock may be called again: it never releases a later holder, not even of the same session.
func (m *Mutex) Unlock(ctx context.Context) error {
	m.mu.Lock()
	p := m.held
	m.mu.Unlock()
	if p == nil {
		return ErrNotHeld
	}
	held, err := p.leave(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	if m.held == p {
		m.held = nil
	}
	m.mu.Unlock()
	if !held {
		return ErrNotHeld
	}
	return nil
}

// IsOwner is the condition that this Mutex holds the lock, for transactions that must happen only under it. It never
// holds if the lock is not held.
func (m *Mutex) IsOwner() client.Cmp { return owner(m.holding(), m.line.key) }

// owner is the condition that a place is there, and false for nil.
func owner(p *place, key string) client.Cmp {
	if p == nil {
		return client.CreateRevision(key).Less(0) // there is none below 0
	}
	return p.kept()
}

// FencingToken grows with each holder of the lock; 0 if it is not held. A resource that the lock guards should remember the
// largest it has seen and refuse smaller ones: the lock alone cannot stop a holder who was paused for longer than its
// lease. It is the create revision of Key.
func (m *Mutex) FencingToken() int64 {
	if p := m.holding(); p != nil {
		return p.rev
	}
	return 0
}

// Key is the key that stands for the session's ownership of the lock, or its place in the queue.
func (m *Mutex) Key() string { return m.line.key }

// WhileHeld gives a context that ends with ctx, or as soon as the lock is lost or given back; its cause then is
// ErrSessionExpired or, when somebody deleted the key, ErrLost as well. It has ended already if the lock is not held
// (ErrNotHeld). Call the function when done with it.
func (m *Mutex) WhileHeld(ctx context.Context) (context.Context, context.CancelFunc) {
	return holding(ctx, m.holding(), ErrNotHeld)
}

// holding gives the context of a place, or one that has ended for nil.
func holding(ctx context.Context, p *place, otherwise error) (context.Context, context.CancelFunc) {
	if p != nil {
		return p.hold(ctx)
	}
	ended, cancel := context.WithCancelCause(ctx)
	cancel(otherwise)
	return ended, func() { cancel(otherwise) }
}

func (m *Mutex) set(p *place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = p
}

func (m *Mutex) holding() *place {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held
}

// locker is a Mutex as a sync.Locker.
type locker struct {
	local sync.Mutex // held by the goroutine that holds the lock, or waits for it
	mutex *Mutex
}

// NewLocker gives the lock of a name as a [sync.Locker], which goroutines may share as they share a sync.Mutex. Since its
// methods cannot fail they panic, with an error, when the session has ended: use it where a program cannot go
// on without the lock, and a Mutex elsewhere.
func NewLocker(s *Session, name string) sync.Locker { return &locker{mutex: NewMutex(s, name)} }

// Lock waits for the lock. It panics when the session ends.
func (l *locker) Lock() {
	l.local.Lock()
	if err := l.mutex.Lock(l.mutex.s.Context()); err != nil {
		l.local.Unlock()
		panic(err)
	}
}

// Unlock gives the lock back. It panics if it is not held or was lost.
func (l *locker) Unlock() {
	ctx, cancel := context.WithTimeout(context.Background(), l.mutex.s.TTL())
	defer cancel()
	if err := l.mutex.Unlock(ctx); err != nil {
		panic(err)
	}
	l.local.Unlock()
}
