package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/coordd/coordd/pkg/vfs"
)

// model is what a log should hold: the plainest thing that can be right.
type model struct {
	start Position
	ents  []Position // with their sizes in sizes
	sizes []int
	hard  hardState
}

func (m model) last() Position {
	if n := len(m.ents); n > 0 {
		return m.ents[n-1]
	}
	return m.start
}

func (m model) appended(ents []*raftpb.Entry, hs *raftpb.HardState) model {
	if hs != nil {
		m.hard = hardState{hs.GetTerm(), hs.GetVote(), hs.GetCommit()}
	}
	if len(ents) > 0 {
		keep := int(ents[0].GetIndex() - m.start.Index - 1)
		m.ents, m.sizes = slices.Clone(m.ents[:keep]), slices.Clone(m.sizes[:keep])
	}
	for _, e := range ents {
		m.ents = append(m.ents, Position{e.GetIndex(), e.GetTerm()})
		m.sizes = append(m.sizes, len(e.Data))
	}
	return m
}

// differs explains in what the recovered log is not the model, allowing for
// entries up to released to be gone.
func (m model) differs(rec *Recovered, released uint64) error {
	h := rec.HardState
	if got := (hardState{h.GetTerm(), h.GetVote(), h.GetCommit()}); got != m.hard {
		return fmt.Errorf("hard state %v, want %v", got, m.hard)
	}
	if rec.Start.Index < m.start.Index || rec.Start.Index > max(m.start.Index, released) {
		return fmt.Errorf("start %v, model has %v and released is %d", rec.Start, m.start, released)
	}
	gone := int(rec.Start.Index - m.start.Index)
	if gone > len(m.ents) {
		return fmt.Errorf("start %v lies after the last %v", rec.Start, m.last())
	}
	if gone > 0 && m.ents[gone-1] != rec.Start {
		return fmt.Errorf("start %v, model has %v there", rec.Start, m.ents[gone-1])
	}
	if gone == 0 && m.start != rec.Start {
		return fmt.Errorf("start %v, want %v", rec.Start, m.start)
	}
	want := m.ents[gone:]
	if len(rec.Entries) != len(want) {
		return fmt.Errorf("%d entries after %v, want %d", len(rec.Entries), rec.Start, len(want))
	}
	for i, e := range rec.Entries {
		exp := entry(want[i].Index, want[i].Term, m.sizes[gone+i])
		if e.GetIndex() != exp.GetIndex() || e.GetTerm() != exp.GetTerm() || string(e.Data) != string(exp.Data) {
			return fmt.Errorf("entry %d of term %d with %d bytes, want %v with %d", e.GetIndex(), e.GetTerm(), len(e.Data), want[i], m.sizes[gone+i])
		}
	}
	return nil
}

// machine drives a log and its model. history holds the model after each
// append since the last one known to be durable, which comes first.
type machine struct {
	t        *rapid.T
	fs       *vfs.Mem
	log      *Log
	opts     Options
	history  []model
	released uint64
}

func (m *machine) now() model { return m.history[len(m.history)-1] }

func (m *machine) push(next model, synced bool) {
	m.history = append(m.history, next)
	if synced {
		m.history = m.history[len(m.history)-1:]
	}
}

func (m *machine) no(err error) {
	if err != nil {
		m.t.Fatal(err)
	}
}

// settle waits for the goroutine that prepares a segment, so that a test does
// the same thing each time it is run with the same choices.
func (m *machine) settle() {
	m.log.mu.Lock()
	defer m.log.mu.Unlock()
	if m.log.next != nil {
		p := <-m.log.next
		m.log.next <- p
	}
}

func (m *machine) hardState() *raftpb.HardState {
	if rapid.Bool().Draw(m.t, "same hard state") {
		return nil
	}
	h := m.now().hard
	return hard(h.term+rapid.Uint64Range(0, 2).Draw(m.t, "term"), rapid.Uint64Range(0, 3).Draw(m.t, "vote"), h.commit+1)
}

func (m *machine) append() {
	now := m.now()
	low := max(now.start.Index, m.released) + 1
	from := now.last().Index + 1
	if low <= from && rapid.IntRange(0, 3).Draw(m.t, "overwrite") == 0 {
		from = rapid.Uint64Range(low, from).Draw(m.t, "from")
	}
	sizes := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(300, 1200), rapid.IntRange(3000, 9000), rapid.Just(20000))
	var ents []*raftpb.Entry
	n := rapid.IntRange(0, 4).Draw(m.t, "n")
	for i := range n {
		ents = append(ents, entry(from+uint64(i), now.last().Term+1, sizes.Draw(m.t, "size")))
	}
	hs, sync := m.hardState(), rapid.Bool().Draw(m.t, "sync")
	m.no(m.log.Append(hs, ents, sync))
	m.settle()
	m.push(now.appended(ents, hs), sync)
}

func (m *machine) reset() {
	now := m.now()
	low := max(now.start.Index, m.released)
	pos := Position{rapid.Uint64Range(low, now.last().Index+20).Draw(m.t, "index"), now.last().Term + 1}
	hs := m.hardState()
	m.no(m.log.Reset(pos, hs))
	m.settle()
	next := model{start: pos, hard: now.hard}
	m.push(next.appended(nil, hs), true)
}

