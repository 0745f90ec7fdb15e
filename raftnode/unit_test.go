package raftnode

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/coordd/coordd/pkg/raftcodec"
)

// The queue of proposals against a plain list: order, withdrawal, byte bound,
// and putting back.
func TestProposalQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 2000
		b := newInbox(limit, 0)
		var model []proposal
		size := func() (n int) {
			for _, p := range model {
				n += p.size()
			}
			return n
		}
		next := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"propose": func(t *rapid.T) {
				next++
				p := proposal{id: next, data: make([]byte, rapid.IntRange(0, 400).Draw(t, "size")), later: rapid.Bool().Draw(t, "later")}
				err := b.propose(p)
				if full := len(model) > 0 && size()+p.size() > limit; full != errors.Is(err, ErrOverloaded) {
					t.Fatalf("propose: %v, but full is %v", err, full)
				} else if !full {
					model = append(model, p)
				}
			},
			"withdraw": func(t *rapid.T) {
				id := rapid.Uint64Range(1, next+1).Draw(t, "id")
				b.withdraw(id)
				// A withdrawn one keeps its place and its overhead until those before it are gone.
				for i := range model {
					if model[i].id == id {
						model[i] = proposal{id: id, withdrawn: true, later: model[i].later}
					}
				}
				for len(model) > 0 && model[0].withdrawn {
					model = model[1:]
				}
			},
			"take": func(t *rapid.T) {
				limit := rapid.IntRange(1, 1500).Draw(t, "max")
				got, more := b.take(nil, limit)
				var want []proposal
				total := 0
				for len(model) > 0 {
					if total += model[0].size(); total > limit && len(want) > 0 {
						break
					}
					if !model[0].withdrawn {
						want = append(want, model[0])
					}
					model = model[1:]
				}
				if !sameProposals(got, want) || more != (len(model) > 0) {
					t.Fatalf("took %d of %d, more %v", len(got), len(want), more)
				}
				if rapid.Bool().Draw(t, "put back") && len(got) > 0 {
					b.putBack(got)
					model = append(slices.Clone(want), model...)
				}
			},
			"": func(t *rapid.T) {
				if n, bytes := b.waiting(); n != len(model) || bytes != size() {
					t.Fatalf("%d proposals of %d bytes wait, want %d of %d", n, bytes, len(model), size())
				}
				if presses := slices.ContainsFunc(model, func(p proposal) bool { return !p.later }); b.presses() != presses {
					t.Fatalf("presses is %v, want %v", b.presses(), presses)
				}
			},
		})
	})
}

func sameProposals(a, b []proposal) bool {
	return slices.EqualFunc(a, b, func(x, y proposal) bool { return x.id == y.id && len(x.data) == len(y.data) })
}

// What other goroutines leave is handed over once, whole and in order; ticks
// collapse; and append messages are bounded.
func TestInbox(t *testing.T) {
	b := newInbox(100, 1000)
	for range 1000 {
		b.tick()
	}
	<-b.wake
	b.awaitApplied(false)
	b.applied(7)
	b.applied(5)
	if len(b.wake) > 0 {
		t.Error("the loop was woken for what it does not wait for")
	}
	if b.awaitApplied(true); len(b.wake) == 0 {
		t.Error("the loop was not woken for what had come when it began to wait")
	}
	<-b.wake
	if b.applied(6); len(b.wake) == 0 {
		t.Error("the loop was not woken for what it waits for")
	}
	must(t, b.read(1))
	must(t, b.read(2))
	big := &raftpb.Message{Entries: []*raftpb.Entry{{Data: make([]byte, 600)}}}
	small := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum()}
	if n := b.step([]*raftpb.Message{big, small, big, small}); n != 1 {
		t.Errorf("%d messages were dropped, want the second large one", n)
	}
	w := b.swap(work{})
	if !w.tick || w.applied != 7 || !slices.Equal(w.reads, []uint64{1, 2}) || !slices.Equal(w.msgs, []*raftpb.Message{big, small, small}) {
		t.Errorf("work %+v", w)
	}
	w.reset()
	if w = b.swap(w); w.tick || w.applied != 0 || len(w.reads)+len(w.msgs)+len(w.calls) != 0 {
		t.Errorf("work %+v was handed over twice", w)
	}
	if n := b.step([]*raftpb.Message{big}); n != 0 {
		t.Error("the bound does not count what was taken")
	}
	b.close()
	if err := b.propose(proposal{}); !errors.Is(err, ErrStopped) {
		t.Error(err)
	}
	if n := b.step([]*raftpb.Message{small}); n != 1 {
		t.Error("a message was taken after the end")
	}
}

