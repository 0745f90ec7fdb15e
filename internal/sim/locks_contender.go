package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/coordd/coordd/api/coorddpb"
	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/lockpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/server/lock"
)

// lockKind is a lock that contenders want, and how.
type lockKind struct {
	name   string
	shared bool // half of the askers share it
	limit  int64
	delay  time.Duration
}

// lockKinds are the locks of a run: few, so that they are wanted by several at once.
func lockKinds() []lockKind {
	return []lockKind{
		{name: lockPrefix + "plain"}, {name: lockPrefix + "plain"}, {name: lockPrefix + "rw", shared: true},
		{name: lockPrefix + "sem", limit: 2}, {name: lockPrefix + "delay", delay: 700 * time.Millisecond},
	}
}

// contender asks for locks, one after the other, and behaves well or badly with them.
type contender struct {
	c     *cluster
	book  *lockBook
	name  string
	i     int
	rng   *rand.Rand
	bonds int
	old   []*claim // that it has held: it may give them back once more
	own   *lifeline
	last  lockKind      // that it asked for
	limit chan struct{} // bounds the calls that it has given up and that have not come back
}

func newContender(b *lockBook, name string, i int) *contender {
	return &contender{
		c: b.c, book: b, name: name, i: i, rng: rand.New(rand.NewPCG(b.c.seed, uint64(50000+i))), limit: make(chan struct{}, 3),
	}
}

// lifeline is what a contender's places live on.
type lifeline struct {
	*bond
	alive context.Context // the connection, or the renewing
	cut   context.CancelFunc
}

func (k *contender) upTo(d time.Duration) time.Duration { return time.Duration(k.rng.Int64N(int64(d))) }

func (k *contender) run() {
	defer k.drop()
	for k.c.stop.Err() == nil {
		pause(k.c.stop, k.upTo(600*time.Millisecond))
		switch p := k.rng.IntN(100); {
		case p < 8 && len(k.old) > 0:
			k.giveBack(k.old[k.rng.IntN(len(k.old))], true)
		case p < 18:
			k.list()
		default:
			k.round()
		}
	}
}

// round is one lock from the wish to the end.
func (k *contender) round() {
	kind := lockKinds()[k.rng.IntN(len(lockKinds()))]
	if k.rng.IntN(2) == 0 && k.last.name != "" {
		kind = k.last // with the same lease it is the same key, with another token
	}
	k.last = kind
	x := &claim{by: k.name, name: kind.name, mode: lockMode{limit: kind.limit}}
	x.mode.shared = kind.shared && k.rng.IntN(2) == 0
	switch p := k.rng.IntN(10); {
	case p < 2:
		x.way = byTry
	case p < 4:
		x.way = byStream
	case p < 6 && !kind.shared && kind.limit == 0 && kind.delay == 0:
		x.way = byHand
	default:
		x.way = byCall
	}
	if !k.line(x.way == byHand) {
		return
	}
	x.bond = k.own.bond
	switch x.way {
	case byHand:
		k.askByHand(x)
	case byStream:
		k.ask(x, k.hold(kind))
	default:
		k.ask(x, k.lock(kind))
	}
	k.after(x)
}

// line sees to it that the contender has a lease: its own, which it renews, or a session of the server's.
func (k *contender) line(own bool) bool {
	if k.own != nil && k.own.bond.ttl > 0 && k.own.freed == never && k.rng.IntN(3) > 0 {
		return true // once more with the same
	}
	k.drop()
	ctx, cut := context.WithCancel(k.c.stop)
	if !own && k.rng.IntN(3) == 0 {
		k.own = &lifeline{k.book.bond(0, 0, 0), ctx, cut}
		return true
	}
	s, ok := k.c.pickLocks(k.rng)
	if !ok {
		cut()
		return false
	}
	k.bonds++
	limit, cancel := within(k.c.stop, s.life, 3*time.Second)
	defer cancel()
	call, ttl := k.c.now(), k.c.shape.leaseTTL
	k.c.awake(limit, s.i)
	r, err := s.node.LeaseGrant(limit, &rpcpb.LeaseGrantRequest{
		ID: int64(100_000_000*(k.i+1) + k.bonds), TTL: int64(ttl[0] + k.rng.IntN(ttl[1]-ttl[0]+1)),
	})
	if err != nil || limit.Err() != nil {
		cut()
		return false
	}
	d := time.Duration(r.TTL) * time.Second
	k.own = &lifeline{k.book.bond(r.ID, d, call+k.c.shape.shortest(d)), ctx, cut}
	own2, rng := k.own, rand.New(rand.NewPCG(k.c.seed, uint64(1_000_000*(k.i+1)+k.bonds)))
	k.c.wg.Go(func() { k.renew(own2, rng) })
	return true
}

