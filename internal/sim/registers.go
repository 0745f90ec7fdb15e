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

// registerPrefix begins the keys of the registers.
const registerPrefix = "r/"

// client works on the registers until the workload ends.
type client struct {
	c    *cluster
	id   int
	rng  *rand.Rand
	puts int
	last map[string]string // what it saw last, for conditions that may hold
}

func newClient(c *cluster, id int) *client {
	return &client{c: c, id: id, rng: rand.New(rand.NewPCG(c.seed, uint64(10000+id))), last: map[string]string{}}
}

func (k *client) run() {
	for k.c.stop.Err() == nil {
		pause(k.c.stop, time.Duration(k.rng.Int64N(int64(k.c.shape.think))))
		m, n, life := k.c.pick(k.rng)
		if n == nil {
			continue
		}
		ctx, cancel := within(k.c.stop, life, time.Duration(500+k.rng.IntN(3500))*time.Millisecond)
		o := k.c.do(ctx, k.id, m, n, k.request())
		cancel()
		k.learn(o)
	}
}

// within is a context that ends with the workload, with a life, and after a time.
func within(stop, life context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(life, d)
	end := context.AfterFunc(stop, cancel)
	return ctx, func() { end(); cancel() }
}

// pause waits for a time or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// breathe lets a little time pass before who was turned away at once comes again. A member that is about to end may wait for its slow disk, and
// would for ever: virtual time goes on only when nobody runs.
func breathe(ctx context.Context) { pause(ctx, 10*time.Millisecond) }

func (k *client) key() string { return fmt.Sprint(registerPrefix, k.rng.IntN(k.c.shape.keys)) }

// value is one that nobody puts again.
func (k *client) value() string {
	k.puts++
	return fmt.Sprintf("%d.%d", k.id, k.puts)
}

func (k *client) learn(o *op) {
	if !o.known {
		return
	}
	for i, a := range o.req.actions(o.succeeded) {
		switch a.kind {
		case get:
			k.last[a.key] = o.results[i].cell.Value
		case put:
			k.last[a.key] = a.value
		default:
			k.last[a.key] = ""
		}
	}
}

// request draws what to ask for next.
func (k *client) request() request {
	switch p := k.rng.IntN(100); {
	case p < 25:
		return request{then: []action{{kind: put, key: k.key(), value: k.value()}}}
	case p < 45:
		return request{then: []action{{kind: get, key: k.key()}}}
	case p < 52:
		return request{then: []action{{kind: get, key: k.key()}}, serializable: true}
	case p < 60:
		return request{then: []action{{kind: remove, key: k.key()}}}
	case p < 70: // a snapshot of several
		return request{then: k.actions(func(string) action { return action{kind: get} }), serializable: k.rng.IntN(4) == 0}
	}
	r := request{then: k.actions(k.any), orElse: k.actions(func(string) action { return action{kind: get} })}
	for range k.rng.IntN(3) {
		key := k.key()
		r.conds = append(r.conds, compare{key, k.last[key]})
	}
	if len(r.conds) == 0 {
		r.orElse = nil
	}
	return r
}

func (k *client) any(string) action {
	switch k.rng.IntN(5) {
	case 0:
		return action{kind: get}
	case 1:
		return action{kind: remove}
	}
	return action{kind: put, value: k.value()}
}

// actions draws one to three keys with an action each.
func (k *client) actions(draw func(key string) action) (out []action) {
	for i, n := range k.rng.Perm(k.c.shape.keys) {
		if i > k.rng.IntN(3) {
			break
		}
		key := fmt.Sprint(registerPrefix, n)
		a := draw(key)
		a.key = key
		out = append(out, a)
	}
	return out
}

// compactor forgets history now and then, and has members compare what they hold.
type compactor struct {
	c      *cluster
	rng    *rand.Rand
	hashes map[[2]int64]hashed // by revision and compacted revision
	asked  []compaction
}

// compaction is a try to forget what is before a revision.
type compaction struct {
	at  time.Duration
	rev int64
}

// taken reports whether what was before the event of a revision may have been gone at some time.
func (k *compactor) taken(rev int64, by time.Duration) bool {
	for _, c := range k.asked {
		if c.rev >= rev && c.at <= by {
			return true
		}
	}
	return false
}

type hashed struct {
	hash   uint32
	member string
}

func newCompactor(c *cluster) *compactor {
	return &compactor{c: c, rng: rand.New(rand.NewPCG(c.seed, 20000)), hashes: map[[2]int64]hashed{}}
}

func (k *compactor) run() {
	for k.c.stop.Err() == nil {
		pause(k.c.stop, time.Duration(k.rng.Int64N(int64(k.c.shape.compactEvery))))
		k.compare()
		if _, n, life := k.c.pick(k.rng); n != nil {
			k.compact(n, life)
			k.compare()
		}
	}
}

// compact forgets what the ledger has seen already, so that no event is lost to all watchers.
func (k *compactor) compact(n *server.Node, life context.Context) {
	rev := min(n.Revision(), k.c.ledger.complete()) - int64(k.rng.ExpFloat64()*60)
	if rev < 2 {
		return
	}
	ctx, cancel := within(k.c.stop, life, 3*time.Second)
	defer cancel()
	k.asked = append(k.asked, compaction{k.c.now(), rev})
	_, err := n.Compact(ctx, &rpcpb.CompactionRequest{Revision: rev, Physical: k.rng.IntN(2) == 0})
	if err == nil {
		k.c.timeline.add("compact", "at revision %d", rev)
		k.c.count(func(s *Stats) { s.Compactions++ })
	}
	if errors.Is(err, errs.ErrFutureRev) {
		k.c.violate("compaction at revision %d, which was seen, is said to be in the future", rev)
	}
}

// compare asks all members for the checksum at a revision that all should have.
func (k *compactor) compare() {
	rev := int64(1 << 62)
	for _, m := range k.c.members {
		if n, _ := m.live(); n != nil {
			rev = min(rev, n.Revision())
		}
	}
	for _, m := range k.c.members {
		n, life := m.live()
		if n == nil {
			continue
		}
		r, err := n.HashKV(life, rev)
		if err != nil || life.Err() != nil {
			continue // compacted meanwhile
		}
		k.c.count(func(s *Stats) { s.Hashes++ })
		at := [2]int64{r.HashRevision, r.CompactRevision}
		first, seen := k.hashes[at]
		if !seen {
			k.hashes[at] = hashed{r.Hash, m.name}
		} else if first.hash != r.Hash {
			k.c.violate("HashKV at revision %d, compacted at %d: %d at %s, %d at %s", at[0], at[1], r.Hash, m.name, first.hash, first.member)
		}
	}
}
