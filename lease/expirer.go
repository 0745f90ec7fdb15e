package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/coordd/coordd/api/errs"
)

// The pace of the Expirer.
const (
	// PollInterval is the longest time [Expirer.Run] sleeps, and the pause before a revoke that
	// was given back is tried again.
	PollInterval = 500 * time.Millisecond
	// minPause keeps Run from spinning when leases end one by one.
	minPause = 10 * time.Millisecond
	// RevokeRate is how many leases are handed out for revocation per second, at most.
	RevokeRate = 1000
	// MaxRevokes is how many leases Run hands out at once, at most.
	MaxRevokes = 500
	// MaxCheckpoints is how many checkpoints one log entry should carry, at most.
	MaxCheckpoints = 1000
	// minStep is the smallest drop of the time left that is worth a log entry.
	minStep = 10 * time.Second
	// minCheckpointTTL is the shortest TTL of leases that are checkpointed.
	minCheckpointTTL = 2 * minStep
)

// ErrExpired says that a lease cannot be renewed because its time is over, although it is not
// revoked yet. The server answers such a renewal when the revoke has been applied.
var ErrExpired = errors.New("lease: expired and about to be revoked")

// Batch is a set of leases whose time is over.
type Batch struct {
	// Term is the term of the leader that says so; the proposal carries it as lease_term.
	Term uint64
	// IDs are the leases, in order of their deadlines.
	IDs []ID
}

// Checkpoint is a remaining time to write to the log.
type Checkpoint struct {
	ID ID
	// Remaining is in seconds, rounded up, at least 1.
	Remaining int64
}

// Renewal is the outcome of renewing a lease.
type Renewal struct {
	// TTL is the time the lease has again, in seconds.
	TTL int64
	// Reset asks the server to have a checkpoint of this lease with remaining time 0 applied
	// before it acknowledges the renewal: the log has, or may come to have, less time for the
	// lease than the client is told.
	Reset bool
	// Term is the lease_term to propose that checkpoint with.
	Term uint64
}

// Duties is what [Expirer.Run] asks of the server. Neither function may block.
type Duties struct {
	// Revoke starts the revocation of expired leases. The server calls [Expirer.GiveBack] for
	// those that failed; it learns of success by applying the revoke.
	Revoke func(Batch)
	// Checkpoint queues a proposal with these checkpoints and lease_term term. It is called
	// with the Expirer locked, so that no renewal comes between a checkpoint and its place in
	// the queue, and must not call the Expirer. The slice is the callee's.
	Checkpoint func(term uint64, cs []Checkpoint)
}

// Expirer estimates, on the leader, when each lease ends. All methods may be called by any
// goroutine. The zero value is not usable; see [NewExpirer].
type Expirer struct {
	clock func() time.Duration // times below are by it
	start time.Time            // some moment, for what needs one

	mu          sync.Mutex // guards all below
	primary     bool
	term        uint64
	items       map[ID]*item
	deadlines   queue
	checkpoints queue
	limit       *rate.Limiter
}

// NewExpirer returns an Expirer that knows no leases and answers [errs.ErrNotPrimaryLessor], until
// [Expirer.Promote].
func NewExpirer() *Expirer {
	start := time.Now()
	return NewExpirerOn(func() time.Duration { return time.Since(start) })
}

// NewExpirerOn is NewExpirer with another clock than the process's: clock gives the time since some moment, never less
// than before, and is called with the Expirer locked.
func NewExpirerOn(clock func() time.Duration) *Expirer {
	e := &Expirer{clock: clock, start: time.Now()}
	e.clear()
	return e
}

// now reads the clock.
func (e *Expirer) now() time.Duration { return e.clock() }

// clear forgets all leases. The mutex is held or not needed yet.
func (e *Expirer) clear() {
	e.items = make(map[ID]*item)
	e.deadlines = queue{which: byDeadline}
	e.checkpoints = queue{which: byCheckpoint}
	e.limit = rate.NewLimiter(RevokeRate, MaxRevokes)
}

// Promote makes this member the one that keeps the time, as leader of term: each lease of t gets
// what was left of it at its last checkpoint (or all of its TTL), and extend on top, beginning now. Call
// it after the first entry of the term has been applied to t, so that nothing an earlier leader
// committed is missing; changes applied meanwhile must be reported by [Expirer.Observe] as always.
func (e *Expirer) Promote(term uint64, t *Table, extend time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.clear()
	e.primary, e.term = true, term
	// The list is read under the lock: a grant that is not in it is yet to be observed.
	for _, l := range t.List() {
		e.add(l, extend)
	}
}

// Demote makes the Expirer forget everything, because this member does not lead any more.
func (e *Expirer) Demote() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.clear()
	e.primary = false
}

// Observe takes note of changes of the table, in the order they were applied. It does nothing on
// members that do not lead.
func (e *Expirer) Observe(changes ...Change) {
	if len(changes) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.primary {
		return
	}
	for _, c := range changes {
		switch c.Op {
		case Granted:
			e.add(c.Lease, 0)
		case Revoked:
			e.drop(c.Lease.ID)
		case Checkpointed:
			e.checkpointed(c.Lease)
		}
	}
}

// add begins the time of a lease now. A lease that is known already begins anew.
func (e *Expirer) add(l Lease, extend time.Duration) {
	e.drop(l.ID)
	left := seconds(l.Left())
	it := &item{
		id:       l.ID,
		ttl:      seconds(l.TTL),
		deadline: e.now() + left + extend,
		logged:   left,
		saved:    l.Remaining,
		reset:    -1,
	}
	for q := range it.slot {
		it.slot[q] = -1
	}
	e.items[l.ID] = it
	e.deadlines.put(it, it.deadline)
	if it.ttl >= minCheckpointTTL {
		e.checkpoints.put(it, it.checkpointDue())
	}
}

