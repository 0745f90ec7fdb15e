package robustness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/coordd/coordd/api/lockpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/tests/cluster"
	"github.com/coordd/coordd/tests/history"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	contenders  = 8 // two of each kind
	locks       = 2 // at a time
	lockPrefix  = "lock/"
	guardPrefix = "guard/"
	takeLimit   = 6 * time.Second // that a contender waits for a lock
	lastEpoch   = 1 << 20         // of what is done when the faults are over
)

// resource is what a lock guards: it refuses a token smaller than the largest it has seen.
type resource struct {
	mu   sync.Mutex // guards seen
	seen int64
}

func (g *resource) write(token int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if token < g.seen {
		return false
	}
	g.seen = token
	return true
}

// arena is the locks of a run, and what was done with them.
type arena struct {
	r *run

	mu        sync.Mutex // guards the rest
	resources map[string]*resource
	ops       []porcupine.Operation
	clock     history.Clock
	grips     map[string][]taken // by lock
}

// taken is a grip with its holder.
type taken struct {
	*grip
	holder    string
	call, ret time.Duration
}

// contender is one client that wants the locks.
type contender struct {
	r      *run
	arena  *arena
	id     int
	name   string
	rng    *rand.Rand
	etcd   *clientv3.Client
	native *client.Client
	seat   *seat
}

// Under all faults, with holders that are cut off or paused for longer than their lease lives: no two holders whose tokens both get
// accepted, first come first served among the living, and no late Unlock frees a later holder.
func TestLocksUnderFaults(t *testing.T) {
	t.Parallel()
	var cut [][]string
	for i := range contenders {
		cut = append(cut, []string{contenderName(i)})
	}
	r := newRun(t, append(cut, electionClients()...), "--grpc-keepalive-interval", "2s", "--grpc-keepalive-timeout", "2s")
	r.watch(lockPrefix, electionPrefix, guardPrefix)
	r.compareContents()
	r.busy.Go(r.compact)
	a := &arena{r: r, resources: map[string]*resource{}, grips: map[string][]taken{}}
	t.Cleanup(a.dump)
	var all []*contender
	for i := range contenders {
		c := a.contender(i)
		all = append(all, c)
		r.busy.Go(c.run)
	}
	elections := r.elections()
	r.faults()
	r.end()
	if r.failed() {
		return
	}
	r.site.Cluster.Start(t)
	r.revive()
	a.scenes(all)
	elections.scene()
	r.end()
	last := r.awaitEmpty(lockPrefix, electionPrefix)
	r.compareLast()
	if r.failed() {
		return
	}
	if hash := r.site.Cluster.SameHash(t, settle); hash != last {
		t.Fatalf("something is written at the end, after revision %d", last)
	}
	r.ledgerUpTo(last)
	if r.failed() {
		return
	}
	r.known(last, lockPrefix, guardPrefix, electionPrefix)
	a.check()
	elections.check()
}

func contenderName(i int) string { return fmt.Sprintf("contender%d", i) }

func (a *arena) contender(i int) *contender {
	r := a.r
	return &contender{r: r, arena: a, id: i, name: contenderName(i), rng: r.rand(uint64(4000 + i)), etcd: r.etcd(contenderName(i)), native: r.native(contenderName(i))}
}

// run takes locks until the run ends.
func (c *contender) run() {
	for c.r.pause(c.rng, 60*time.Millisecond) {
		c.once(fmt.Sprintf("%s%d/%d", lockPrefix, c.r.epoch(), c.rng.IntN(locks)))
	}
	if c.seat != nil {
		c.leave()
	}
}

// leave gives the session up.
func (c *contender) leave() {
	c.seat.drop()
	c.seat.close()
	c.seat = nil
}

// leaveIfCareless gives a session of etcd's client up, after a call was not waited for: that client deletes its key without a
// condition, so a deletion that is still under way could hit the next lock of the same session.
func (c *contender) leaveIfCareless() {
	if c.seat != nil && c.id%seatKinds == 0 {
		c.leave()
	}
}

// once takes a lock, uses it and gives it back or loses it.
func (c *contender) once(name string) {
	g := c.take(c.r.ctx, name)
	if g == nil {
		return
	}
	for range 1 + c.rng.IntN(3) {
		c.work(g)
		c.r.pause(c.rng, 30*time.Millisecond)
	}
	switch c.rng.IntN(12) {
	case 0, 1: // paused for longer than the lease lives, and not aware of it
		c.seat.stall()
		c.r.pause(c.rng, 2*lockTTL)
		c.r.pause(c.rng, lockTTL)
		c.work(g)
		c.unlock(g, time.Second)
		c.leave()
	case 2: // the session is given up, and what was under way comes late
		c.leave()
		c.work(g)
	case 3: // the answer is not waited for, so it is done again
		c.unlock(g, time.Duration(1+c.rng.IntN(5))*time.Millisecond)
		c.unlock(g, 2*time.Second)
		c.leaveIfCareless()
	default:
		c.unlock(g, 2*time.Second)
	}
	if c.rng.IntN(3) == 0 {
		c.echo(g)
	}
}

