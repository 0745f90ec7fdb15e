package wait

import (
	"fmt"
	"sync"
)

// shards is the number of parts of the table; a power of two, so that a mask picks the shard.
const shards = 64

// Wait is a table of callers waiting for one result each, by id. Make one with [New]. All methods
// may be called from any goroutine.
type Wait[T any] struct {
	shards [shards]shard[T]
}

// shard is one part of the table, padded to a cache line of its own so that cores working on
// neighbouring shards do not take the line from each other.
type shard[T any] struct {
	mu      sync.Mutex
	waiting map[uint64]chan T // guarded by mu
	_       [48]byte
}

// New makes an empty table.
func New[T any]() *Wait[T] {
	w := new(Wait[T])
	for i := range w.shards {
		w.shards[i].waiting = make(map[uint64]chan T)
	}
	return w
}

func (w *Wait[T]) shard(id uint64) *shard[T] { return &w.shards[id%shards] }

// Register announces that the caller waits for id and returns the channel that yields the result,
// once. The channel is never closed: one that was cancelled yields nothing.
//
// Every registration must end in Trigger or Cancel, or its entry stays for ever. Two registrations
// of one id at the same time mean that ids are not unique; results would reach the wrong caller, so
// Register panics.
//
// A registration costs one allocation, the channel. Channels are not reused: only the receiver
// knows when it is done with one, and a channel given back too early would hand a stranger's result
// to the next caller, which is too much to risk for one small allocation beside a disk write.
func (w *Wait[T]) Register(id uint64) <-chan T {
	ch := make(chan T, 1)
	s := w.shard(id)
	s.mu.Lock()
	old := s.waiting[id]
	if old == nil {
		s.waiting[id] = ch
	}
	s.mu.Unlock()
	if old != nil {
		panic(fmt.Sprintf("wait: id %016x is registered twice: request ids are not unique", id))
	}
	return ch
}

// Trigger gives v to the caller waiting for id and ends the registration. It never blocks. It reports
// whether somebody was waiting: on a member that did not propose the request, nobody is.
func (w *Wait[T]) Trigger(id uint64, v T) bool {
	ch := w.remove(id)
	if ch == nil {
		return false
	}
	ch <- v // buffered, and this is the only send it will ever see
	return true
}

// Cancel ends the registration of id without a result and reports whether it was still there. After
// false, either the id was never registered or a Trigger came first, whose value is in the channel
// or arriving there.
func (w *Wait[T]) Cancel(id uint64) bool { return w.remove(id) != nil }

// remove takes the entry of id out of the table; whoever gets the channel owns it. Nil if there is
// none.
func (w *Wait[T]) remove(id uint64) chan T {
	s := w.shard(id)
	s.mu.Lock()
	ch := s.waiting[id]
	if ch != nil {
		delete(s.waiting, id)
	}
	s.mu.Unlock()
	return ch
}

// IsRegistered reports whether somebody waits for id. The answer may be old by the time it is read.
func (w *Wait[T]) IsRegistered(id uint64) bool {
	s := w.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting[id] != nil
}

// Len counts the registrations, shard by shard; for metrics. It is exact only while nobody changes
// the table.
func (w *Wait[T]) Len() int {
	n := 0
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		n += len(s.waiting)
		s.mu.Unlock()
	}
	return n
}
