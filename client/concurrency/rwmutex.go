package concurrency

import (
	"context"
	"slices"
	"strings"

	"github.com/coordd/coordd/api/lockpb"
	"github.com/coordd/coordd/client"
)

// RWMutex is a lock that either one writer or any number of readers hold. Who asks first is served first, so neither
// readers nor writers starve. A writer is the same as one who holds a [Mutex] of the name, and a reader the same as one who holds a
// shared lock of the service Lock. One session has one place: what it may not do twice with a Mutex, it may not do
// with any mixture of reading and writing.
type RWMutex struct {
	write, read *Mutex
}

// NewRWMutex gives the lock of a name for a session.
func NewRWMutex(s *Session, name string) *RWMutex {
	l := newLine(s, name)
	l.passes = isShared
	l.free = append(l.free, []client.Cmp{client.Value(l.prefix, client.WithPrefix()).Equal(lockpb.ModeShared)})
	return &RWMutex{write: NewMutex(s, name), read: &Mutex{s: s, line: l, value: lockpb.ModeShared}}
}

// isShared tells a reader by its value. What has words that are not known here is none: to wait for it is always safe.
func isShared(value []byte) bool {
	rest, ok := strings.CutPrefix(string(value), lockpb.ModeMark)
	words := strings.Fields(rest)
	known := func(word string) bool {
		// A guard takes the place of a reader for a while after its lease has ended, and is one, too.
		return word == lockpb.WordShared || strings.HasPrefix(word, lockpb.WordGuard+"=") || strings.HasPrefix(word, lockpb.WordGuards+"=")
	}
	return ok && slices.Contains(words, lockpb.WordShared) && !slices.ContainsFunc(words, func(w string) bool { return !known(w) })
}

// Lock waits for the lock, to write. Errors are those of [Mutex.Lock].
func (m *RWMutex) Lock(ctx context.Context) error { return m.write.Lock(ctx) }

// TryLock takes the lock, to write, if nobody holds it or waits for it.
func (m *RWMutex) TryLock(ctx context.Context) error { return m.write.TryLock(ctx) }

// Unlock gives the lock back that Lock took. Errors are those of [Mutex.Unlock].
func (m *RWMutex) Unlock(ctx context.Context) error { return m.write.Unlock(ctx) }

// RLock waits for the lock, to read. Errors are those of [Mutex.Lock].
func (m *RWMutex) RLock(ctx context.Context) error { return m.read.Lock(ctx) }

// TryRLock takes the lock, to read, if nobody but readers holds it or waits for it. It is ErrLocked, too, beside one who holds a
// shared lock of the service Lock with a lock delay.
func (m *RWMutex) TryRLock(ctx context.Context) error { return m.read.TryLock(ctx) }

// RUnlock gives the lock back that RLock took. Errors are those of [Mutex.Unlock].
func (m *RWMutex) RUnlock(ctx context.Context) error { return m.read.Unlock(ctx) }

// Writer is the lock as a writer has it: for its fencing token, key and conditions.
func (m *RWMutex) Writer() *Mutex { return m.write }

// Reader is the lock as a reader has it.
func (m *RWMutex) Reader() *Mutex { return m.read }
