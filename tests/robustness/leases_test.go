package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/coordd/coordd/tests/history"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// leasePrefix begins the keys that are attached to leases; the id follows.
const leasePrefix = "s/"

// linger is how long a renewal whose client has given up may still reach the leader, if no link is cut: the time servers spend on it.
const linger = 8 * time.Second

// holder makes leases, one after the other, keeps each for a while and lets it end.
type holder struct {
	r       *run
	c       *clientv3.Client
	rng     *rand.Rand
	tenures []*history.Tenure
}

// leases starts the holders of leases.
func (r *run) leases() []*holder {
	var all []*holder
	for i := range holders {
		var members []int
		if i%4 < 3 {
			members = []int{i % 4}
		}
		h := &holder{r: r, c: r.etcd(fmt.Sprintf("holder%d", i), members...), rng: r.rand(uint64(3000 + i))}
		all = append(all, h)
		r.busy.Go(func() {
			for r.pause(h.rng, time.Second) {
				if l := h.grant(); l != nil {
					h.tenures = append(h.tenures, l)
					h.use(l)
				}
			}
		})
	}
	return all
}

func (h *holder) within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(h.r.ctx, d)
}

func (h *holder) grant() *history.Tenure {
	ctx, cancel := h.within(3 * time.Second)
	defer cancel()
	call := h.r.site.Now()
	g, err := h.c.Grant(ctx, 1+h.rng.Int64N(int64(maxTTL/time.Second)))
	if err != nil {
		return nil // nothing is attached to it
	}
	ttl := time.Duration(g.TTL) * time.Second
	if ttl > maxTTL {
		h.r.violate("a lease of %v was granted, nobody asked for more than %v", ttl, maxTTL)
	}
	h.r.count("leases", 1)
	return &history.Tenure{ID: int64(g.ID), TTL: ttl, Key: fmt.Sprintf("%s%x", leasePrefix, int64(g.ID)), Alive: call, Renewed: h.r.site.Now()}
}

// use attaches a key, renews some times, and leaves the lease to itself or revokes it.
func (h *holder) use(l *history.Tenure) {
	put := false
	for renewals := h.rng.IntN(6); renewals >= 0; renewals-- {
		if !put {
			put = h.put(l)
		}
		if renewals > 0 && !h.renew(l) || !h.r.pause(h.rng, l.TTL/2) {
			return
		}
	}
	if h.rng.IntN(3) != 0 {
		return
	}
	ctx, cancel := h.within(2 * time.Second)
	defer cancel()
	l.Dropped = h.r.site.Now()
	_, _ = h.c.Revoke(ctx, clientv3.LeaseID(l.ID)) // whatever comes of it, the lease may end now
}

func (h *holder) put(l *history.Tenure) bool {
	ctx, cancel := h.within(time.Second)
	defer cancel()
	_, err := h.c.Put(ctx, l.Key, fmt.Sprint(h.r.site.Now()), clientv3.WithLease(clientv3.LeaseID(l.ID)))
	h.gone(l, err)
	return err == nil
}

// renew renews the lease and reports whether it is still there, as far as known.
func (h *holder) renew(l *history.Tenure) bool {
	ctx, cancel := h.within(2 * time.Second)
	defer cancel()
	call := h.r.site.Now()
	k, err := h.c.KeepAliveOnce(ctx, clientv3.LeaseID(l.ID))
	now := h.r.site.Now()
	switch {
	case err == nil:
		l.Alive, l.Renewed = call, max(l.Renewed, now)
		if time.Duration(k.TTL)*time.Second != l.TTL {
			h.r.violate("lease %x of %v is renewed for %d s", l.ID, l.TTL, k.TTL)
		}
		h.r.count("renewals", 1)
	case h.gone(l, err):
		return false
	default:
		l.Renewed = now + linger
	}
	return true
}

// gone tells whether an error says that the lease has ended, and checks that it may have.
func (h *holder) gone(l *history.Tenure, err error) bool {
	if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return false
	}
	h.r.check(l.Early(h.r.site.Now()), "a holder is told that its lease has ended")
	return true
}

// awaitLeases waits until all leases must have ended.
func (r *run) awaitLeases(holders []*holder) {
	end := r.site.Now() + leaseLate
	for _, h := range holders {
		for _, l := range h.tenures {
			end = max(end, l.Renewed+l.TTL+leaseLate)
		}
	}
	for r.site.Now() < end && !r.failed() {
		left := 0
		rev := r.ledger.Complete()
		for key := range r.ledger.All(rev) {
			if strings.HasPrefix(key, leasePrefix) {
				left++
			}
		}
		if left == 0 && r.site.Now() > end-leaseLate {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// checkLeases holds the ends of the leases against what was promised.
func (r *run) checkLeases(holders []*holder) {
	lives := map[string]history.Life{}
	for _, l := range r.ledger.Lives(leasePrefix) {
		if _, twice := lives[l.Key]; twice {
			r.violate("the key %s of a lease was created again after its end", l.Key)
		}
		lives[l.Key] = l
	}
	slack := history.Slack{Late: leaseLate, Calm: r.site.Calm}
	for _, h := range holders {
		for _, l := range h.tenures {
			if life, ok := lives[l.Key]; ok {
				r.check(l.Check(life, slack, r.site.Now()), "leases")
				r.count("leases checked", 1)
			}
		}
	}
}