// take takes a lock, and gives nil if that fails.
func (c *contender) take(ctx context.Context, name string) *grip {
	if c.seat != nil && c.seat.dead() {
		c.leave()
	}
	if c.seat == nil {
		s, err := c.newSeat()
		if err != nil {
			return nil
		}
		c.seat = s
	}
	c.seat.renewNow(ctx)
	limited, cancel := context.WithTimeout(ctx, takeLimit)
	defer cancel()
	call := c.r.site.Now()
	g, err := c.seat.take(limited, name)
	if err != nil {
		c.r.count("locks not got", 1)
		if c.seat.dead() || c.rng.IntN(4) == 0 {
			c.leave()
		}
		c.leaveIfCareless()
		return nil
	}
	c.r.count("locks got", 1)
	c.arena.got(g, c.String(), call)
	return g
}

// got notes that a lock was got.
func (a *arena) got(g *grip, holder string, call time.Duration) {
	ret := a.r.site.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ops = append(a.ops, operation(call, ret, history.LockOp{Lock: g.lock, Kind: history.Acquire, Token: g.token, Holder: holder}, true))
	a.grips[g.lock] = append(a.grips[g.lock], taken{g, holder, call, ret})
}

func operation(call, ret time.Duration, in history.LockOp, out bool) porcupine.Operation {
	return porcupine.Operation{Input: in, Output: out, Call: int64(call), Return: int64(ret)}
}

// work writes to the resource and, under the condition that the lock is held, to the store.
func (c *contender) work(g *grip) (done, accepted bool) {
	accepted = c.arena.write(g, c.String())
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	call := c.r.site.Now()
	done, rev, err := g.use(ctx, guardPrefix+g.lock, fmt.Sprint(g.token))
	ret := c.r.site.Now()
	if err != nil {
		return false, accepted
	}
	c.r.count(fmt.Sprintf("uses done %v", done), 1)
	a := c.arena
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clock.Add(rev, call, ret)
	a.ops = append(a.ops, operation(call, ret, history.LockOp{Lock: g.lock, Kind: history.Use, Token: g.token, Holder: c.String()}, done))
	return done, accepted
}

