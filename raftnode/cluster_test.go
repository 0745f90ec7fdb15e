package raftnode

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/coordd/coordd/pkg/raftcodec"
	"github.com/coordd/coordd/pkg/vfs"
	"github.com/coordd/coordd/wal"
)

const (
	testTick   = 10 * time.Millisecond
	testSecond = 100 * testTick
)

// image is a state machine: the data of all entries applied so far. It stands
// for a backend and for its file.
type image struct {
	index, term uint64
	conf        *raftpb.ConfState
	data        []string
}

func (m image) clone() image {
	m.data = slices.Clone(m.data)
	return m
}

// member is one node with its disk and state machine.
type member struct {
	id      uint64
	c       *cluster
	node    *Node
	log     *wal.Log
	cancel  context.CancelFunc
	stopped chan error // gives Run's result once

	mu      sync.Mutex
	mem     *vfs.Mem
	plan    *vfs.Plan // faults of the present run
	now     image     // applied
	durable image     // what a restart finds
	files   map[uint64]image
	leaders []Status // as told by OnLeader
	reads   map[uint64]uint64
	applied func(e *raftpb.Entry) // if set, is told of each entry
	hold    chan struct{}         // if set, the apply loop waits for it
	dead    bool                  // crashed and not restarted
}

// cluster is a set of members with a network that tests can disturb. It lives in
// a synctest bubble.
type cluster struct {
	t       *testing.T
	members map[uint64]*member

	mu           sync.Mutex // guards all below
	rng          *rand.Rand
	drop         float64       // share of messages lost
	delay        time.Duration // the longest
	dup          float64       // share of messages sent twice
	cut          func(from, to uint64) bool
	down         map[uint64]bool
	catchUp      uint64
	sent         map[raftpb.MessageType]int
	observe      func(m *raftpb.Message)
	slowDisk     func(vfs.Op, string) // if set, called at each flush of restarted members
	snapshotTime time.Duration        // that sending a file takes
	maxApplying  uint64               // Config.MaxApplyingBytes of restarted members
	saveEach     uint64               // a machine becomes durable every so many entries
}

func newCluster(t *testing.T, voters ...uint64) *cluster {
	c := &cluster{t: t, members: map[uint64]*member{}, rng: rand.New(rand.NewPCG(1, 1)),
		down: map[uint64]bool{}, sent: map[raftpb.MessageType]int{}, saveEach: 1}
	for _, id := range voters {
		m := c.add(id)
		start := Bootstrap(voters)
		m.create(start)
		m.durable = image{index: start.Applied, term: start.Term, conf: start.ConfState}
		m.now = m.durable.clone()
		m.run(start)
	}
	return c
}

func (c *cluster) add(id uint64) *member {
	m := &member{id: id, c: c, mem: vfs.NewMem(), plan: &vfs.Plan{}, files: map[uint64]image{}, reads: map[uint64]uint64{}}
	c.members[id] = m
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// create makes the log of a new member.
func (m *member) create(start Start) {
	fs := vfs.WithFaults(m.mem, m.plan)
	must(m.c.t, fs.MkdirAll("/data"))
	must(m.c.t, fs.SyncDir("/"))
	log, err := wal.Create(fs, "/data/wal", wal.Metadata{MemberID: m.id, ClusterID: 1}, wal.Options{SegmentBytes: 64 << 10})
	must(m.c.t, err)
	if start.Index > 0 {
		must(m.c.t, log.Reset(wal.Position{Index: start.Index, Term: start.Term}, start.HardState))
	}
	m.log = log
}

// run starts the node's goroutines: drive loop, apply loop, ticker.
func (m *member) run(start Start) {
	c := m.c
	node, err := New(Config{
		ID: m.id, ElectionTicks: 10, HeartbeatTicks: 1, PreVote: true, CheckQuorum: true,
		CatchUpEntries: c.catchUp, Log: m.log, Start: start,
		MaxSizePerMsg: 4 << 10, MaxInflight: 16, MaxApplyingBytes: c.maxApplying,
		Send: func(msgs []*raftpb.Message) { c.send(m.id, msgs) },
		Snapshot: func() (*raftpb.Snapshot, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return snapshotOf(m.durable), nil
		},
		OnRead: func(id, index uint64) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if !m.dead {
				m.reads[id] = index
			}
		},
		OnLeader: func(leader, term uint64, self bool) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if self != (leader == m.id) {
				c.t.Errorf("member %d: OnLeader(%d, %d, %v)", m.id, leader, term, self)
			}
			m.leaders = append(m.leaders, Status{Leader: leader, Term: term})
		},
	})
	must(c.t, err)
	c.set(func() {
		m.node = node
		delete(c.down, m.id)
	})
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.stopped = make(chan error, 1)
	go func() {
		err := node.Run(ctx)
		cancel()
		m.stopped <- err
	}()
	go m.applyLoop(node)
	go func() {
		tick := time.NewTicker(testTick)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				node.Tick()
			case <-ctx.Done():
				return
			}
		}
	}()
}