// renew renews a lease until it is cut off: in time, or sometimes not.
func (k *contender) renew(l *lifeline, rng *rand.Rand) {
	between := l.ttl / 4
	if rng.IntN(4) == 0 {
		between = l.ttl * 3 / 4
	}
	for l.alive.Err() == nil {
		pause(l.alive, between/2+time.Duration(rng.Int64N(int64(between))))
		s, ok := k.c.pickLocks(rng)
		if !ok || l.alive.Err() != nil {
			continue
		}
		ctx, cancel := within(l.alive, s.life, l.ttl/4+100*time.Millisecond)
		call := k.c.now()
		k.c.awake(ctx, s.i)
		_, err := s.node.LeaseRenew(ctx, l.id)
		k.c.awake(ctx, s.i)
		if err == nil && ctx.Err() == nil {
			k.book.change(func() { l.bond.alive = max(l.bond.alive, call+k.c.shape.shortest(l.ttl)) })
		}
		cancel()
		if errors.Is(err, errs.ErrLeaseNotFound) {
			k.book.change(func() { l.ended = min(l.ended, k.c.now()) })
			return
		}
	}
}

// drop cuts the contender off from what it holds: nothing is renewed any more, and a session's connection ends.
func (k *contender) drop() {
	if k.own == nil {
		return
	}
	if k.own.ttl == 0 {
		k.book.free(k.own.bond)
	}
	k.own.cut()
	k.own = nil
}

// asking is one call of a service for a claim. It runs on a goroutine of its own.
type asking func(ctx context.Context, s served, x *claim, l *lifeline) error

// ask makes a call and waits for its answer, as long as the contender's patience lasts or until a stream has told that the lock is held.
func (k *contender) ask(x *claim, f asking) {
	s, ok := k.c.pickLocks(k.rng)
	if !ok {
		x.call, x.err = k.c.now(), "no member runs"
		return
	}
	patience := 200*time.Millisecond + k.upTo(1500*time.Millisecond)
	if k.rng.IntN(3) == 0 {
		patience = 8 * time.Second
	}
	x.member = s.i
	l := k.own
	ctx, cancel := within(k.c.stop, s.life, patience)
	if x.way == byStream { // its patience ends when it holds the lock
		cancel()
		ctx, cancel = within(k.c.stop, s.life, 30*time.Second)
	}
	k.limit <- struct{}{}
	k.book.claim(x)
	done := make(chan struct{})
	k.c.wg.Go(func() {
		defer func() { cancel(); <-k.limit }()
		k.c.awake(ctx, s.i)
		err := f(ctx, s, x, l)
		k.c.awake(ctx, s.i)
		k.book.change(func() {
			x.back, x.store, x.upright = k.c.now(), s.node.Revision(), s.upright()
			switch {
			case err != nil:
				x.err = err.Error()
			case x.way == byStream || ctx.Err() == nil:
				if x.way != byStream {
					x.known, x.heldAt = true, k.c.now()
				}
			default:
				x.err = "the answer came too late"
			}
		})
		time.Sleep(time.Millisecond) // a member whose log has failed refuses calls some steps before it says that it ends
		k.book.change(func() { x.upright = x.upright && s.upright() })
		close(done)
	})
	k.await(x, ctx, cancel, done, patience)
}

// await waits for the end of a call. Now and then the lease ends meanwhile, by the contender's wish.
func (k *contender) await(x *claim, ctx context.Context, cancel context.CancelFunc, done <-chan struct{}, patience time.Duration) {
	revoke := never
	if k.rng.IntN(12) == 0 {
		revoke = k.upTo(patience)
	}
	revoking, late := time.NewTimer(revoke), time.NewTimer(patience)
	defer revoking.Stop()
	defer late.Stop()
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			k.book.change(func() { x.left = k.c.now() })
			return
		case <-late.C:
			if x.way == byStream {
				cancel()
			}
		case <-x.won:
			rest := 200*time.Millisecond + k.upTo(2*time.Second)
			k.c.wg.Go(func() { k.stream(x, rest, done, cancel) })
			return
		case <-revoking.C:
			k.revoke()
		}
	}
}

