package raftnode

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"go.etcd.io/raft/v3/raftpb"
)

// TestVoteIsKept: a member that has voted and then loses its power does not vote for another in the same term,
// which would make two leaders of it.
func TestVoteIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		defer c.close()
		var mu sync.Mutex
		var granted []uint64
		c.set(func() {
			c.cut = func(_, _ uint64) bool { return true }
			c.observe = func(m *raftpb.Message) {
				mu.Lock()
				defer mu.Unlock()
				if m.GetType() == raftpb.MsgVoteResp && m.GetFrom() == 1 && !m.GetReject() {
					granted = append(granted, m.GetTo())
				}
			}
		})
		m := c.members[1]
		ask := func(from uint64) {
			to, term, one := uint64(1), uint64(50), uint64(1)
			m.node.Step([]*raftpb.Message{{
				Type: raftpb.MsgVote.Enum(), From: &from, To: &to, Term: &term, LogTerm: &one, Index: &one,
			}})
			synctest.Wait()
		}
		ask(2)
		m.crash(c.rng)
		m.restart()
		ask(3)
		ask(2)
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(granted, []uint64{2, 2}) {
			t.Errorf("voted for %v in one term", granted)
		}
	})
}
