package raftnode

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// A commit costs one acknowledgement of each follower. The answer to the message that tells of the commit comes with the tick.
func TestAnswerToCommitWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		defer c.close()
		lead := c.leader()
		time.Sleep(testSecond)
		synctest.Wait()
		sent := func() (n int) {
			c.set(func() { n = c.sent[raftpb.MsgAppResp] })
			return n
		}
		had, size := sent(), len(lead.state().data)
		for range 10 {
			must(t, lead.node.Propose(0, []byte("x")))
			synctest.Wait() // no time passes, so there is no tick
		}
		n := sent() - had
		if n < 20 || n > 30 { // 20, but that this network may turn messages round, which makes some more
			t.Errorf("%d acknowledgements of 10 commits by two followers", n)
		}
		for _, m := range c.members {
			if n := len(m.state().data) - size; n != 10 {
				t.Errorf("member %d has applied %d of 10 entries", m.id, n)
			}
		}
		time.Sleep(2 * testTick)
		synctest.Wait()
		if after := sent() - had; after == n {
			t.Error("no follower has answered to a commit with the tick")
		}
	})
}

func TestKeep(t *testing.T) {
	msg := func(typ raftpb.MessageType, to, term, index uint64, reject bool) *raftpb.Message {
		return &raftpb.Message{Type: &typ, To: &to, Term: &term, Index: &index, Reject: &reject}
	}
	var s said
	for i, step := range []struct {
		m        *raftpb.Message
		advanced bool
		keep     bool
	}{
		{msg(raftpb.MsgAppResp, 1, 5, 7, false), true, false}, // new, though the commit index rises as well
		{msg(raftpb.MsgAppResp, 1, 5, 7, false), false, false},
		{msg(raftpb.MsgAppResp, 1, 5, 7, false), true, true},
		{msg(raftpb.MsgAppResp, 1, 5, 6, false), true, true},
		{msg(raftpb.MsgAppResp, 1, 5, 6, true), true, false},
		{msg(raftpb.MsgVoteResp, 1, 5, 6, false), true, false},
		{msg(raftpb.MsgAppResp, 1, 6, 6, false), true, false}, // to a leader of another term
		{msg(raftpb.MsgAppResp, 1, 6, 6, false), true, true},
		{msg(raftpb.MsgAppResp, 2, 6, 6, false), true, false}, // to another one
		{msg(raftpb.MsgAppResp, 2, 6, 8, false), true, false},
	} {
		if kept := s.keep(step.m, step.advanced); kept != step.keep || kept != (s.again == step.m) {
			t.Errorf("step %d: kept is %v", i, kept)
		}
	}
}

// A loop whose entries were held back until others are applied goes on when they are, without waiting for a tick.
func TestHeldBackEntriesFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		defer c.close()
		lead := c.leader()
		m := c.members[lead.id%3+1]
		must(t, m.stop())
		c.set(func() { c.maxApplying = 2 << 10 })
		m.restart()
		time.Sleep(testSecond)
		synctest.Wait()
		had := len(m.state().data)
		hold := make(chan struct{})
		m.mu.Lock()
		m.hold = hold
		m.mu.Unlock()
		const n = 20
		for range n {
			must(t, lead.node.Propose(0, []byte(strings.Repeat("x", 1000))))
			synctest.Wait()
		}
		if got := len(m.state().data) - had; got != 0 {
			t.Fatalf("applied %d entries meanwhile", got)
		}
		m.mu.Lock()
		m.hold = nil
		m.mu.Unlock()
		close(hold)
		synctest.Wait() // no time passes
		if got := len(m.state().data) - had; got != n {
			t.Errorf("applied %d of %d entries", got, n)
		}
	})
}
