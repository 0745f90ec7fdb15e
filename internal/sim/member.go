package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/coordd/coordd/peer"
	"github.com/coordd/coordd/pkg/vfs"
	"github.com/coordd/coordd/server"
)

var errPowerOff = errors.New("sim: the power is off")

// member is one member of the cluster over all its lives.
type member struct {
	c    *cluster
	i    int
	id   uint64
	name string
	dir  string // holds a data directory for each life, on the operating system's files because bbolt needs them
	tick time.Duration
	rng  *rand.Rand // of what power cuts leave

	mu  sync.Mutex // guards all below
	mem *vfs.Mem   // of the log; survives lives
	// refused is the log with a flipped bit, on which the next start must fail; nil for none.
	refused *vfs.Mem
	plan    *vfs.Plan // of this life
	node    *server.Node
	end     *end
	ctx     context.Context // ends with this life
	cancel  context.CancelFunc
	up      bool
	sick    bool // its disk is made to fail in this life
	lost    bool // set by the goroutine that drives the faults, which may read it without mu: it has lost its files once and takes no part any more
	lives   int

	locks *lockService // of this life
}

// dataDir is the data directory of a life.
func (m *member) dataDir(life int) string { return filepath.Join(m.dir, fmt.Sprintf("life%d", life)) }

func (m *member) walDir() string { return filepath.Join(m.dir, "wal") }

// config is how the member runs in its current life.
func (m *member) config() server.Config {
	c := m.c
	return server.Config{
		Name: m.name, DataDir: m.dataDir(m.lives), WALDir: m.walDir(),
		InitialCluster: c.initial, ClusterToken: "sim", NewCluster: true,
		PeerURLs: []string{peerURL(m.i)}, ClientURLs: []string{"http://" + m.name + ":2379"},
		Tick: m.tick, PreVote: true, InitialTickAdvance: true,
		SnapshotCount: c.shape.snapshotCount, CatchUpEntries: c.shape.catchUp,
		Clock:           func() time.Duration { return time.Duration(float64(c.now()) * c.shape.rate(m.i)) },
		CompactionBatch: 20, BatchInterval: c.shape.batch, SegmentBytes: c.shape.segment,
		NewTransport: func(p peer.Config) (server.Transport, error) {
			m.end = c.network.newEnd(p)
			return m.end, nil
		},
		FS: vfs.WithFaults(m.mem, m.plan), Logger: zap.New(&logCore{c.timeline, m.name, c.heard, nil}),
	}
}

// start begins a life. Only the goroutine that drives the faults calls it. The mutex is not held while
// the node opens its files: with a slow disk that takes time, and time stands still while somebody waits for a mutex.
func (m *member) start() error {
	m.mu.Lock()
	if m.up {
		m.mu.Unlock()
		return nil
	}
	m.plan, m.sick = &vfs.Plan{}, false
	cfg := m.config()
	m.slowDown()
	m.mu.Unlock()

	n, err := server.Open(context.Background(), cfg)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s could not be started: %w", m.name, err)
	}
	m.node, m.up = n, true
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.c.timeline.add(m.name, "started, life %d", m.lives)
	m.c.count(func(s *Stats) { s.Starts++ })
	m.openLocks(n)
	m.c.wg.Go(func() { m.watchEnd(n) })
	return nil
}

// slowDown makes the disk take its time, so that power is cut in the middle of what it does.
func (m *member) slowDown() {
	m.slowOp(vfs.OpSync|vfs.OpSyncDir, m.c.shape.slowDisk)
	m.slowOp(vfs.OpRemove, m.c.shape.slowRemoval)
}

func (m *member) slowOp(op vfs.Op, slowest time.Duration) {
	if slowest == 0 {
		return
	}
	rng := rand.New(rand.NewPCG(m.c.seed, uint64(100*m.i+m.lives)))
	var mu sync.Mutex
	m.plan.Add(vfs.Fault{Op: op, Hook: func(vfs.Op, string) {
		mu.Lock()
		took := time.Duration(rng.Int64N(int64(slowest)))
		mu.Unlock()
		time.Sleep(took)
	}})
}

// watchEnd takes note when a node ends by itself, which it may do when its disk fails only.
func (m *member) watchEnd(n *server.Node) {
	<-n.Done()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.node != n {
		return
	}
	if n.Err() != nil && !m.sick && !(m.lost && barred(n.Err())) {
		m.c.violate("%s ended by itself without a fault of its disk: %v", m.name, n.Err())
	}
	m.c.timeline.add(m.name, "ended: %v", n.Err())
	m.downLocked(m.mem.Crash(m.rng))
}

// downLocked ends a life whose files are as they shall be found by the next: the log in mem, and those
// of the data directory.
func (m *member) downLocked(mem *vfs.Mem) {
	m.end.off()
	m.mem, m.node, m.up = mem, nil, false
	m.cancel()
	from := filepath.Join(m.dataDir(m.lives), "member", "snap")
	m.lives++
	if m.c.closing.Load() {
		return // there is no next life
	}
	if err := copyFiles(from, filepath.Join(m.dataDir(m.lives), "member", "snap")); err != nil {
		m.c.violate("sim: copying the files of %s: %v", m.name, err)
	}
}

// cut takes the power away at this instant, or only kills the process: then all that was written is there.
func (m *member) cut(kill bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cutLocked(kill)
}

func (m *member) cutLocked(kill bool) {
	if !m.up || m.node == nil { // down, or about to be
		return
	}
	n := m.node
	m.plan.Add(vfs.Fault{Op: vfs.OpAny &^ vfs.OpClose, Err: errPowerOff}) // what the dying node still does changes nothing
	if kill {
		m.c.timeline.add(m.name, "killed")
		m.downLocked(m.mem.Kill())
	} else {
		m.c.timeline.add(m.name, "lost power")
		m.downLocked(m.mem.Crash(m.rng))
	}
	m.c.count(func(s *Stats) { s.Cuts++ })
	m.c.wg.Go(func() { _ = n.Close() }) // its disk is gone, so it fails
}

// cutDuring takes the power away in the middle of the life, when the log does its k-th operation of
// the kind from now on.
func (m *member) cutDuring(op vfs.Op, k int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.up {
		return
	}
	m.sick = true
	life := m.lives
	m.plan.Add(vfs.Fault{Op: op, After: k, Times: 1, Err: errPowerOff, Hook: func(vfs.Op, string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.lives == life { // not a dead node that still tries to write
			m.cutLocked(false)
		}
	}})
}

// fail makes operations of the disk fail in this life.
func (m *member) fail(f vfs.Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.up {
		m.sick = true
		m.plan.Add(f)
	}
}

// stop ends the life in good order.
func (m *member) stop() {
	m.mu.Lock()
	n, locks := m.node, m.locks
	m.node = nil // watchEnd leaves it to us
	m.mu.Unlock()
	if n == nil {
		return
	}
	locks.Stop()
	err := n.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.up {
		return // lost power meanwhile
	}
	if err != nil && !m.sick && !(m.lost && barred(err)) {
		m.c.violate("%s did not close in order: %v", m.name, err)
	}
	m.c.timeline.add(m.name, "stopped")
	m.downLocked(m.mem.Kill())
}

// live is the node of the current life, nil if there is none that serves, and a context that ends with it.
func (m *member) live() (*server.Node, context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost {
		return nil, nil
	}
	return m.node, m.ctx
}
