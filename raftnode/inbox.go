package raftnode

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

// proposal waits to become an entry. id is the caller's name for it, 0 when
// nobody can withdraw it.
type proposal struct {
	id        uint64
	typ       raftpb.EntryType
	data      []byte
	withdrawn bool
	later     bool // it waits for company, see Node.ProposeLater
}

// proposalOverhead is what a waiting proposal costs besides its data, so that
// empty ones are bounded too.
const proposalOverhead = 64

func (p proposal) size() int { return len(p.data) + proposalOverhead }

// inbox collects what the drive loop has to do. Its methods may be called by
// any goroutine unless said otherwise; none of them waits for the loop.
type inbox struct {
	wake        chan struct{} // holds one token while there may be work
	maxProps    int           // bytes
	maxMessages int           // bytes

	mu       sync.Mutex // guards all below
	closed   bool
	work     work
	awaited  bool // what is applied is to wake the loop
	msgBytes int
	// props[head:] wait; they leave only when raft has taken them.
	props     []proposal
	head      int
	propBytes int
	pressing  int // how many of them are not for later
}

// work is what the loop takes over in one turn.
type work struct {
	applied uint64            // highest index the apply loop reported, 0 for none
	msgs    []*raftpb.Message // in order of arrival
	calls   []func()          // in order
	reads   []uint64          // ids
	tick    bool
}

func (w *work) reset() {
	clear(w.msgs)
	clear(w.calls)
	*w = work{msgs: w.msgs[:0], calls: w.calls[:0], reads: w.reads[:0]}
}

func newInbox(maxProps, maxMessages int) *inbox {
	return &inbox{wake: make(chan struct{}, 1), maxProps: maxProps, maxMessages: maxMessages, awaited: true}
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// swap gives the collected work to the loop and goes on collecting in spare,
// which must be reset.
func (b *inbox) swap(spare work) work {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.work
	b.work = spare
	b.msgBytes = 0
	return w
}

// close makes everything that comes later fail, and returns what was left.
func (b *inbox) close() work {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	w := b.work
	b.work = work{}
	b.props, b.head, b.propBytes, b.pressing = nil, 0, 0, 0
	return w
}

func (b *inbox) propose(p proposal) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrStopped
	}
	// One proposal is always taken by an empty queue, however large.
	if b.propBytes > 0 && b.propBytes+p.size() > b.maxProps {
		return ErrOverloaded
	}
	if b.head > 0 && len(b.props) == cap(b.props) && b.head >= len(b.props)/2 {
		n := copy(b.props, b.props[b.head:])
		clear(b.props[n:])
		b.props, b.head = b.props[:n], 0
	}
	b.props = append(b.props, p)
	b.propBytes += p.size()
	if !p.later {
		b.pressing++
		b.signal()
	}
	return nil
}

// withdraw takes a proposal out that raft has not taken yet. Callers mostly give
// up in the order they came, so the search from the head is short.
func (b *inbox) withdraw(id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := b.head; i < len(b.props); i++ {
		if p := &b.props[i]; p.id == id && !p.withdrawn {
			b.propBytes -= p.size()
			*p = proposal{id: id, withdrawn: true, later: p.later}
			b.propBytes += p.size()
			break
		}
	}
	for b.head < len(b.props) && b.props[b.head].withdrawn {
		b.pop()
	}
}

// pop removes the first proposal. b.mu is held.
func (b *inbox) pop() proposal {
	p := b.props[b.head]
	b.propBytes -= p.size()
	if !p.later {
		b.pressing--
	}
	b.props[b.head] = proposal{}
	b.head++
	if b.head == len(b.props) {
		b.props, b.head = b.props[:0], 0
	}
	return p
}

// take removes proposals from the head, up to max bytes but at least one, and
// appends them to dst. more tells that others wait.
func (b *inbox) take(dst []proposal, max int) (taken []proposal, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	size := 0
	for b.head < len(b.props) {
		next := &b.props[b.head]
		if size += next.size(); size > max && len(dst) > 0 {
			return dst, true
		}
		if p := b.pop(); !p.withdrawn {
			dst = append(dst, p)
		}
	}
	return dst, false
}

// putBack returns what take gave to the head of the queue. The bound on bytes does
// not apply: they were in the queue a moment ago.
func (b *inbox) putBack(ps []proposal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	rest := b.props[b.head:]
	props := make([]proposal, 0, 2*(len(ps)+len(rest)))
	b.props = append(append(props, ps...), rest...)
	b.head = 0
	for _, p := range ps {
		b.propBytes += p.size()
		if !p.later {
			b.pressing++
		}
	}
}

// behind appends proposals of other members to the queue and reports true, if some for later wait in it: those came before them.
func (b *inbox) behind(ps []proposal) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(b.props)-b.head == b.pressing {
		return false
	}
	b.props = append(b.props, ps...)
	for _, p := range ps {
		b.propBytes += p.size()
		if !p.later {
			b.pressing++
		}
	}
	return true
}

// presses tells whether a proposal waits that is not for later.
func (b *inbox) presses() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pressing > 0
}

// waiting tells how many proposals wait, and their bytes.
func (b *inbox) waiting() (n, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.props) - b.head, b.propBytes
}

// step leaves messages. Of append messages no more than maxMessages bytes
// wait; raft sends dropped ones again. It tells how many were dropped.
func (b *inbox) step(msgs []*raftpb.Message) (dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return len(msgs)
	}
	for _, m := range msgs {
		size := 0
		for _, e := range m.GetEntries() {
			size += len(e.GetData()) + proposalOverhead
		}
		if size > 0 && b.msgBytes > 0 && b.msgBytes+size > b.maxMessages {
			dropped++
			continue
		}
		b.msgBytes += size
		b.work.msgs = append(b.work.msgs, m)
	}
	b.signal()
	return dropped
}

// call leaves f to be run on the drive loop.
func (b *inbox) call(f func()) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrStopped
	}
	b.work.calls = append(b.work.calls, f)
	b.signal()
	return nil
}

func (b *inbox) read(id uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrStopped
	}
	b.work.reads = append(b.work.reads, id)
	b.signal()
	return nil
}

func (b *inbox) tick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.work.tick = true
	b.signal()
}

func (b *inbox) applied(index uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.work.applied = max(b.work.applied, index)
	if b.awaited {
		b.signal()
	}
}

// awaitApplied tells whether the next call of applied, or one that came since swap, is to wake the loop.
func (b *inbox) awaitApplied(awaited bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.awaited = awaited
	if awaited && b.work.applied > 0 {
		b.signal()
	}
}