func snapshotOf(m image) *raftpb.Snapshot {
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &m.index, Term: &m.term, ConfState: m.conf}}
}

func (m *member) applyLoop(node *Node) {
	for b := range node.Committed() {
		m.mu.Lock()
		hold := m.hold
		m.mu.Unlock()
		if hold != nil {
			<-hold
		}
		last := uint64(0)
		if b.Snapshot != nil {
			last = m.install(b.Snapshot)
		}
		for _, e := range b.Entries {
			m.apply(node, e)
			last = e.GetIndex()
		}
		node.Applied(last)
	}
}

func (m *member) install(s *raftpb.Snapshot) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	file, ok := m.files[s.GetMetadata().GetIndex()]
	if !ok {
		m.c.t.Errorf("member %d: snapshot %d has no file", m.id, s.GetMetadata().GetIndex())
	}
	m.now, m.durable = file.clone(), file.clone()
	return file.index
}

func (m *member) apply(node *Node, e *raftpb.Entry) {
	conf := m.now.conf
	if e.GetType() == raftpb.EntryConfChange {
		cc := &raftpb.ConfChange{}
		must(m.c.t, proto.Unmarshal(e.GetData(), cc))
		cs, err := node.ApplyConf(cc)
		if err != nil && err != ErrStopped {
			m.c.t.Errorf("member %d: %v", m.id, err)
		}
		if err == nil {
			conf = cs
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.GetIndex() != m.now.index+1 {
		m.c.t.Errorf("member %d applies entry %d after %d", m.id, e.GetIndex(), m.now.index)
	}
	m.now.index, m.now.term, m.now.conf = e.GetIndex(), e.GetTerm(), conf
	m.now.data = append(m.now.data, string(e.GetData()))
	if e.GetIndex()%m.c.saveEach == 0 {
		m.durable = m.now.clone()
	}
	if m.applied != nil && !m.dead {
		m.applied(e)
	}
}

// stop ends the node and returns Run's result.
func (m *member) stop() error {
	m.c.mu.Lock()
	m.c.down[m.id] = true
	m.c.mu.Unlock()
	m.cancel()
	err := <-m.stopped
	synctest.Wait()
	_ = m.log.Close()
	return err
}

// crash ends the node as a power cut does: what it does after the moment at
// which its disk is copied reaches nobody.
func (m *member) crash(r *rand.Rand) {
	m.c.set(func() { m.c.down[m.id] = true })
	m.mu.Lock()
	m.dead = true
	mem, durable := m.mem.Crash(r), m.durable.clone() // both of the same moment
	m.mu.Unlock()
	_ = m.stop()
	m.mu.Lock() // a snapshot may still be on its way from it
	defer m.mu.Unlock()
	m.mem, m.durable = mem, durable
}

// restart starts a stopped member from its disk.
func (m *member) restart() {
	m.plan = &vfs.Plan{}
	if m.c.slowDisk != nil {
		m.plan.Add(vfs.Fault{Op: vfs.OpSync, Hook: m.c.slowDisk})
	}
	log, rec, err := wal.Open(vfs.WithFaults(m.mem, m.plan), "/data/wal", wal.Options{SegmentBytes: 64 << 10})
	must(m.c.t, err)
	m.log = log
	m.mu.Lock()
	if rec.Start.Index > m.durable.index { // the snapshot was marked in the log, but not installed
		m.durable = m.files[rec.Start.Index].clone()
	}
	m.now = m.durable.clone()
	m.dead = false
	from := m.durable
	m.mu.Unlock()
	m.run(Start{Index: rec.Start.Index, Term: rec.Start.Term, Entries: rec.Entries, HardState: rec.HardState,
		ConfState: from.conf, Applied: from.index})
}

func (m *member) state() image {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now.clone()
}

// send is the network.
func (c *cluster) send(from uint64, msgs []*raftpb.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range msgs {
		if c.down[from] {
			continue
		}
		c.sent[m.GetType()]++
		if c.observe != nil {
			c.observe(m)
		}
		copies := 1
		if c.rng.Float64() < c.dup && m.GetType() != raftpb.MsgProp {
			copies = 2
		}
		if c.rng.Float64() < c.drop || (c.cut != nil && c.cut(from, m.GetTo())) {
			copies = 0
		}
		if m.GetType() == raftpb.MsgSnap {
			go c.sendSnapshot(c.members[from], m, copies > 0)
			continue
		}
		if copies == 0 && m.GetType() == raftpb.MsgApp {
			c.members[from].node.ReportUnreachable(m.GetTo())
		}
		data := raftcodec.AppendBatch(nil, []*raftpb.Message{m})
		for range copies {
			wait := time.Duration(0)
			if c.delay > 0 {
				wait = time.Duration(c.rng.Int64N(int64(c.delay)))
			}
			go c.deliver(m.GetTo(), data, wait)
		}
	}
}

func (c *cluster) deliver(to uint64, data []byte, wait time.Duration) {
	time.Sleep(wait) // the network's delay, in the bubble's time
	msgs, err := raftcodec.DecodeBatch(data)
	must(c.t, err)
	c.mu.Lock()
	var node *Node
	if m := c.members[to]; m != nil && !c.down[to] {
		node = m.node
	}
	c.mu.Unlock()
	if node != nil {
		node.Step(msgs)
	}
}

// sendSnapshot does what the peer layer does: it sends the file as it is when it
// starts, not as it was when raft asked.
func (c *cluster) sendSnapshot(from *member, msg *raftpb.Message, ok bool) {
	time.Sleep(testTick)
	from.mu.Lock()
	file := from.durable.clone()
	from.mu.Unlock()
	c.mu.Lock()
	wait := c.snapshotTime
	c.mu.Unlock()
	time.Sleep(wait)
	to := c.members[msg.GetTo()]
	c.mu.Lock()
	ok = ok && to != nil && !c.down[to.id] && !c.down[from.id] && to.node != nil
	sender := from.node
	var receiver *Node
	if ok {
		receiver = to.node
	}
	c.mu.Unlock()
	if ok {
		to.mu.Lock()
		to.files[file.index] = file
		to.mu.Unlock()
		receiver.Step([]*raftpb.Message{{Type: msg.Type, From: msg.From, To: msg.To, Term: msg.Term, Snapshot: snapshotOf(file)}})
	}
	sender.ReportSnapshot(msg.GetTo(), ok)
}

// set changes the network.
func (c *cluster) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// isolate cuts a member off, or nobody for 0.
func (c *cluster) isolate(id uint64) {
	c.set(func() {
		c.cut = func(from, to uint64) bool { return id != 0 && (from == id || to == id) }
	})
}

// eventually lets time pass until ok.
func (c *cluster) eventually(what string, ok func() bool) {
	c.t.Helper()
	for range 3000 {
		synctest.Wait()
		if ok() {
			return
		}
		time.Sleep(testTick)
	}
	for id, m := range c.members {
		if m.node != nil {
			c.t.Logf("member %d: %+v applied %d", id, m.node.Status(), m.state().index)
		}
	}
	c.t.Fatalf("never happened: %s", what)
}

// leader waits until one member leads and all live ones agree, leaving out some.
func (c *cluster) leader(except ...uint64) *member {
	c.t.Helper()
	var lead *member
	c.eventually("a leader", func() bool {
		lead = nil
		for id, m := range c.members {
			if slices.Contains(except, id) || c.down[id] || m.node == nil {
				continue
			}
			l := c.members[m.node.Status().Leader]
			if l == nil || slices.Contains(except, l.id) || (lead != nil && l != lead) {
				return false
			}
			lead = l
		}
		return lead != nil && lead.node.Status().Leader == lead.id
	})
	return lead
}

// propose puts data into the log at m and waits until m has applied it.
func (c *cluster) propose(m *member, data string) {
	c.t.Helper()
	must(c.t, m.node.Propose(0, []byte(data)))
	c.eventually("applied "+data, func() bool { return slices.Contains(m.state().data, data) })
}

// same waits until all members have applied the same, and checks order meanwhile.
func (c *cluster) same() {
	c.t.Helper()
	c.eventually("all members the same", func() bool {
		var first *image
		for id, m := range c.members {
			if c.down[id] {
				continue
			}
			s := m.state()
			if first == nil {
				first = &s
			} else if s.index != first.index {
				return false
			} else if !slices.Equal(s.data, first.data) {
				c.t.Fatalf("members differ at entry %d", s.index)
			}
		}
		return true
	})
}

// prefixes fails when two members applied different things in the same place.
func (c *cluster) prefixes() {
	var longest []string
	for _, m := range c.members {
		d := m.state().data
		n := min(len(d), len(longest))
		if !slices.Equal(d[:n], longest[:n]) {
			c.t.Fatalf("member %d applied something else than another member", m.id)
		}
		if len(d) > len(longest) {
			longest = d
		}
	}
}

func (c *cluster) close() {
	for id, m := range c.members {
		if !c.down[id] && m.node != nil {
			if err := m.stop(); err != nil {
				c.t.Errorf("member %d: %v", id, err)
			}
		}
	}
	time.Sleep(testSecond) // until the network is empty
}
