package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/server"
)

// leasePrefix begins the keys that are attached to leases; the id follows.
const leasePrefix = "s/"

const (
	// leaseSlack is how late a lease may end after an undisturbed TTL: the pace of the expirer, and the log.
	leaseSlack = 2 * time.Second
	// renewalLinger is how long a renewal whose client has given up may still reach the leader: the request timeout.
	renewalLinger = 8 * time.Second
)

// habit is how a holder treats a lease.
type habit int

const (
	roaming habit = iota // asks any member, at leisure
	steady               // asks any member, in quick succession
	sticky               // asks one member in quick succession, and leaves the lease once that is slow or fails: so what was promised last counts
	late                 // asks about when the lease ends
	habits
)

// tenure is one lease from its grant to its end, as its holder knows it.
type tenure struct {
	id      int64
	ttl     time.Duration
	key     string
	habit   habit
	at      int           // the member that a sticky holder asks
	alive   time.Duration // begin of the last call that surely gave it its whole TTL
	renewed time.Duration // when it can have got its whole TTL for the last time
	revoked bool          // the holder asked for its end, at some time
}

// holder makes leases, one after the other, keeps each for a while and lets it end.
type holder struct {
	c       *cluster
	i       int
	rng     *rand.Rand
	tenures []*tenure
}

func newHolder(c *cluster, i int) *holder {
	return &holder{c: c, i: i, rng: rand.New(rand.NewPCG(c.seed, uint64(40000+i)))}
}

func (h *holder) run() {
	for n := 1; h.c.stop.Err() == nil; n++ {
		pause(h.c.stop, time.Duration(h.rng.Int64N(int64(time.Second))))
		t := &tenure{id: int64(1_000_000*(h.i+1) + n), habit: habit(h.rng.IntN(int(habits))), at: h.rng.IntN(len(h.c.members))}
		t.key = fmt.Sprint(leasePrefix, t.id)
		if leader := h.c.leader(); leader != nil && h.rng.IntN(2) == 0 {
			t.at = h.c.index[leader.ID()]
		}
		if !h.grant(t) {
			continue // whatever became of it, nothing is attached to it
		}
		h.tenures = append(h.tenures, t)
		h.use(t)
	}
}

// call runs f at a member, of the holder's choice if it sticks to one, and reports whether anybody was told what came of it.
func (h *holder) call(t *tenure, limit time.Duration, f func(ctx context.Context, m int, n *server.Node)) (told bool) {
	m, n, life := h.c.pick(h.rng)
	if t.habit == sticky {
		m = t.at
		n, life = h.c.members[m].live()
	}
	if n == nil {
		pause(h.c.stop, 20*time.Millisecond)
		return false
	}
	ctx, cancel := within(h.c.stop, life, limit)
	defer cancel()
	h.c.awake(ctx, m)
	f(ctx, m, n)
	h.c.awake(ctx, m)
	return ctx.Err() == nil
}

// grant makes the lease.
func (h *holder) grant(t *tenure) bool {
	ask := int64(1) // the least there is
	if t.habit == roaming || t.habit == late {
		ttl := h.c.shape.leaseTTL
		ask = int64(ttl[0] + h.rng.IntN(ttl[1]-ttl[0]+1))
	}
	call := h.c.now()
	var r *rpcpb.LeaseGrantResponse
	var err error
	if !h.call(t, 4*time.Second, func(ctx context.Context, _ int, n *server.Node) {
		r, err = n.LeaseGrant(ctx, &rpcpb.LeaseGrantRequest{ID: t.id, TTL: ask})
	}) || err != nil {
		return false
	}
	h.c.count(func(s *Stats) { s.Leases++ })
	t.ttl = time.Duration(r.TTL) * time.Second
	t.alive, t.renewed = call, h.c.now()
	return true
}

// use attaches a key, renews some times, and leaves the lease to itself or revokes it.
func (h *holder) use(t *tenure) {
	if h.rng.IntN(4) != 0 {
		h.ask(t)
	}
	put := false
	renewals := h.rng.IntN(8)
	if t.habit == steady || t.habit == sticky {
		renewals = h.rng.IntN(80)
	}
	for ; renewals >= 0 && h.c.stop.Err() == nil; renewals-- {
		if !put {
			put = h.put(t)
		}
		if !h.renew(t) {
			return
		}
		if h.rng.IntN(8) == 0 {
			h.ask(t)
		}
		pause(h.c.stop, h.rest(t))
	}
	if h.rng.IntN(3) == 0 {
		h.revoke(t)
	}
}

// rest is how long to wait before the next renewal.
func (h *holder) rest(t *tenure) time.Duration {
	switch t.habit {
	case roaming:
		return time.Duration(h.rng.Int64N(int64(t.ttl / 2)))
	case late:
		return t.ttl - time.Duration(h.rng.Int64N(int64(150*time.Millisecond)))
	}
	return time.Duration(10+h.rng.IntN(150)) * time.Millisecond
}

// revoke ends the lease. Whatever comes of it, it may end from now on; if it was done, nobody gets it renewed.
func (h *holder) revoke(t *tenure) {
	t.revoked = true
	var err error
	if !h.call(t, 2*time.Second, func(ctx context.Context, _ int, n *server.Node) {
		_, err = n.LeaseRevoke(ctx, &rpcpb.LeaseRevokeRequest{ID: t.id})
	}) || err != nil {
		return
	}
	t.habit = roaming
	if h.call(t, 2*time.Second, func(ctx context.Context, _ int, n *server.Node) { _, err = n.LeaseRenew(ctx, t.id) }) && err == nil {
		h.c.violate("lease %d is renewed after its end was acknowledged", t.id)
	}
}