// Reads that wait without a leader are answered when there is one, all by one
// question; a lost question is asked again.
func TestReadsWithoutLeaderAndLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		defer c.close()
		lead := c.leader()
		m := c.members[lead.id%3+1]
		c.propose(m, "a")
		answered := func(ids ...uint64) func() bool {
			return func() bool {
				m.mu.Lock()
				defer m.mu.Unlock()
				for _, id := range ids {
					if m.reads[id] < 2 {
						return false
					}
				}
				return true
			}
		}
		c.set(func() { clear(c.sent) })
		must(t, m.node.ReadIndex(1))
		synctest.Wait()
		if !answered(1)() {
			t.Error("a read of a follower takes time although nothing is slow")
		}
		c.set(func() { c.cut = func(_, _ uint64) bool { return true } })
		must(t, m.node.ReadIndex(2)) // the question is lost
		c.eventually("no leader", func() bool { return m.node.Status().Leader == 0 })
		must(t, m.node.ReadIndex(3))
		must(t, m.node.ReadIndex(4))
		time.Sleep(testSecond)
		if answered(2)() || answered(3)() {
			t.Fatal("answered without a quorum")
		}
		c.isolate(0)
		for m.node.Status().Leader == 0 {
			time.Sleep(testTick / 10)
			synctest.Wait()
		}
		if !answered(2, 3, 4)() {
			t.Error("the reads were not asked for as soon as there was a leader")
		}
		// With a leader that stays, a lost question is repeated by time.
		c.leader()
		c.set(func() {
			c.cut = func(_, _ uint64) bool { return true }
		})
		must(t, m.node.ReadIndex(5))
		time.Sleep(2 * testTick)
		c.isolate(0)
		c.eventually("answered", answered(5))
	})
}

// An old leader that does not know of the new one answers no read.
func TestDeposedLeaderAnswersNoRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		defer c.close()
		old := c.leader()
		c.propose(old, "a")
		c.isolate(old.id)
		must(t, old.node.ReadIndex(1))
		next := c.leader(old.id)
		c.propose(next, "b")
		floor := next.state().index
		old.mu.Lock()
		if _, ok := old.reads[1]; ok {
			t.Error("answered without a quorum")
		}
		old.mu.Unlock()
		must(t, old.node.ReadIndex(2))
		c.isolate(0)
		c.eventually("answered", func() bool {
			old.mu.Lock()
			defer old.mu.Unlock()
			return old.reads[2] >= floor
		})
		old.mu.Lock()
		defer old.mu.Unlock()
		if old.reads[1] < 2 {
			t.Errorf("the older read got %d", old.reads[1])
		}
	})
}

