package raftnode

import (
	"testing"
	"testing/synctest"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// A follower's read needs the leader alone: no time passes, nobody else is asked, and a third
// member may be away.
func TestFollowerReadsWithTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		defer c.close()
		lead := c.leader()
		m, third := c.members[lead.id%3+1], c.members[(lead.id+1)%3+1]
		c.propose(lead, "a")
		c.isolate(third.id)
		c.propose(lead, "b")
		c.set(func() { clear(c.sent) })
		must(t, m.node.ReadIndex(1))
		must(t, m.node.ReadIndex(2))
		synctest.Wait()
		m.mu.Lock()
		if floor := lead.node.Status().Commit; m.reads[1] != floor || m.reads[2] != floor {
			t.Errorf("the reads got %v, the leader has committed %d", m.reads, floor)
		}
		m.mu.Unlock()
		c.set(func() {
			if n := c.sent[raftpb.MsgReadIndex]; n == 0 || c.sent[raftpb.MsgReadIndexResp] != n || c.sent[raftpb.MsgHeartbeat] != 0 {
				t.Errorf("sent %v", c.sent)
			}
		})
	})
}

// Five voters need more than two of them for a read.
func TestFollowerReadsAmongFive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3, 4, 5)
		defer c.close()
		lead := c.leader()
		m := c.members[lead.id%5+1]
		c.propose(lead, "a")
		c.set(func() {
			c.cut = func(from, to uint64) bool { return from != m.id && from != lead.id || to != m.id && to != lead.id }
		})
		must(t, m.node.ReadIndex(1))
		synctest.Wait()
		m.mu.Lock()
		if len(m.reads) != 0 {
			t.Errorf("two of five answered %v", m.reads)
		}
		m.mu.Unlock()
		c.isolate(0)
		c.eventually("answered", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.reads[1] > 0
		})
	})
}

// Each condition of answering at once is looked at.
func TestAnswerReadConditions(t *testing.T) {
	const self, asker, term, commit = 1, 2, 7, 40
	type state struct {
		role       role
		handed     uint64
		pairs      []uint64
		from, sent uint64
	}
	good := state{role: role{leader: self, term: term, state: raft.StateLeader}, handed: term, pairs: []uint64{1, 2, 3}, from: asker, sent: term}
	tests := map[string]struct {
		change func(s *state)
		want   bool
	}{
		"all well":                       {func(*state) {}, true},
		"two voters":                     {func(s *state) { s.pairs = []uint64{2, 1} }, true},
		"follows":                        {func(s *state) { s.role.state = raft.StateFollower }, false},
		"the question is of an old term": {func(s *state) { s.sent = term - 1 }, false},
		"the asker is in a later term":   {func(s *state) { s.sent = term + 1 }, false},
		"the question has no term":       {func(s *state) { s.sent = 0 }, false},
		"nothing committed in this term": {func(s *state) { s.handed = term - 1 }, false},
		"a larger or a joint group":      {func(s *state) { s.pairs = nil }, false},
		"the asker has no vote":          {func(s *state) { s.from = 4 }, false},
		"the leader has no vote":         {func(s *state) { s.pairs = []uint64{2, 3} }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := good
			tt.change(&s)
			n := &Node{cfg: Config{ID: self}}
			n.role.Store(&s.role)
			n.commit.Store(commit)
			n.loop.handedTerm, n.loop.pairs = s.handed, s.pairs
			m := &raftpb.Message{Type: raftpb.MsgReadIndex.Enum(), From: &s.from, LogTerm: &s.sent, Entries: []*raftpb.Entry{{Data: []byte("q")}}}
			if got := n.answerRead(m); got != tt.want {
				t.Fatalf("answered: %v, want %v", got, tt.want)
			}
			if !tt.want {
				if len(n.loop.answers) != 0 {
					t.Error("an answer was made nevertheless")
				}
				return
			}
			a := n.loop.answers[0]
			if a.GetTo() != asker || a.GetFrom() != self || a.GetTerm() != term || a.GetIndex() != commit || string(a.GetEntries()[0].GetData()) != "q" {
				t.Errorf("the answer is %v", a)
			}
		})
	}
}

// Only a member's own question gets its term: one that is passed on says what its asker knew.
func TestStamp(t *testing.T) {
	n := &Node{cfg: Config{ID: 1}}
	n.role.Store(&role{term: 9})
	own, other, old := uint64(1), uint64(2), uint64(5)
	m := &raftpb.Message{From: &own}
	n.stamp(m)
	if m.GetLogTerm() != 9 {
		t.Errorf("the own question has term %d", m.GetLogTerm())
	}
	m = &raftpb.Message{From: &other, LogTerm: &old}
	n.stamp(m)
	if m.GetLogTerm() != old {
		t.Errorf("the question passed on has term %d", m.GetLogTerm())
	}
}

// The configuration decides whether two voters are a majority.
func TestPairs(t *testing.T) {
	n := &Node{cfg: Config{ID: 1}}
	for name, tt := range map[string]struct {
		conf *raftpb.ConfState
		want int
	}{
		"three":                {&raftpb.ConfState{Voters: []uint64{1, 2, 3}}, 3},
		"two and a learner":    {&raftpb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{3}}, 2},
		"four":                 {&raftpb.ConfState{Voters: []uint64{1, 2, 3, 4}}, 0},
		"changing from others": {&raftpb.ConfState{Voters: []uint64{1, 2, 3}, VotersOutgoing: []uint64{1, 4, 5}}, 0},
	} {
		if n.setConf(tt.conf); len(n.loop.pairs) != tt.want {
			t.Errorf("%s: pairs among %v, want %d", name, n.loop.pairs, tt.want)
		}
	}
}