// drop forgets a lease.
func (e *Expirer) drop(id ID) {
	it := e.items[id]
	if it == nil {
		return
	}
	delete(e.items, id)
	e.deadlines.remove(it)
	e.checkpoints.remove(it)
}

// checkpointed takes note of the remaining time the table now has for a lease.
func (e *Expirer) checkpointed(l Lease) {
	it := e.items[l.ID]
	if it == nil {
		return
	}
	it.saved = l.Remaining
	if l.Remaining > 0 {
		it.settled = min(it.settled+1, it.handed)
		return
	}
	if it.reset >= 0 { // all that was queued before the reset is behind us
		it.settled = max(it.settled, it.reset)
		it.reset = -1
	}
}

// Renew gives a lease its full TTL again. Mind [Renewal.Reset]. Errors are [errs.ErrNotPrimaryLessor],
// [errs.ErrLeaseNotFound], and [ErrExpired] when it is too late. A renewal costs one map lookup
// under the lock.
func (e *Expirer) Renew(id ID) (Renewal, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	it, err := e.lookup(id)
	if err != nil {
		return Renewal{}, err
	}
	now := e.now()
	if it.revoking || it.deadline <= now {
		return Renewal{}, ErrExpired
	}
	it.deadline = now + it.ttl
	it.logged = it.ttl
	it.renewed = true
	r := Renewal{TTL: int64(it.ttl / time.Second), Term: e.term}
	if it.saved != 0 || it.handed != it.settled {
		r.Reset = true
		if it.reset < 0 {
			it.reset = it.handed
		}
	}
	return r, nil
}

// Remaining is the time a lease has left; zero or negative when it is about to be revoked.
// Errors are [errs.ErrNotPrimaryLessor] and [errs.ErrLeaseNotFound].
func (e *Expirer) Remaining(id ID) (time.Duration, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	it, err := e.lookup(id)
	if err != nil {
		return 0, err
	}
	return it.deadline - e.now(), nil
}

func (e *Expirer) lookup(id ID) (*item, error) {
	if !e.primary {
		return nil, errs.ErrNotPrimaryLessor
	}
	it := e.items[id]
	if it == nil {
		return nil, errs.ErrLeaseNotFound
	}
	return it, nil
}

// Expired hands out at most limit leases whose time is over, no more than [RevokeRate] per
// second. A lease is handed out once, until it is given back.
func (e *Expirer) Expired(limit int) Batch {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := Batch{Term: e.term}
	now := e.now()
	for len(b.IDs) < limit {
		it := e.deadlines.first()
		if it == nil || it.at[byDeadline] > now {
			break
		}
		if it.deadline > now { // renewed since it was put there
			e.deadlines.put(it, it.deadline)
			continue
		}
		if !e.limit.AllowN(e.start.Add(now), 1) {
			break
		}
		e.deadlines.remove(it)
		it.revoking = true
		b.IDs = append(b.IDs, it.id)
	}
	return b
}

// GiveBack returns leases that were handed out by [Expirer.Expired] but could not be revoked.
// They are handed out again after [PollInterval]. Ids that are unknown, or of an earlier
// leadership, are ignored.
func (e *Expirer) GiveBack(ids ...ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		if it := e.items[id]; it != nil && it.revoking {
			it.revoking = false
			e.deadlines.put(it, e.now()+PollInterval)
		}
	}
}

// Checkpoints passes to propose the leases that are due for a checkpoint, at most limit of
// them, if there are any. See [Duties.Checkpoint] for what propose may do.
func (e *Expirer) Checkpoints(limit int, propose func(term uint64, cs []Checkpoint)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var due []Checkpoint
	now := e.now()
	for len(due) < limit {
		it := e.checkpoints.first()
		if it == nil || it.at[byCheckpoint] > now {
			break
		}
		if at := it.checkpointDue(); at > now {
			e.checkpoints.put(it, at)
			continue
		}
		left := it.deadline - now
		if left <= 0 { // about to be revoked
			e.checkpoints.put(it, now+max(it.ttl, minCheckpointTTL))
			continue
		}
		due = append(due, e.handOut(it, left))
	}
	if len(due) > 0 {
		propose(e.term, due)
	}
}

// checkpointDue is when the time left has dropped one step below what the log has.
func (it *item) checkpointDue() time.Duration {
	step := max(it.ttl/10, minStep)
	if it.renewed && it.logged == it.ttl {
		step = max(it.ttl/5*2, minStep)
	}
	return it.deadline - it.logged + step
}

// pause is how long Run may sleep before there is something to do.
func (e *Expirer) pause() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	wait := PollInterval
	now := e.now()
	for _, q := range []*queue{&e.deadlines, &e.checkpoints} {
		if it := q.first(); it != nil {
			wait = min(wait, it.at[q.which]-now)
		}
	}
	return max(wait, minPause)
}

// Run hands out expired leases and checkpoints as they become due, until ctx ends. The server
// runs it on a goroutine of its own, whether it leads or not.
func (e *Expirer) Run(ctx context.Context, d Duties) {
	timer := time.NewTimer(PollInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if b := e.Expired(MaxRevokes); len(b.IDs) > 0 {
			d.Revoke(b)
		}
		e.Checkpoints(MaxCheckpoints, d.Checkpoint)
		timer.Reset(e.pause())
	}
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }
