package lock

import (
	"bytes"
	"slices"

	"github.com/coordd/coordd/api/kvpb"
)

// line follows one queue while somebody in this member waits in it or looks at it. All fields are guarded by Service.mu, but
// name, prefix and opened.
type line struct {
	name   string
	opened chan struct{} // closed when the queue has been read, or err is set
	err    error         // why it could not be read, or the following ended

	id    int64 // of its watcher
	queue *queue
	rev   int64 // events up to it are in queue
	front int   // of queue
	head  *kvpb.KeyValue

	refs      int                  // callers between enter and leave
	tickets   map[string][]*ticket // by key: usually one, more when a lease asks twice
	counting  int                  // tickets that are told how many are ahead
	observers map[*observer]struct{}
}

// ticket follows one key of a queue: it is told once that it is at the front, if that happens, and once that the key is gone.
type ticket struct {
	line   *line
	key    string
	create int64 // create revision of the key
	held   bool  // it was told so; guarded by Service.mu
	gone   bool  // likewise
	news   chan verdict
	// ahead, nil unless asked for, holds the number of those before this one when that has become a milestone; the last only.
	ahead chan int64
	told  int64 // the number it was told last; guarded by Service.mu
}

// verdict is what a ticket is told.
type verdict struct {
	held bool // at the front; else gone
	rev  int64
	// replaced, when gone: the key is there again, with another create revision.
	replaced bool
	err      error // the following has ended
}

// follow begins to follow a key; with count, also how many are ahead. The caller has entered the line, and ends with forget.
func (s *Service) follow(l *line, key []byte, create int64, count bool) *ticket {
	t := &ticket{line: l, key: string(key), create: create, news: make(chan verdict, 2)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if count {
		t.ahead = make(chan int64, 1)
		l.counting++
	}
	l.tickets[t.key] = append(l.tickets[t.key], t)
	if l.err != nil {
		l.tell(t, verdict{err: l.err})
		return t
	}
	switch e := l.queue.byKey[t.key]; {
	case e == nil && create <= l.rev:
		l.tell(t, verdict{rev: l.rev})
	case e != nil && e.kv.GetCreateRevision() > create:
		l.tell(t, verdict{rev: l.rev, replaced: true})
	case e != nil && e.kv.GetCreateRevision() == create && l.queue.place(e) < l.front:
		l.tell(t, verdict{held: true, rev: l.rev})
	}
	return t
}

// forget ends a ticket.
func (s *Service) forget(t *ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.ahead != nil {
		t.line.counting--
	}
	left := slices.DeleteFunc(t.line.tickets[t.key], func(other *ticket) bool { return other == t })
	if len(left) == 0 {
		delete(t.line.tickets, t.key)
	} else {
		t.line.tickets[t.key] = left
	}
}

// ahead is the number of entries before a ticket's, 0 when its key is gone. When it is not there yet, all are before it.
func (s *Service) ahead(t *ticket) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := t.line
	e := l.queue.byKey[t.key]
	var before []*entry
	if e != nil {
		before = l.queue.entries[:l.queue.place(e)]
	} else if t.create > l.rev {
		before = l.queue.entries
	}
	n := int64(0)
	for _, other := range before {
		if !l.queue.idle(other) {
			n++
		}
	}
	if t.ahead != nil { // whatever waits there is not newer
		t.take()
		t.told = n
	}
	return n
}

// take empties ahead.
func (t *ticket) take() {
	select {
	case <-t.ahead:
	default:
	}
}

// mixed reports whether the queue's first entry asked with another limit than m. Only semaphores have limits that matter.
func (s *Service) mixed(l *line, key []byte, m mode) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := l.queue.head()
	if first == nil || bytes.Equal(first.kv.GetKey(), key) {
		return false
	}
	return first.mode.limit != m.limit
}

// tell gives a ticket its news. There is room: each kind of news is given once.
func (l *line) tell(t *ticket, v verdict) {
	switch {
	case t.gone || v.held && t.held:
		return
	case v.held:
		t.held = true
	default:
		t.gone = true
	}
	t.news <- v
}

// apply takes in the events of one revision.
func (l *line) apply(events []*kvpb.Event) {
	l.rev = events[0].GetKv().GetModRevision()
	for _, ev := range events {
		kv := ev.GetKv()
		key := string(kv.GetKey())
		if ev.GetType() == kvpb.Event_DELETE {
			l.queue.remove(key)
			l.lose(key, l.rev, false)
			continue
		}
		l.queue.put(kv)
		if kv.GetCreateRevision() == kv.GetModRevision() {
			l.lose(key, l.rev, true)
		}
	}
	l.settle()
}

// reset replaces the queue, when events were missed.
func (l *line) reset(kvs []*kvpb.KeyValue, rev int64) {
	l.queue, l.rev = newQueue(kvs), rev
	for key := range l.tickets {
		if e := l.queue.byKey[key]; e != nil {
			l.lose(key, e.kv.GetCreateRevision(), true)
		} else {
			l.lose(key, rev+1, false)
		}
	}
	l.settle()
}

// lose tells the tickets of a key that were made before a revision that it is gone.
func (l *line) lose(key string, before int64, replaced bool) {
	for _, t := range l.tickets[key] {
		if t.create < before {
			l.tell(t, verdict{rev: l.rev, replaced: replaced})
		}
	}
}

// settle tells those who have come to the front, and the observers who leads. It costs as much as there are entries at the front.
func (l *line) settle() {
	l.front = l.queue.front()
	for _, e := range l.queue.entries[:l.front] {
		for _, t := range l.tickets[string(e.kv.GetKey())] {
			if t.create == e.kv.GetCreateRevision() {
				l.tell(t, verdict{held: true, rev: l.rev})
			}
		}
	}
	if l.counting > 0 {
		l.count()
	}
	var head *kvpb.KeyValue
	if e := l.queue.head(); e != nil {
		head = e.kv
	}
	if head.GetModRevision() == l.head.GetModRevision() && bytes.Equal(head.GetKey(), l.head.GetKey()) {
		return
	}
	l.head = head
	for o := range l.observers {
		o.see(l.rev, head)
	}
}

// nearFront is from where on a waiter that counts is told of each that leaves before it.
const nearFront = 8

// milestone reports numbers of those ahead that a waiter is told: all near the front, and farther back the powers of two. So one of
// ten thousand is told twenty times in all, and one release tells a few and wakes as few.
func milestone(ahead int64) bool { return ahead <= nearFront || ahead&(ahead-1) == 0 }

// count tells those who count, and have come to a milestone, how many are ahead of them. It goes through the queue once.
func (l *line) count() {
	ahead := int64(0)
	for i, e := range l.queue.entries {
		if l.queue.idle(e) {
			continue
		}
		if i >= l.front && milestone(ahead) {
			for _, t := range l.tickets[string(e.kv.GetKey())] {
				if t.create == e.kv.GetCreateRevision() {
					t.count(ahead)
				}
			}
		}
		ahead++
	}
}

// count tells a ticket, if it counts, how many are ahead. A number that was not taken yet is replaced.
func (t *ticket) count(ahead int64) {
	if t.ahead == nil || t.told == ahead {
		return
	}
	t.take()
	t.ahead <- ahead // only the holder of Service.mu sends, so there is room
	t.told = ahead
}

// fail ends the following with err.
func (l *line) fail(err error) {
	l.err = err
	for _, tickets := range l.tickets {
		for _, t := range tickets {
			l.tell(t, verdict{err: err})
		}
	}
	for o := range l.observers {
		o.end(err)
	}
}