// ask asks some member what is left.
func (h *holder) ask(t *tenure) {
	elsewhere := *t
	elsewhere.habit = roaming
	var r *rpcpb.LeaseTimeToLiveResponse
	var err error
	if !h.call(&elsewhere, time.Second, func(ctx context.Context, _ int, n *server.Node) {
		r, err = n.LeaseTimeToLive(ctx, &rpcpb.LeaseTimeToLiveRequest{ID: t.id})
	}) || err != nil {
		return
	}
	slowest, _ := h.c.shape.rates()
	switch left := h.ends(t) - h.c.now(); {
	case left <= 0:
	case r.TTL < 0:
		h.early(t, "whoever asks what is left is told that it is gone")
	case time.Duration(r.TTL+1)*time.Second <= time.Duration(float64(left)*slowest), r.GrantedTTL != int64(t.ttl/time.Second):
		h.c.violate("lease %d of %v, given its whole time at %.4fs or later, is said to have %d s left of %d", t.id, t.ttl, t.alive.Seconds(), r.TTL, r.GrantedTTL)
	}
}

func (h *holder) put(t *tenure) (done bool) {
	h.call(t, time.Second, func(ctx context.Context, m int, n *server.Node) {
		o := h.c.do(ctx, 100+h.i, m, n, request{then: []action{{
			kind: put, key: t.key, value: fmt.Sprintf("lease %d at %v", t.id, h.c.now()), lease: t.id,
		}}})
		if o.err == errs.ErrLeaseNotFound.Error() && o.back < h.ends(t) {
			h.early(t, "a put is told that the lease is gone")
		}
		done = o.known
	})
	return done
}

// renew renews the lease and reports whether to go on with it.
func (h *holder) renew(t *tenure) bool {
	limit := 2 * time.Second
	if t.habit == steady || t.habit == sticky {
		limit = 400 * time.Millisecond
	}
	call := h.c.now()
	var ttl int64
	asked := false
	var err error
	told := h.call(t, limit, func(ctx context.Context, _ int, n *server.Node) {
		asked = true
		ttl, err = n.LeaseRenew(ctx, t.id)
	})
	now := h.c.now()
	switch {
	case !asked:
	case told && err == nil:
		t.alive, t.renewed = call, max(t.renewed, now)
		if time.Duration(ttl)*time.Second != t.ttl {
			h.c.violate("lease %d of %v is renewed for %d s", t.id, t.ttl, ttl)
		}
		h.c.count(func(s *Stats) { s.Renewals++ })
		return true
	case told && errors.Is(err, errs.ErrLeaseNotFound):
		if now < h.ends(t) {
			h.early(t, "a renewal is told that it is gone")
		}
		return false
	default: // nobody was told anything, so it may have been renewed, or be so later
		t.renewed = now + renewalLinger
	}
	return t.habit != sticky
}

// ends is when the lease can end at the earliest, after what is surely known of it.
func (h *holder) ends(t *tenure) time.Duration { return t.alive + h.c.shape.shortest(t.ttl) }

func (h *holder) early(t *tenure, how string) {
	h.c.violate("lease %d of %v, given its whole time at %.4fs or later, ended early: %s", t.id, t.ttl, t.alive.Seconds(), how)
}

// check holds the ends of the leases, as the ledger knows them, against what was promised.
func (h *holder) check(r *replay, end time.Duration) {
	for _, t := range h.tenures {
		vs := r.keys[t.key]
		if len(vs) == 0 {
			continue // the put never happened
		}
		last := vs[len(vs)-1]
		if last.cell.Version > 0 {
			if base := h.c.calm(max(t.renewed, h.putSeen(r, last)), end); end-base > h.c.shape.longest(t.ttl)+leaseSlack {
				h.c.violateAt(end, "lease %d of %v, renewed until %.4fs and undisturbed since %.4fs, has not ended at %.4fs", t.id, t.ttl, t.renewed.Seconds(), base.Seconds(), end.Seconds())
			}
			continue
		}
		ended := r.l.changes[last.rev].seen
		if !t.revoked && ended < h.ends(t) {
			h.c.violateAt(ended, "lease %d of %v, given its whole time at %.4fs or later, ended early, at revision %d, %.4fs", t.id, t.ttl, t.alive.Seconds(), last.rev, ended.Seconds())
		}
		if base := h.c.calm(max(t.renewed, h.putSeen(r, vs[0])), ended); ended-base > h.c.shape.longest(t.ttl)+leaseSlack {
			h.c.violateAt(ended, "lease %d of %v, renewed until %.4fs and undisturbed since %.4fs, ended late, at %.4fs", t.id, t.ttl, t.renewed.Seconds(), base.Seconds(), ended.Seconds())
		}
	}
}

func (h *holder) putSeen(r *replay, v version) time.Duration { return r.l.changes[v.rev].seen }

// calm is the last moment before to, and not before from, at which something was disturbed.
func (c *cluster) calm(from, to time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.disturbed {
		if d > from && d <= to {
			from = d
		}
	}
	return from
}