// Answers to questions of an earlier life, to unknown ones and to answered
// ones count for nothing; an answer serves everything asked before.
func TestReadAnswers(t *testing.T) {
	var r reads
	got := map[uint64]uint64{}
	onRead := func(id, index uint64) { got[id] = index }
	add := func(id uint64) { r.waiting = append(r.waiting, waitingRead{id: id, need: r.asked + 1}) }
	add(10)
	first := r.ask()
	var before reads // the same first question, asked by a process that had other ids
	before.waiting = []waitingRead{{id: 9, need: 1}}
	r.answer(raft.ReadState{Index: 1, RequestCtx: before.ask()}, onRead)
	r.answer(raft.ReadState{Index: 1, RequestCtx: []byte("junk")}, onRead)
	if len(got) != 0 {
		t.Fatalf("served %v", got)
	}
	add(11)
	second := r.ask()
	add(12) // made after the question, so not served by its answer
	r.answer(raft.ReadState{Index: 5, RequestCtx: second}, onRead)
	if len(got) != 2 || got[10] != 5 || got[11] != 5 {
		t.Fatalf("served %v", got)
	}
	r.answer(raft.ReadState{Index: 3, RequestCtx: first}, onRead)
	if len(got) != 2 || len(r.waiting) != 1 {
		t.Fatalf("served %v", got)
	}
	r.answer(raft.ReadState{Index: 6, RequestCtx: r.ask()}, onRead)
	if got[12] != 6 || len(r.waiting) != 0 || len(r.questions) != 0 {
		t.Fatalf("served %v", got)
	}
}

// Stored state that cannot be is refused with a hint, before raft sees it.
func TestStartIsChecked(t *testing.T) {
	entry := func(i uint64) *raftpb.Entry { return &raftpb.Entry{Index: &i} }
	commit := uint64(9)
	for want, s := range map[string]Start{
		"entry 5 after entry 3":                          {Index: 2, Applied: 2, Entries: []*raftpb.Entry{entry(3), entry(5)}},
		"at entry 1, but the stored log begins after":    {Index: 2, Applied: 1},
		"at entry 4, but the stored log ends at entry 3": {Index: 2, Applied: 4, Entries: []*raftpb.Entry{entry(3)}},
		"entry 9 is marked as committed":                 {Index: 2, Applied: 2, HardState: &raftpb.HardState{Commit: &commit}},
	} {
		if err := s.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
	if err := Bootstrap([]uint64{1}).validate(); err != nil {
		t.Error(err)
	}
	for _, cfg := range []Config{{}, {ID: 1}, {ID: 1, ElectionTicks: 1, HeartbeatTicks: 1}, {ID: 1, ElectionTicks: 10, HeartbeatTicks: 1}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

// A leader that contradicts the stored log ends Run with an error instead of
// a panic.
func TestContradictionEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2)
		m := c.members[1]
		lead := c.leader()
		if lead == m {
			m = c.members[2]
		}
		term, commit := lead.node.Status().Term+1, uint64(1000)
		m.node.Step([]*raftpb.Message{{Type: raftpb.MsgHeartbeat.Enum(), From: &lead.id, To: &m.id, Term: &term, Commit: &commit}})
		err := <-m.stopped
		if err == nil || !strings.Contains(err.Error(), "contradicts") {
			t.Errorf("Run returned %v", err)
		}
		m.stopped <- nil
		c.close()
	})
}

// No message that a peer can send makes a member panic.
func FuzzStep(f *testing.F) {
	one, two, term := uint64(1), uint64(2), uint64(3)
	for typ := range raftpb.MessageType_name {
		for _, ents := range [][]*raftpb.Entry{nil, {{}}, {{Type: raftpb.EntryConfChange.Enum(), Data: []byte{0xff}}}} {
			f.Add(raftcodec.AppendBatch(nil, []*raftpb.Message{{Type: raftpb.MessageType(typ).Enum(), From: &two, To: &one, Term: &term,
				Index: &one, LogTerm: &one, Entries: ents, Context: []byte("x")}}))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		msgs, err := raftcodec.DecodeBatch(data)
		if err != nil {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 1, 2)
			m := c.members[1]
			must(t, m.node.Campaign())
			c.leader()
			m.node.Step(msgs)
			time.Sleep(20 * testTick)
			select {
			case err := <-m.stopped: // an error is allowed, a panic is not
				t.Log(err)
				m.stopped <- nil
			default:
			}
			c.close()
		})
	})
}

