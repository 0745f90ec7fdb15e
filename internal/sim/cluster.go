package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	members "github.com/coordd/coordd/member"
	"github.com/coordd/coordd/pkg/vfs"
	"github.com/coordd/coordd/server"
)

// recovery is how long a cluster whose faults have ended may take to serve again: what waits for old
// time-outs included.
const recovery = 30 * time.Second

// cluster is the members of one run, and what all of the run share.
type cluster struct {
	seed     uint64
	shape    shape
	begun    time.Time
	initial  string
	members  []*member
	index    map[uint64]int // of members by id
	network  *network
	timeline *timeline
	history  *history
	ledger   *ledger
	wg       sync.WaitGroup
	closing  atomic.Bool     // nothing starts again
	stop     context.Context // ends when the workload ends
	stopNow  context.CancelFunc
	stopNet  context.CancelFunc

	mu        sync.Mutex // guards all below
	violation []Violation
	disturbed []time.Duration // moments after which leases may begin anew, ascending
	stats     Stats
}

// Violation is a broken promise.
type Violation struct {
	At   time.Duration // when it was noticed, or when what is wrong happened
	What string
}

func peerURL(i int) string { return fmt.Sprintf("http://m%d:2380", i+1) }

// newCluster prepares members that keep their files in dir.
func newCluster(seed uint64, s shape, dir string) (*cluster, error) {
	c := &cluster{
		seed: seed, shape: s, begun: time.Now(), network: newNetwork(seed), index: map[uint64]int{},
		history: &history{}, ledger: newLedger(),
	}
	c.timeline = &timeline{begun: c.begun}
	c.stop, c.stopNow = context.WithCancel(context.Background())
	carrying, stop := context.WithCancel(context.Background())
	c.stopNet = stop
	var initial []string
	for i := range s.members {
		initial = append(initial, fmt.Sprintf("m%d=%s", i+1, peerURL(i)))
	}
	c.initial = strings.Join(initial, ",")
	found, err := members.ParseInitialCluster(c.initial, "sim")
	if err != nil {
		return nil, err
	}
	for i := range s.members {
		m := &member{c: c, i: i, name: fmt.Sprintf("m%d", i+1), tick: s.ticks[i], mem: vfs.NewMem(), plan: &vfs.Plan{}}
		m.dir = filepath.Join(dir, m.name)
		m.rng = rand.New(rand.NewPCG(seed, uint64(1000+i)))
		for _, f := range found {
			if f.Name == m.name {
				m.id = uint64(f.ID)
			}
		}
		c.index[m.id] = i
		c.members = append(c.members, m)
	}
	c.wg.Go(func() { c.network.carry(carrying) })
	return c, nil
}

// now is the virtual time since the beginning.
func (c *cluster) now() time.Duration { return time.Since(c.begun) }

// violate notes a broken promise, now.
func (c *cluster) violate(format string, args ...any) { c.violateAt(c.now(), format, args...) }

func (c *cluster) violateAt(at time.Duration, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	c.timeline.add("BROKEN", "%s", what)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.violation = append(c.violation, Violation{at, what})
}

func (c *cluster) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.violation) > 0
}

func (c *cluster) count(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.stats)
}

// disturb notes that from now on a lease may have to begin anew: a fault begins or ends, a leader changes.
func (c *cluster) disturb() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disturbed = append(c.disturbed, c.now())
}

// heard is told of each line that a member logs.
func (c *cluster) heard(message string) {
	switch message {
	case "leader changed":
		c.disturb()
		c.count(func(s *Stats) { s.LeaderChanges++ })
	case "applied snapshot":
		c.count(func(s *Stats) { s.Snapshots++ })
	}
}

// rest waits until no member does anything, its disk included.
func (c *cluster) rest() { synctest.Wait() }

// awake waits while a member is paused: a client's call waits for the process, and so does the answer.
func (c *cluster) awake(ctx context.Context, member int) {
	if over := c.network.paused(c.members[member].id); over != nil {
		select {
		case <-over:
		case <-ctx.Done():
		}
	}
}

// revive starts a member that is down.
func (c *cluster) revive(m *member) {
	if err := m.start(); err != nil {
		c.violate("%v", err)
	}
}

// pick is a running node drawn by r, nil if none runs, and a context that ends with its life, and with the workload.
func (c *cluster) pick(r *rand.Rand) (int, *server.Node, context.Context) {
	first := r.IntN(len(c.members))
	for k := range c.members {
		i := (first + k) % len(c.members)
		if n, ctx := c.members[i].live(); n != nil {
			return i, n, ctx
		}
	}
	return 0, nil, nil
}

// leader is a running node that believes to lead, nil if there is none.
func (c *cluster) leader() *server.Node {
	for _, m := range c.members {
		if n, _ := m.live(); n != nil && n.Leader() == n.ID() {
			return n
		}
	}
	return nil
}

// transfer asks the leader to hand over to a member.
func (c *cluster) transfer(m *member) {
	n := c.leader()
	if n == nil {
		return
	}
	c.wg.Go(func() {
		ctx, cancel := context.WithTimeout(c.stop, 2*time.Second)
		defer cancel()
		_ = n.MoveLeader(ctx, m.id) // may fail in many ways
	})
}

// found starts all members and waits until they serve.
func (c *cluster) found() bool {
	for _, m := range c.members {
		c.revive(m)
	}
	if !c.settle() {
		return false
	}
	for _, m := range c.members { // from then on a member that loses its files is known to have had some
		n, life := m.live()
		if n == nil {
			c.violate("%s does not run though there was no fault", m.name)
			return false
		}
		select {
		case <-n.Ready():
			continue
		case <-life.Done():
		case <-time.After(recovery):
		}
		c.violate("%s has not published itself", m.name)
		return false
	}
	return true
}

// settle waits until all members run and are in touch with a leader.
func (c *cluster) settle() bool {
	begin := c.now()
	for _, m := range c.members {
		if m.lost {
			continue
		}
		n, ctx := m.live()
		if n == nil {
			c.violate("%s does not run though all faults have ended", m.name)
			return false
		}
		ctx, cancel := context.WithTimeout(ctx, recovery)
		for {
			if n.LinearizableWait(ctx) == nil {
				break
			}
			if ctx.Err() != nil {
				cancel()
				c.violate("%s cannot read %v after all faults have ended", m.name, c.now()-begin)
				return false
			}
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
	}
	for _, m := range c.members {
		if m.lost && !m.staysOut() {
			return false
		}
	}
	return true
}

// heal ends all faults and brings all members up.
func (c *cluster) heal() bool {
	c.network.set(func() {
		c.network.weather = weather{}
		clear(c.network.cuts)
	})
	for _, m := range c.members {
		c.network.resume(m.id, true)
	}
	c.rest()
	for _, m := range c.members {
		m.mu.Lock()
		sick := m.up && m.sick
		m.mu.Unlock()
		if sick {
			m.cut(false)
		}
		c.revive(m)
	}
	c.disturb()
	return c.settle()
}

// close ends all members.
func (c *cluster) close() {
	c.closing.Store(true)
	c.stopNow()
	c.rest()
	for _, m := range c.members {
		m.cut(true)
	}
	c.stopNet()
	c.wg.Wait()
}