// stream lets a stream that holds a lock go on for some time.
func (k *contender) stream(x *claim, rest time.Duration, done <-chan struct{}, cancel context.CancelFunc) {
	until := time.NewTimer(rest)
	defer until.Stop()
	select {
	case <-until.C:
		k.book.change(func() { x.ends = min(x.ends, k.c.now()) })
		cancel()
	case <-done:
	}
}

// revoke asks for the end of the contender's own lease.
func (k *contender) revoke() {
	if k.own == nil || k.own.ttl == 0 {
		return
	}
	s, ok := k.c.pickLocks(k.rng)
	if !ok {
		return
	}
	l := k.own
	k.book.free(l.bond)
	ctx, cancel := within(k.c.stop, s.life, 2*time.Second)
	defer cancel()
	k.c.awake(ctx, s.i)
	_, err := s.node.LeaseRevoke(ctx, &rpcpb.LeaseRevokeRequest{ID: l.id})
	k.c.awake(ctx, s.i)
	if err == nil && ctx.Err() == nil || errors.Is(err, errs.ErrLeaseNotFound) {
		k.book.change(func() { l.ended = min(l.ended, k.c.now()) })
	}
}

// lock is a call of Lock.
func (k *contender) lock(kind lockKind) asking {
	ttl := k.sessionTTL()
	return func(ctx context.Context, s served, x *claim, l *lifeline) error {
		r, err := s.locks.Lock(ctx, lock.Connection{Alive: l.alive}, &lockpb.LockRequest{
			Name: []byte(x.name), Lease: l.id, Try: x.way == byTry, Shared: x.mode.shared, Limit: x.mode.limit,
			LockDelayMs: kind.delay.Milliseconds(), Ttl: ttl,
		})
		if err != nil {
			return err
		}
		k.book.change(func() {
			if x.held = r.Acquired; x.held {
				x.key, x.token, x.rev = string(r.Key), r.FencingToken, r.Header.Revision
				x.until = k.lasts(x, ttl, k.c.now(), r.RemainingTtlMs)
				x.bond.named(r.Lease)
			} else {
				x.rev = r.Header.Revision
			}
		})
		return nil
	}
}

// hold is a stream of Hold.
func (k *contender) hold(kind lockKind) asking {
	ttl := k.sessionTTL()
	return func(ctx context.Context, s served, x *claim, l *lifeline) error {
		ctx, cancel := within(l.alive, ctx, time.Minute)
		defer cancel()
		over := func() { k.book.change(func() { x.ends = min(x.ends, k.c.now()) }) }
		defer context.AfterFunc(ctx, over)()
		defer context.AfterFunc(s.locks.stopped, over)()
		return s.locks.Hold(ctx, &coorddpb.HoldRequest{
			Name: []byte(x.name), Lease: l.id, Shared: x.mode.shared, Limit: x.mode.limit,
			LockDelayMs: kind.delay.Milliseconds(), Ttl: ttl,
		}, func(m *coorddpb.HoldResponse) error {
			at := k.c.now()
			k.c.awake(ctx, s.i)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			k.book.change(func() { k.told(x, ttl, m, at) })
			return nil
		})
	}
}

// told takes in what a stream tells, as it was at some time. ttl is what a session of the claim was asked for.
func (k *contender) told(x *claim, ttl int64, m *coorddpb.HoldResponse, at time.Duration) {
	if m.Lease != 0 {
		x.bond.named(m.Lease)
	}
	switch m.State {
	case coorddpb.HoldState_HOLD_HELD:
		if !x.held {
			x.known, x.held, x.heldAt, x.key, x.token, x.rev = true, true, k.c.now(), string(m.Key), m.FencingToken, m.Header.Revision
			close(x.won)
		}
		x.until = max(x.until, k.lasts(x, ttl, at, m.RemainingTtlMs))
	case coorddpb.HoldState_HOLD_LOST:
		x.lost, x.reason = k.c.now(), m.Reason.String()
		x.lostAt = m.Header.Revision
	}
}

// leastTTL is what a member makes of a shorter time to live: one and a half of its election timeouts, in whole seconds.
const leastTTL = 2 * time.Second

// lasts is until when the lease of a claim lives at the least that was said at some time to have so many milliseconds left; 0 when nothing
// was said but that it may end any moment. What is left is counted down by the clock of the member that answers, from when it last asked or
// renewed, and ends by that of the leader, which may run faster: not only for what is left, but from the beginning on. So all that
// clocks can take of the whole time to live comes off. That is the bond's, or of a session what was asked for.
func (k *contender) lasts(x *claim, asked int64, at time.Duration, left int64) time.Duration {
	if left <= 0 {
		return 0
	}
	ttl := x.bond.ttl
	if ttl == 0 {
		ttl = max(time.Duration(asked)*time.Second, leastTTL)
	}
	return at + time.Duration(left)*time.Millisecond - (ttl - k.c.shape.shortest(ttl))
}