// Malformed and misdirected messages are told apart.
func TestCheckMessage(t *testing.T) {
	self, other, three, four := uint64(1), uint64(2), uint64(3), uint64(4)
	msg := func(typ raftpb.MessageType, ents ...*raftpb.Entry) *raftpb.Message {
		return &raftpb.Message{Type: typ.Enum(), To: &self, From: &other, Term: &three, Index: &three, LogTerm: &three, Entries: ents}
	}
	entry := func(index, term uint64) *raftpb.Entry { return &raftpb.Entry{Index: &index, Term: &term} }
	cc := func(data string) *raftpb.Entry {
		return &raftpb.Entry{Type: raftpb.EntryConfChangeV2.Enum(), Data: []byte(data)}
	}
	good := []*raftpb.Message{
		msg(raftpb.MsgApp), msg(raftpb.MsgApp, entry(4, 3), entry(5, 3)), msg(raftpb.MsgProp, cc("")),
		msg(raftpb.MsgReadIndex, &raftpb.Entry{}), msg(raftpb.MsgHeartbeat),
	}
	for _, m := range good {
		if err := checkMessage(m, self); err != nil {
			t.Errorf("%v: %v", m, err)
		}
	}
	stray, mine := msg(raftpb.MsgHeartbeat), msg(raftpb.MsgHeartbeat)
	stray.To, mine.From = &four, &self
	bad := []*raftpb.Message{
		stray, mine,
		msg(raftpb.MsgApp, entry(5, 3)), msg(raftpb.MsgApp, entry(4, 2)), msg(raftpb.MsgApp, entry(4, 4)),
		msg(raftpb.MsgProp), msg(raftpb.MsgProp, cc("\xff")), msg(raftpb.MsgProp, &raftpb.Entry{Type: raftpb.EntryType(9).Enum()}),
		msg(raftpb.MsgReadIndex), msg(raftpb.MsgReadIndexResp, &raftpb.Entry{}, &raftpb.Entry{}), msg(raftpb.MsgSnap),
		{Type: raftpb.MsgHeartbeatResp.Enum(), To: &self, From: &other, Context: []byte("short")},
	}
	for i, m := range bad {
		if err := checkMessage(m, self); err == nil {
			t.Errorf("%d: %v was accepted", i, m)
		}
	}
	// Step drops the bad ones among good ones and keeps the order.
	n := &Node{inbox: newInbox(1, 1<<20), cfg: Config{ID: self}.withDefaults()}
	n.Step([]*raftpb.Message{good[0], bad[0], good[1], bad[1], bad[2], good[4]})
	if got := n.inbox.swap(work{}).msgs; !slices.Equal(got, []*raftpb.Message{good[0], good[1], good[4]}) {
		t.Errorf("stepped %v", got)
	}
}

// Batches come whole, in order, merged while the loop is busy, and a snapshot
// stays between the entries before and after it.
func TestOutbox(t *testing.T) {
	o := newOutbox()
	put := func(from, to uint64) {
		var ents []*raftpb.Entry
		for i := from; i <= to; i++ {
			ents = append(ents, &raftpb.Entry{Index: &i})
		}
		o.entries(ents)
	}
	index := uint64(9)
	put(1, 2)
	put(3, 3)
	put(4, 5)
	o.snapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &index}})
	put(10, 10)
	var got []string
	for range 3 {
		b := <-o.ch
		o.next()
		s := ""
		if b.Snapshot != nil {
			s = fmt.Sprint("snap ", b.Snapshot.GetMetadata().GetIndex(), " ")
		}
		for _, e := range b.Entries {
			s += fmt.Sprint(e.GetIndex(), " ")
		}
		got = append(got, s)
	}
	if want := []string{"1 2 ", "3 4 5 ", "snap 9 10 "}; !slices.Equal(got, want) {
		t.Errorf("batches %q, want %q", got, want)
	}
	o.close()
	put(11, 11) // after the end
	if _, ok := <-o.ch; ok {
		t.Error("a batch after the end")
	}
}
