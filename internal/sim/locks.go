package sim

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/coordd/coordd/server"
	"github.com/coordd/coordd/server/lock"
)

// This file has the nouns of locks and elections, and the book in which all that was asked and answered is written. contenders and
// candidates write it, lockJudge reads it when all have ended.

// lockPrefix begins the names of locks, electionPrefix those of elections.
const (
	lockPrefix     = "l/"
	electionPrefix = "e/"
)

// never is a time that does not come.
const never = time.Duration(math.MaxInt64)

// way is how somebody asks for a lock or an election.
type way string

const (
	byCall   way = "Lock"     // a call of the service that waits
	byTry    way = "TryLock"  // one that does not
	byStream way = "Hold"     // a stream that tells when the lock is lost
	byHand   way = "by hand"  // with transactions, as package concurrency of the client does
	byVote   way = "Campaign" // a call of the service for elections
)

// lockMode is how a lock is shared; the zero value is exclusive.
type lockMode struct {
	shared bool
	limit  int64 // of a semaphore, else 0
}

// bond is a lease on which places in queues live, as their owner knows it. Guarded by book.mu.
type bond struct {
	id    int64         // 0 = not known yet
	ttl   time.Duration // of the owner's own; 0 = a session that a member makes and renews
	alive time.Duration // until then at least it lives, unless it is freed
	freed time.Duration // from then on it may end at any time: somebody asked for that, or the connection ended; or never
	ended time.Duration // by then it has ended for certain; or never
}

// named takes in the id of a session, which is not known before the first answer.
func (x *bond) named(id int64) {
	if x.id == 0 {
		x.id = id
	}
}

// claim is one try to get a lock or to be elected, and what came of it.
type claim struct {
	by     string
	member int
	name   string
	way    way
	mode   lockMode
	value  string // of a candidate
	bond   *bond

	call, back time.Duration
	left       time.Duration // when the asker stopped waiting for an answer
	known      bool          // there was an answer, and somebody to hear it
	held       bool          // it was: you hold it
	heldAt     time.Duration // when that was heard
	key        string
	token, rev int64
	until      time.Duration // the lease was said to last until then
	store      int64         // revision of the asked member when the call had ended
	upright    bool          // the member still ran in the same life then
	err        string

	won    chan struct{} // closed when a stream first tells that the lock is held
	lost   time.Duration // a stream told then that the lock is lost; or never
	reason string        // why, as it was told
	lostAt int64         // the revision that was told with it
	ends   time.Duration // when the stream ended, which gives the lock back; or never
}

func (k *claim) String() string {
	s := fmt.Sprintf("%s at m%d, %.4fs to %.4fs: %s %s", k.by, k.member+1, k.call.Seconds(), k.back.Seconds(), k.way, k.name)
	if k.mode.shared {
		s += " shared"
	}
	if k.mode.limit > 0 {
		s += fmt.Sprintf(" limit %d", k.mode.limit)
	}
	if k.bond.id != 0 {
		s += fmt.Sprintf(" lease %x", k.bond.id)
	}
	switch {
	case k.known && k.held:
		s += fmt.Sprintf(" → holds it with token %d since revision %d", k.token, k.rev)
		if k.way == byStream {
			s += fmt.Sprintf(", until the stream ended: %s %s", k.reason, k.err)
		}
		return s
	case k.known:
		return s + " → does not hold it"
	}
	return s + " → no answer: " + k.err
}

// release is one try to give something back.
type release struct {
	by, name   string
	member     int
	key        string
	token      int64 // 0 = any
	call, back time.Duration
	known      bool // it was answered: given back
	rev        int64
	err        string
}

func (x *release) String() string {
	s := fmt.Sprintf("%s at m%d, %.4fs to %.4fs: give back %s token %d", x.by, x.member+1, x.call.Seconds(), x.back.Seconds(), x.key, x.token)
	if x.known {
		return s + fmt.Sprintf(" → done at revision %d", x.rev)
	}
	return s + " → no answer: " + x.err
}

// lockList is an answer about who holds a lock and who waits.
type lockList struct {
	name             string
	member           int
	stale            bool // it may be
	call, back       time.Duration
	rev              int64
	holders, waiters []int64 // tokens
}

func (x *lockList) String() string {
	return fmt.Sprintf("list %s at m%d, %.4fs to %.4fs → revision %d, holders %v, waiters %v", x.name, x.member+1, x.call.Seconds(), x.back.Seconds(), x.rev, x.holders, x.waiters)
}

// lockBook is all that was asked and answered about locks and elections in a run.
type lockBook struct {
	c       *cluster
	settled time.Duration // when all members served after the last fault

	mu        sync.Mutex // guards all below, and the claims and bonds in it until the run has ended
	claims    []*claim
	bonds     []*bond
	releases  []*release
	lists     []*lockList
	speeches  []*speech
	queries   []*leaderQuery
	observers []*observation
	resources map[string]*resource
	stopped   time.Duration // when the work ended
}

func newLockBook(c *cluster) *lockBook {
	return &lockBook{c: c, resources: map[string]*resource{}, settled: never}
}

// change runs f under the book's mutex.
func (b *lockBook) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// bond writes down a lease.
func (b *lockBook) bond(id int64, ttl, alive time.Duration) *bond {
	x := &bond{id: id, ttl: ttl, alive: alive, freed: never, ended: never}
	b.change(func() { b.bonds = append(b.bonds, x) })
	return x
}

// free notes that a lease may end from now on.
func (b *lockBook) free(x *bond) {
	b.change(func() { x.freed = min(x.freed, b.c.now()) })
}