func (m *machine) release() {
	m.released = max(m.released, rapid.Uint64Range(0, m.now().last().Index).Draw(m.t, "index"))
	// What is released has been applied, so it was durable before.
	m.no(m.log.Sync())
	m.push(m.now(), true)
	m.no(m.log.Release(m.released))
}

// reopen opens the log on what fs has become and checks it against the
// history: one of its models, and a durable one if lost appends are not allowed.
func (m *machine) reopen(fs *vfs.Mem, mayLose bool) {
	l, rec, err := Open(fs, testDir, m.opts)
	m.no(err)
	candidates := m.history
	if !mayLose {
		candidates = candidates[len(candidates)-1:]
		if rec.TornBytes != 0 {
			m.t.Fatalf("%d torn bytes without a power cut", rec.TornBytes)
		}
	}
	var why []error
	for _, c := range slices.Backward(candidates) {
		err := c.differs(rec, m.released)
		if err == nil {
			m.fs, m.log, m.history = fs, l, []model{c}
			return
		}
		why = append(why, err)
	}
	m.t.Fatalf("the recovered log is none of the %d possible ones:\n%v", len(candidates), errors.Join(why...))
}

func (m *machine) powerCut() {
	seed := rapid.Uint64().Draw(m.t, "seed")
	cut := m.fs.Crash(rand.New(rand.NewPCG(seed, 1)))
	m.no(m.log.Close())
	m.reopen(cut, true)
}

func (m *machine) kill() {
	dead := m.fs.Kill()
	m.no(m.log.Close())
	m.reopen(dead, false)
}

func (m *machine) closeAndOpen() {
	m.no(m.log.Close())
	m.reopen(m.fs, false)
}

// TestModel does random things to a log, above all power cuts, and checks after
// each opening that all that was synced is there, in order, and that what else
// is there is a prefix of what was appended since.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{t: t, fs: vfs.NewMem(), opts: Options{SegmentBytes: minSegmentBytes}, history: []model{{}}}
		m.no(m.fs.MkdirAll("member"))
		m.no(m.fs.SyncDir("."))
		l, err := Create(m.fs, testDir, testMeta, m.opts)
		m.no(err)
		m.log = l
		defer func() { m.log.Close() }()
		t.Repeat(map[string]func(*rapid.T){
			"append":    func(*rapid.T) { m.append() },
			"append2":   func(*rapid.T) { m.append() },
			"append3":   func(*rapid.T) { m.append() },
			"reset":     func(*rapid.T) { m.reset() },
			"release":   func(*rapid.T) { m.release() },
			"power cut": func(*rapid.T) { m.powerCut() },
			"kill":      func(*rapid.T) { m.kill() },
			"reopen":    func(*rapid.T) { m.closeAndOpen() },
		})
	})
}

// TestPowerCutEverywhere replays one history and cuts the power, many times,
// before each of its file operations, those of creating the log included.
func TestPowerCutEverywhere(t *testing.T) {
	base := newFS(t)
	var acked, appended atomic.Uint64
	var mu sync.Mutex // the goroutine that prepares segments comes here too
	checked := 0
	r := rand.New(rand.NewPCG(1, 2))
	plan := &vfs.Plan{}
	plan.Add(vfs.Fault{Op: vfs.OpAny, Hook: func(op vfs.Op, name string) {
		mu.Lock()
		defer mu.Unlock()
		for range 6 {
			low := acked.Load()
			disk := base.Crash(r)
			checked++
			if err := checkCrash(disk, low, appended.Load()); err != nil {
				t.Errorf("power cut before op %d on %s: %v", op, name, err)
			}
		}
	}})
	l, err := Create(vfs.WithFaults(base, plan), testDir, testMeta, Options{SegmentBytes: minSegmentBytes})
	must(t, err)
	m := &machine{log: l}
	for i := uint64(1); i <= 60; i++ {
		appended.Store(i)
		must(t, l.Append(hard(1, 1, i-1), entries(i, i, 1, 900), i%3 == 0))
		if i%3 == 0 {
			acked.Store(i)
		}
		m.settle()
		if i%10 == 0 {
			must(t, l.Release(acked.Load()))
		}
	}
	must(t, l.Close())
	if checked < 300 {
		t.Fatalf("only %d power cuts were tried", checked)
	}
}

// checkCrash opens the log on a disk after a power cut: it must end somewhere
// from the last acknowledged entry to the last appended one.
func checkCrash(disk *vfs.Mem, acked, appended uint64) error {
	if !Exists(disk, testDir) && acked == 0 {
		return nil
	}
	l, rec, err := Open(disk, testDir, Options{SegmentBytes: minSegmentBytes})
	if err != nil {
		return err
	}
	last := rec.Start.Index + uint64(len(rec.Entries))
	if last < acked || last > appended {
		err = fmt.Errorf("the log ends at %d, %d are acknowledged, %d appended", last, acked, appended)
	}
	for i, e := range rec.Entries {
		index := rec.Start.Index + 1 + uint64(i)
		if want := entry(index, 1, 900); e.GetIndex() != index || string(e.Data) != string(want.Data) {
			err = fmt.Errorf("entry %d is %v", index, e)
		}
	}
	return errors.Join(err, l.Close())
}
