package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
)

// leasePrefix begins the keys that are attached to leases; the id follows.
const leasePrefix = "s/"

const (
	// leaseSlack is how late a lease may end after an undisturbed TTL: the pace of the expirer, and the log.
	leaseSlack = 2 * time.Second
	// renewalLinger is how long a renewal whose client has given up may still reach the leader: the request timeout.
	renewalLinger = 8 * time.Second
)

// tenure is one lease from its grant to its end, as its holder knows it.
type tenure struct {
	id      int64
	ttl     time.Duration
	key     string
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
		t := &tenure{id: int64(1_000_000*(h.i+1) + n)}
		t.key = fmt.Sprint(leasePrefix, t.id)
		if !h.grant(t) {
			continue // whatever became of it, nothing is attached to it
		}
		h.tenures = append(h.tenures, t)
		h.use(t)
	}
}

// grant makes the lease.
func (h *holder) grant(t *tenure) bool {
	_, n, life := h.c.pick(h.rng)
	if n == nil {
		return false
	}
	ctx, cancel := within(h.c.stop, life, 4*time.Second)
	defer cancel()
	call, ttl := h.c.now(), h.c.shape.leaseTTL
	r, err := n.LeaseGrant(ctx, &rpcpb.LeaseGrantRequest{ID: t.id, TTL: int64(ttl[0] + h.rng.IntN(ttl[1]-ttl[0]+1))})
	if err != nil || ctx.Err() != nil {
		return false
	}
	h.c.count(func(s *Stats) { s.Leases++ })
	t.ttl = time.Duration(r.TTL) * time.Second
	t.alive, t.renewed = call, h.c.now()
	return true
}

// use attaches a key, renews some times, and leaves the lease to itself or revokes it.
func (h *holder) use(t *tenure) {
	put := false
	for renewals := h.rng.IntN(8); renewals >= 0 && h.c.stop.Err() == nil; renewals-- {
		if !put {
			put = h.put(t)
		}
		if !h.renew(t) {
			return
		}
		pause(h.c.stop, time.Duration(h.rng.Int64N(int64(t.ttl/2))))
	}
	if h.rng.IntN(3) != 0 {
		return
	}
	if _, n, life := h.c.pick(h.rng); n != nil {
		ctx, cancel := within(h.c.stop, life, 2*time.Second)
		defer cancel()
		t.revoked = true
		_, _ = n.LeaseRevoke(ctx, &rpcpb.LeaseRevokeRequest{ID: t.id}) // whatever comes of it, it may end now
	}
}

func (h *holder) put(t *tenure) bool {
	m, n, life := h.c.pick(h.rng)
	if n == nil {
		return false
	}
	ctx, cancel := within(h.c.stop, life, time.Second)
	defer cancel()
	o := h.c.do(ctx, 100+h.i, m, n, request{then: []action{{
		kind: put, key: t.key, value: fmt.Sprintf("lease %d at %v", t.id, h.c.now()), lease: t.id,
	}}})
	if o.err == errs.ErrLeaseNotFound.Error() && o.back < t.alive+t.ttl {
		h.early(t, "a put is told that the lease is gone")
	}
	return o.known
}

// renew renews the lease and reports whether it is still there.
func (h *holder) renew(t *tenure) bool {
	_, n, life := h.c.pick(h.rng)
	if n == nil {
		return true
	}
	ctx, cancel := within(h.c.stop, life, 2*time.Second)
	defer cancel()
	call := h.c.now()
	ttl, err := n.LeaseRenew(ctx, t.id)
	now := h.c.now()
	switch {
	case ctx.Err() != nil: // nobody was told anything
		t.renewed = now + renewalLinger
	case err == nil:
		t.alive, t.renewed = call, max(t.renewed, now)
		if time.Duration(ttl)*time.Second != t.ttl {
			h.c.violate("lease %d of %v is renewed for %d s", t.id, t.ttl, ttl)
		}
		h.c.count(func(s *Stats) { s.Renewals++ })
	case errors.Is(err, errs.ErrLeaseNotFound):
		if now < t.alive+t.ttl {
			h.early(t, "a renewal is told that it is gone")
		}
		return false
	default:
		t.renewed = now + renewalLinger
	}
	return true
}

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
			if base := h.c.calm(max(t.renewed, h.putSeen(r, last)), end); end-base > t.ttl+leaseSlack {
				h.c.violateAt(end, "lease %d of %v, renewed until %.4fs and undisturbed since %.4fs, has not ended at %.4fs", t.id, t.ttl, t.renewed.Seconds(), base.Seconds(), end.Seconds())
			}
			continue
		}
		ended := r.l.changes[last.rev].seen
		if !t.revoked && ended < t.alive+t.ttl {
			h.c.violateAt(ended, "lease %d of %v, given its whole time at %.4fs or later, ended early, at revision %d, %.4fs", t.id, t.ttl, t.alive.Seconds(), last.rev, ended.Seconds())
		}
		if base := h.c.calm(max(t.renewed, h.putSeen(r, vs[0])), ended); ended-base > t.ttl+leaseSlack {
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