// claim writes down one that begins now.
func (b *lockBook) claim(k *claim) *claim {
	k.call, k.back, k.left, k.lost, k.ends = b.c.now(), never, never, never, never
	k.won = make(chan struct{})
	b.change(func() { b.claims = append(b.claims, k) })
	b.c.count(func(s *Stats) { s.Claims++ })
	return k
}

// releases of a claim, with its token, or the key only as the v3 API has it.
func (b *lockBook) release(by string, member int, k *claim, token int64) *release {
	x := &release{by: by, member: member, name: k.name, key: k.key, token: token, call: b.c.now(), back: never}
	b.change(func() { b.releases = append(b.releases, x) })
	return x
}

// done notes how a release went.
func (b *lockBook) done(x *release, rev int64, err error) bool {
	b.change(func() {
		x.back, x.known, x.rev = b.c.now(), err == nil, rev
		if err != nil {
			x.err = err.Error()
		}
	})
	return err == nil
}

// work is all that uses locks and elections in a run.
type lockWork struct {
	book       *lockBook
	contenders []*contender
	candidates []*candidate
	observers  []*electionObserver
}

const (
	contenders = 5
	candidates = 3
	voters     = 2 // who only observe
)

func newLockWork(c *cluster) *lockWork {
	w := &lockWork{book: newLockBook(c)}
	for i := range contenders {
		w.contenders = append(w.contenders, newContender(w.book, fmt.Sprintf("contender %d", i+1), i))
	}
	for i := range candidates {
		w.candidates = append(w.candidates, &candidate{newContender(w.book, fmt.Sprintf("candidate %d", i+1), contenders+i)})
	}
	for i := range voters {
		w.observers = append(w.observers, newElectionObserver(w.book, i))
	}
	return w
}

// start begins all work. It ends with cluster.stop.
func (w *lockWork) start(c *cluster) {
	for _, k := range w.contenders {
		c.wg.Go(k.run)
	}
	for _, k := range w.candidates {
		c.wg.Go(k.run)
	}
	for _, o := range w.observers {
		c.wg.Go(o.run)
	}
	c.wg.Go(func() {
		<-c.stop.Done()
		w.book.change(func() { w.book.stopped = c.now() })
	})
}

// lockService is a member's service of locks in one life.
type lockService struct {
	*lock.Service
	stopped  context.Context // ends when the member begins to stop in good order, or has ended
	stopping context.CancelFunc
}

// Stop fails all who wait, and ends the streams.
func (s *lockService) Stop() {
	s.stopping()
	s.Service.Stop()
}

// openLocks gives a node that has just started its service of locks. It ends with the node.
func (m *member) openLocks(n *server.Node) {
	s := &lockService{Service: lock.New(lock.Options{Store: n, Hub: n.Hub(), Logger: zap.New(&logCore{m.c.timeline, m.name, m.c.heard, nil})})}
	s.stopped, s.stopping = context.WithCancel(context.Background())
	m.locks = s
	m.c.wg.Go(func() {
		<-n.Done()
		s.stopping()
		s.Close()
	})
}

// served is a running member, with its service of locks, and a context that ends with its life.
type served struct {
	i     int
	node  *server.Node
	locks *lockService
	life  context.Context
}

// upright reports whether the member is not about to end.
func (s served) upright() bool {
	select {
	case <-s.node.Ending():
		return false
	default:
		return s.life.Err() == nil && s.locks.stopped.Err() == nil
	}
}

// pickLocks is a running member drawn by r; ok is false if none runs.
func (c *cluster) pickLocks(r *rand.Rand) (s served, ok bool) {
	first := r.IntN(len(c.members))
	for k := range c.members {
		m := c.members[(first+k)%len(c.members)]
		m.mu.Lock()
		s = served{m.i, m.node, m.locks, m.ctx}
		serves := m.node != nil && !m.lost
		m.mu.Unlock()
		if serves {
			return s, true
		}
	}
	return served{}, false
}

// resource is what a lock guards: it takes writes with a token, and refuses one that is smaller than the largest it has seen.
// The book's mutex guards it.
type resource struct {
	largest int64
	writes  []guardedWrite
}

// guardedWrite is a try to write with a token.
type guardedWrite struct {
	at       time.Duration
	by       *claim
	token    int64
	accepted bool
}

// write asks the resource of a claim's name to take a write, and reports whether it did. A semaphore's or a shared lock's resource is
// not guarded like that: several hold it together.
func (b *lockBook) write(k *claim) (accepted bool) {
	b.change(func() {
		r := b.resources[k.name]
		if r == nil {
			r = &resource{}
			b.resources[k.name] = r
		}
		accepted = k.token >= r.largest
		r.largest = max(r.largest, k.token)
		r.writes = append(r.writes, guardedWrite{b.c.now(), k, k.token, accepted})
	})
	return accepted
}

// check judges the book against the ledger, when all has ended.
func (w *lockWork) check(r *replay, compacted func(rev int64, by time.Duration) bool) {
	b := w.book
	slices.SortStableFunc(b.claims, func(x, y *claim) int { return int(x.call - y.call) })
	newLockJudge(b, r, compacted).check()
	b.c.count(func(s *Stats) {
		for _, k := range b.claims {
			if k.known && k.held {
				s.Holds++
			}
		}
		for _, res := range b.resources {
			for _, x := range res.writes {
				if !x.accepted {
					s.Refused++
				}
			}
		}
		for _, o := range b.observers {
			s.News += len(o.told)
		}
	})
}