// write writes to the resource.
func (a *arena) write(g *grip, holder string) bool {
	a.mu.Lock()
	guarded := a.resources[g.lock]
	if guarded == nil {
		guarded = &resource{}
		a.resources[g.lock] = guarded
	}
	a.mu.Unlock()
	call := a.r.site.Now()
	accepted := guarded.write(g.token)
	ret := a.r.site.Now()
	a.r.count(fmt.Sprintf("writes accepted %v", accepted), 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ops = append(a.ops, operation(call, ret, history.LockOp{Lock: g.lock, Kind: history.Write, Token: g.token, Holder: holder}, accepted))
	return accepted
}

// unlock gives a lock back.
func (c *contender) unlock(g *grip, limit time.Duration) {
	if g.dropped == 0 {
		g.dropped = c.r.site.Now()
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if g.unlock(ctx) != nil && limit > time.Second { // it must not stand in the way of others for ever
		c.leave()
	}
}

// echo gives a lock back once more, later, when this session may have it again with another token.
func (c *contender) echo(g *grip) {
	wait, member := time.Duration(c.rng.Int64N(int64(3*time.Second))), c.rng.IntN(3)
	c.r.busy.Go(func() {
		select {
		case <-c.r.ctx.Done():
			return
		case <-time.After(wait):
		}
		conn, err := c.r.conn("echo", member)
		if err != nil {
			return
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(c.r.ctx, time.Second)
		defer cancel()
		if _, err := services.NewLockClient(conn).Unlock(ctx, &lockpb.UnlockRequest{Key: []byte(g.key), FencingToken: g.token}); err == nil {
			c.r.count("late unlocks", 1)
		}
	})
}

// scenes are played when the faults are over: for each kind, a holder that is paused for longer than its lease lives. Another gets the
// lock, the late write is refused, and the late Unlock frees nobody.
func (a *arena) scenes(all []*contender) {
	for i := range seatKinds {
		old, next := all[i], all[i+seatKinds-1]
		name := fmt.Sprintf("%s%d/%d", lockPrefix, lastEpoch, i)
		g := a.await(old, name)
		if g == nil {
			return
		}
		if done, accepted := old.work(g); !done || !accepted {
			a.r.violate("%s holds %s with token %d and is refused (%v, %v)", old, name, g.token, done, accepted)
		}
		old.seat.stall()
		h := a.await(next, name)
		if h == nil {
			return
		}
		next.work(h)
		if done, accepted := old.work(g); done || accepted {
			a.r.violate("%s was paused while %s got %s with token %d; what comes late with token %d is done (%v, %v)", old, next, name, h.token, g.token, done, accepted)
		}
		old.unlock(g, time.Second)
		if done, accepted := next.work(h); !done || !accepted {
			a.r.violate("%s holds %s with token %d and is refused (%v, %v) after a late unlock of token %d", next, name, h.token, done, accepted, g.token)
		}
		next.unlock(h, 3*time.Second)
		a.r.count("scenes", 1)
	}
	for _, c := range all {
		if c.seat != nil {
			c.leave()
		}
	}
}

// await takes a lock that must be got, since all is whole.
func (a *arena) await(c *contender, name string) *grip {
	for end := time.Now().Add(settle); time.Now().Before(end); {
		if g := c.take(a.r.ctx, name); g != nil {
			return g
		}
	}
	a.r.violate("%s does not get %s within %v, with all members and links whole", c, name, settle)
	return nil
}

// check judges the locks.
func (a *arena) check() {
	for name, all := range a.grips {
		a.checkGrips(name, all)
	}
	for _, v := range history.CheckLocks(a.ops, checkLimit) {
		a.r.count("histories", 1)
		if v.Result == porcupine.Ok {
			continue
		}
		v.Info.AddAnnotations(a.r.annotations())
		page := filepath.Join(cluster.Artifacts(a.r.t), fmt.Sprintf("lock-%s.html", filepath.Base(filepath.Dir(v.Lock))+"-"+filepath.Base(v.Lock)))
		a.r.check(porcupine.VisualizePath(history.LockModel(), v.Info, page), "drawing")
		a.r.violate("the history of %s, of %d operations, is not that of a lock (%s); see %s", v.Lock, v.Size, v.Result, page)
	}
	if n := a.r.counts["scenes"]; n != seatKinds {
		a.r.violate("only %d of the scenes at the end were played", n)
	}
}

// checkGrips holds the holders of one lock against its keys, and adds the ends of their keys to the history.
func (a *arena) checkGrips(name string, all []taken) {
	lives := a.r.ledger.Lives(name + "/")
	byToken := map[int64]history.Life{}
	for _, l := range lives {
		byToken[l.Create] = l
	}
	var grants []history.Grant
	for _, g := range all {
		grants = append(grants, history.Grant{Holder: g.holder, Key: g.key, Token: g.token, Header: g.header})
		l := byToken[g.token]
		if l.Delete == 0 {
			continue
		}
		a.r.check(a.early(g, l), "lost early: "+g.holder+", "+name)
		call, ret := max(a.clock.NotBefore(l.Delete), g.call), min(a.clock.NotAfter(l.Delete), l.Deleted)
		if call > ret {
			a.r.violate("%s asked for %s at %.3fs and got token %d, whose key was gone by %.3fs", g.holder, name, call.Seconds(), g.token, ret.Seconds())
			continue
		}
		a.ops = append(a.ops, operation(call, ret, history.LockOp{Lock: name, Kind: history.Gone, Token: g.token, Holder: g.holder}, true))
	}
	a.r.check(history.CheckGrants(lives, grants), name)
}

// dump writes for people what the locks were and who held them.
func (a *arena) dump() {
	if !a.r.failed() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var b strings.Builder
	for name, all := range a.grips {
		for _, l := range a.r.ledger.Lives(name + "/") {
			fmt.Fprintf(&b, "%s: key %s, revisions %d to %d, seen %.3fs to %.3fs\n", name, l.Key, l.Create, l.Delete, l.Created.Seconds(), l.Deleted.Seconds())
		}
		for _, g := range all {
			fmt.Fprintf(&b, "%s: token %d, header %d, by %s, asked %.3fs, got %.3fs, given back %.3fs; session alive %.3fs, given up %.3fs\n",
				name, g.token, g.header, g.holder, g.call.Seconds(), g.ret.Seconds(), g.dropped.Seconds(), g.seat.alive.Seconds(), g.seat.dropped.Seconds())
		}
	}
	path := filepath.Join(cluster.Artifacts(a.r.t), "locks.txt")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		a.r.t.Error(err)
	}
}

// early gives an error if a lock was lost before its lease can have ended and before its holder gave it up.
func (a *arena) early(g taken, l history.Life) error {
	s := g.seat
	if s.renew == nil { // the lease is the server's and ends with the connection
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := history.Tenure{ID: s.lease, TTL: lockTTL, Alive: s.alive, Dropped: g.dropped}
	if t.Dropped == 0 || s.dropped > 0 && s.dropped < t.Dropped {
		t.Dropped = s.dropped
	}
	return t.Early(l.Deleted)
}
