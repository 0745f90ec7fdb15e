package cache

import "sort"

// ringBuffer keeps the last values that were put in. Each has a position, counted from 0 for the first there ever was.
type ringBuffer[T any] struct {
	items []T
	next  uint64 // position of the next value
	count int
}

// newRingBuffer gives a buffer of at least one value.
func newRingBuffer[T any](size int) *ringBuffer[T] {
	return &ringBuffer[T]{items: make([]T, max(size, 1))}
}

// first is the position of the oldest value that is kept; next if there is none.
func (r *ringBuffer[T]) first() uint64 { return r.next - uint64(r.count) }

// push puts a value in, and gives the one that had to go for it.
func (r *ringBuffer[T]) push(v T) (dropped T, full bool) {
	at := &r.items[r.next%uint64(len(r.items))]
	if r.count == len(r.items) {
		dropped, full = *at, true
	} else {
		r.count++
	}
	*at = v
	r.next++
	return dropped, full
}

// at gives the value at a position from first to before next.
func (r *ringBuffer[T]) at(pos uint64) T { return r.items[pos%uint64(len(r.items))] }

// search gives the first position whose value is not before what is looked for; next if there is none. The values must be
// in order.
func (r *ringBuffer[T]) search(reached func(T) bool) uint64 {
	first := r.first()
	return first + uint64(sort.Search(r.count, func(i int) bool { return reached(r.at(first + uint64(i))) }))
}

// clear forgets all values. Positions go on.
func (r *ringBuffer[T]) clear() {
	clear(r.items)
	r.count = 0
}