func (k *contender) sessionTTL() int64 {
	ttl := k.c.shape.leaseTTL
	return int64(ttl[0] + k.rng.IntN(ttl[1]-ttl[0]+1))
}

// after is what a contender does once it knows, or does not want to know any more.
func (k *contender) after(x *claim) {
	held := false
	k.book.change(func() { held = x.known && x.held })
	if !held {
		if k.own != nil && k.own.ttl == 0 || k.rng.IntN(2) == 0 {
			k.drop()
		}
		return
	}
	if before := k.before(x); before != nil && k.rng.IntN(2) == 0 {
		k.giveBack(before, true)
	}
	k.old = append(k.old, x)
	k.use(x, 1200*time.Millisecond)
	switch p := k.rng.IntN(10); {
	case p < 5:
		for range 3 {
			if k.giveBack(x, false) && k.rng.IntN(4) > 0 {
				break
			}
			pause(k.c.stop, k.upTo(300*time.Millisecond))
		}
	case p < 6:
		k.revoke()
		k.drop()
	case p < 8: // cut off; it does not know, and goes on
		k.drop()
		k.use(x, 8*time.Second)
	default: // it forgets that it holds it
		if k.rng.IntN(2) == 0 {
			k.drop()
		}
	}
	if k.own != nil && k.own.ttl == 0 {
		k.drop() // a session is for one lock
	}
}

// before is an earlier claim that had the same key as this one, nil if there is none: a late release of it must not hurt this one.
func (k *contender) before(x *claim) *claim {
	for _, o := range slices.Backward(k.old) {
		if o.key == x.key && o.token != x.token {
			return o
		}
	}
	return nil
}

// use writes to what the lock guards, for some time.
func (k *contender) use(x *claim, most time.Duration) {
	if x.mode != (lockMode{}) || x.name == lockPrefix+"rw" {
		pause(k.c.stop, k.upTo(most))
		return
	}
	for end := k.c.now() + k.upTo(most); k.c.now() < end && k.c.stop.Err() == nil; {
		if !k.book.write(x) {
			return // the resource has told it
		}
		pause(k.c.stop, k.upTo(300*time.Millisecond))
	}
}

// giveBack unlocks, also what it does not hold any more. Without the token it is the call of the v3 API.
func (k *contender) giveBack(x *claim, late bool) bool {
	s, ok := k.c.pickLocks(k.rng)
	if !ok {
		return false
	}
	token := x.token
	if !late && k.rng.IntN(4) == 0 {
		token = 0
	}
	ctx, cancel := within(k.c.stop, s.life, 2*time.Second)
	defer cancel()
	rel := k.book.release(k.name, s.i, x, token)
	k.c.awake(ctx, s.i)
	var rev int64
	var err error
	if x.way == byHand {
		rev, err = deleteIf(ctx, s, x)
	} else {
		var r *lockpb.UnlockResponse
		r, err = s.locks.Unlock(ctx, &lockpb.UnlockRequest{Key: []byte(x.key), FencingToken: token})
		if err == nil {
			rev = r.Header.Revision
		}
	}
	k.c.awake(ctx, s.i)
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("the answer came too late")
	}
	return k.book.done(rel, rev, err)
}

// list asks who holds a lock.
func (k *contender) list() {
	s, ok := k.c.pickLocks(k.rng)
	if !ok {
		return
	}
	ctx, cancel := within(k.c.stop, s.life, 2*time.Second)
	defer cancel()
	x := &lockList{name: lockKinds()[k.rng.IntN(len(lockKinds()))].name, member: s.i, call: k.c.now(), stale: k.rng.IntN(3) == 0}
	k.c.awake(ctx, s.i)
	r, err := s.locks.List(ctx, &coorddpb.ListLocksRequest{Name: []byte(x.name), Serializable: x.stale})
	k.c.awake(ctx, s.i)
	if err != nil || ctx.Err() != nil {
		return
	}
	x.back, x.rev = k.c.now(), r.Header.Revision
	for _, e := range r.Holders {
		x.holders = append(x.holders, e.FencingToken)
	}
	for _, e := range r.Waiters {
		x.waiters = append(x.waiters, e.FencingToken)
	}
	k.book.change(func() { k.book.lists = append(k.book.lists, x) })
}
