package raftnode

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/coordd/coordd/pkg/vfs"
)

var seedFlag = flag.Uint64("seed", 0, "run TestChaos with this seed only")

// TestChaos drives three members over a bad network and with power cuts, and
// checks what raft and this package promise: members apply the same in the
// same order, an acknowledged proposal is never lost or applied twice, and
// a read waits for everything that was acknowledged before it began.
func TestChaos(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	if testing.Short() {
		seeds = seeds[:2]
	}
	if *seedFlag != 0 {
		seeds = []uint64{*seedFlag}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newChaos(t, seed).run() })
		})
	}
}

type chaos struct {
	*cluster
	rng *rand.Rand // of the test's own goroutine
	// slow disks and compaction exclude each other: Compact would wait for a mutex that a slow flush holds, and
	// time stands still in the bubble while somebody waits for a mutex.
	slow bool

	amu    sync.Mutex
	acked  map[string]uint64 // proposals applied where they were made
	newest uint64            // highest index among them
	origin map[string]uint64

	nextRead uint64
	floor    map[uint64]uint64 // what the read's index must reach
	checked  int
	proposed int
}

func newChaos(t *testing.T, seed uint64) *chaos {
	x := &chaos{rng: rand.New(rand.NewPCG(seed, 7)), acked: map[string]uint64{}, origin: map[string]uint64{}, floor: map[uint64]uint64{}}
	x.cluster = newCluster(t, 1, 2, 3)
	x.set(func() {
		x.cluster.rng = rand.New(rand.NewPCG(seed, 8))
		x.saveEach = 1 + x.rng.Uint64N(20)
		x.catchUp = NoCatchUp
	})
	x.slow = seed%2 == 1
	if x.slow {
		x.slowDisk = func(vfs.Op, string) { time.Sleep(x.flushTime()) }
	}
	for _, m := range x.members {
		x.hook(m)
		if x.slow {
			m.plan.Add(vfs.Fault{Op: vfs.OpSync, Hook: x.slowDisk})
		}
	}
	return x
}

// flushTime is how long one flush of a slow disk takes, so that power is cut in
// the middle of some.
func (x *chaos) flushTime() time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	return time.Duration(x.cluster.rng.Int64N(int64(testTick)))
}

func (x *chaos) hook(m *member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied = func(e *raftpb.Entry) {
		x.amu.Lock()
		defer x.amu.Unlock()
		d := string(e.GetData())
		if x.origin[d] == m.id && x.acked[d] == 0 {
			x.acked[d] = e.GetIndex()
			x.newest = max(x.newest, e.GetIndex())
		}
	}
}

func (x *chaos) run() {
	defer x.close()
	for range 1500 {
		x.step()
		time.Sleep(time.Duration(x.rng.Int64N(int64(2 * testTick))))
	}
	x.set(func() { x.drop, x.dup, x.delay, x.cut = 0, 0, 0, nil })
	for _, m := range x.members {
		if x.down[m.id] {
			m.restart()
		}
	}
	x.propose(x.leader(), "the end")
	x.same()
	x.checkReads()
	x.checkAcked()
	if x.checked < 20 || len(x.acked) < 100 {
		x.t.Errorf("only %d reads and %d of %d proposals succeeded: the test is too wild to say anything", x.checked, len(x.acked), x.proposed)
	}
}

func (x *chaos) step() {
	ids := []uint64{1, 2, 3}
	m := x.members[ids[x.rng.IntN(3)]]
	switch p := x.rng.IntN(100); {
	case p < 60:
		x.proposeSome(m)
	case p < 80:
		x.read(m)
	case p < 84:
		x.checkReads()
		x.prefixes()
	case p < 88:
		x.network()
	case p < 92:
		x.power(m)
	case p < 96:
		if !x.down[m.id] && !x.slow {
			m.mu.Lock()
			at := m.durable.index
			m.mu.Unlock()
			go func() { _ = m.node.Compact(at) }()
		}
	case p < 98:
		if !x.down[m.id] {
			_ = m.node.TransferLeader(ids[x.rng.IntN(3)])
		}
	default:
		time.Sleep(testSecond)
	}
}

func (x *chaos) proposeSome(m *member) {
	if x.down[m.id] {
		return
	}
	for range 1 + x.rng.IntN(5) {
		x.proposed++
		d := fmt.Sprint("p", x.proposed)
		x.amu.Lock()
		x.origin[d] = m.id
		x.amu.Unlock()
		if err := m.node.Propose(uint64(x.proposed), []byte(d)); err != nil {
			x.t.Errorf("Propose: %v", err)
		}
	}
}

func (x *chaos) read(m *member) {
	if x.down[m.id] {
		return
	}
	x.amu.Lock()
	x.nextRead++
	id := x.nextRead
	x.floor[id] = x.newest
	x.amu.Unlock()
	if err := m.node.ReadIndex(id); err != nil {
		x.t.Errorf("ReadIndex: %v", err)
	}
}

func (x *chaos) checkReads() {
	for _, m := range x.members {
		m.mu.Lock()
		for id, index := range m.reads {
			x.checked++
			if index < x.floor[id] {
				x.t.Errorf("read %d may see only up to entry %d, but entry %d was acknowledged before it began", id, index, x.floor[id])
			}
			delete(m.reads, id)
		}
		m.mu.Unlock()
	}
}

func (x *chaos) network() {
	x.set(func() {
		x.drop, x.dup, x.delay, x.cut = 0, 0, 0, nil
		switch x.rng.IntN(4) {
		case 0:
			x.drop, x.dup = 0.1*x.rng.Float64(), 0.1*x.rng.Float64()
		case 1:
			x.delay = time.Duration(1 + x.rng.Int64N(int64(4*testTick)))
		case 2:
			alone := 1 + x.rng.Uint64N(3)
			x.cut = func(from, to uint64) bool { return from == alone || to == alone }
		case 3: // in one direction
			deaf := 1 + x.rng.Uint64N(3)
			x.cut = func(_, to uint64) bool { return to == deaf }
		}
	})
}

// power cuts a member off its power, or gives it back. A majority always has
// some.
func (x *chaos) power(m *member) {
	if x.down[m.id] {
		m.restart()
		return
	}
	if len(x.down) == 0 {
		m.crash(x.rng)
	}
}

func (x *chaos) checkAcked() {
	data := x.members[1].state().data
	at := map[string]int{}
	for i, d := range data {
		if _, dup := at[d]; dup && d != "" {
			x.t.Errorf("%s was applied twice", d)
		}
		at[d] = i
	}
	x.amu.Lock()
	defer x.amu.Unlock()
	for d, index := range x.acked {
		if _, ok := at[d]; !ok {
			x.t.Errorf("%s, acknowledged at entry %d, is lost", d, index)
		}
	}
	if !slices.Contains(data, "the end") {
		x.t.Error("the last proposal is missing")
	}
}
