package raftnode

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

func change(typ raftpb.ConfChangeType, id uint64) *raftpb.ConfChange {
	return &raftpb.ConfChange{Type: typ.Enum(), NodeId: &id}
}

// A member that joins gets its configuration with a snapshot, first as a
// learner, then with a vote; one that is removed is not counted any more.
func TestMembersChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		defer c.close()
		one := c.members[1]
		c.propose(one, "a")
		for _, id := range []uint64{2, 3} {
			m := c.add(id)
			m.create(Start{})
			m.run(Start{})
			must(t, one.node.ProposeConf(0, change(raftpb.ConfChangeAddLearnerNode, id)))
			c.eventually("the learner has caught up", func() bool { return slices.Contains(m.state().data, "a") })
			must(t, one.node.ProposeConf(0, change(raftpb.ConfChangeAddNode, id)))
			c.eventually("the learner has a vote", func() bool { return slices.Contains(m.state().conf.GetVoters(), id) })
		}
		c.same()
		st, err := one.node.Progress(context.Background())
		must(t, err)
		if len(st.Progress) != 3 || st.Progress[3].State != tracker.StateReplicate {
			t.Errorf("progress %v", st.Progress)
		}
		c.isolate(2) // two of three are enough
		c.propose(one, "b")
		c.isolate(0)
		must(t, one.node.ProposeConf(0, change(raftpb.ConfChangeRemoveNode, 2)))
		c.eventually("removed", func() bool { return !slices.Contains(one.state().conf.GetVoters(), 2) })
		must(t, c.members[2].stop())
		c.propose(one, "c")
		must(t, one.node.ProposeConf(0, change(raftpb.ConfChangeRemoveNode, 3)))
		c.eventually("alone", func() bool { return len(one.state().conf.GetVoters()) == 1 })
		must(t, c.members[3].stop())
		c.propose(one, "d")
		if got := one.node.Status(); got.State != raft.StateLeader {
			t.Errorf("status %+v", got)
		}
	})
}

// The leader that removes itself steps down, and the others elect one of them.
func TestLeaderRemovesItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		defer c.close()
		lead := c.leader()
		must(t, lead.node.ProposeConf(0, change(raftpb.ConfChangeRemoveNode, lead.id)))
		c.eventually("removed", func() bool { return len(lead.state().conf.GetVoters()) == 2 })
		next := c.leader(lead.id)
		c.propose(next, "a")
		if st := lead.node.Status(); st.State == raft.StateLeader {
			t.Errorf("status %+v", st)
		}
		must(t, lead.stop())
	})
}

// A change that leaves nobody to vote is an error, not a panic of raft.
func TestLastVoterStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		defer c.close()
		for _, typ := range []raftpb.ConfChangeType{raftpb.ConfChangeRemoveNode, raftpb.ConfChangeAddLearnerNode} {
			if _, err := c.members[1].node.ApplyConf(change(typ, 1)); err == nil {
				t.Errorf("%v of the last voter was accepted", typ)
			}
		}
		if _, err := c.members[1].node.ApplyConf(change(raftpb.ConfChangeUpdateNode, 1)); err != nil {
			t.Error(err)
		}
		c.propose(c.members[1], "a")
	})
}

// A sole voter that restarts with a change of members not yet applied leads as
// soon as it has applied it.
func TestSoleRestartsWithUnappliedChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		defer c.close()
		m := c.members[1]
		m.mu.Lock()
		c.saveEach = 1000
		m.mu.Unlock()
		must(t, m.node.ProposeConf(0, change(raftpb.ConfChangeAddLearnerNode, 2)))
		c.eventually("learner", func() bool { return len(m.state().conf.GetLearners()) == 1 })
		must(t, m.stop())
		begin := time.Now()
		m.restart()
		c.eventually("leads", func() bool { return m.node.Status().State == raft.StateLeader })
		if took := time.Since(begin); took > testTick {
			t.Errorf("took %v", took)
		}
		c.eventually("learner", func() bool { return len(m.state().conf.GetLearners()) == 1 })
	})
}

// A member that missed entries which are compacted away catches up by a
// snapshot, whose file is newer than raft asked for, and by the log after it.
func TestSnapshotCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		defer c.close()
		lead := c.leader()
		late := c.members[lead.id%3+1]
		c.same()
		must(t, late.stop())
		for i := range 100 {
			c.propose(lead, fmt.Sprint("a", i))
		}
		for _, m := range c.members {
			if m != late {
				m.node.cfg.CatchUpEntries = 0
				must(t, m.node.Compact(m.state().index))
			}
		}
		c.set(func() { c.snapshotTime = 20 * testTick })
		late.restart()
		for i := range 50 { // writes and compactions go on while the snapshot is on its way
			c.propose(lead, fmt.Sprint("b", i))
			must(t, lead.node.Compact(lead.state().index))
			time.Sleep(testTick)
		}
		c.eventually("caught up", func() bool { return slices.Contains(late.state().data, "b49") })
		c.same()
		if len(late.files) == 0 {
			t.Fatal("no snapshot was sent")
		}
		c.set(func() {
			if n := c.sent[raftpb.MsgSnap]; n != 1 {
				t.Errorf("%d snapshots were sent for one member", n)
			}
		})
		// The log begins at the snapshot, so a restart works, too.
		late.crash(nil)
		late.restart()
		c.propose(lead, "c")
		c.same()
	})
}

// A snapshot that does not arrive is sent again.
func TestSnapshotFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		defer c.close()
		lead := c.leader()
		late := c.members[lead.id%3+1]
		must(t, late.stop())
		c.propose(lead, "a")
		lead.node.cfg.CatchUpEntries = 0
		must(t, lead.node.Compact(lead.state().index))
		c.set(func() { c.drop = 0.5 })
		late.restart()
		c.eventually("caught up", func() bool { return slices.Contains(late.state().data, "a") })
		c.set(func() { c.drop = 0 })
		c.same()
	})
}

// Compact keeps the entries that lagging members may need, never drops what
// is not applied, and a member restarts from what the log keeps.
func TestCompact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		defer c.close()
		m := c.members[1]
		m.node.cfg.CatchUpEntries = 50
		for i := range 300 {
			c.propose(m, fmt.Sprint(i, make([]byte, 300)))
		}
		index := m.state().index
		must(t, m.node.Compact(index+1000)) // beyond what is applied
		first, err := m.node.mem.FirstIndex()
		must(t, err)
		if want := index - 50 + 1; first != want {
			t.Errorf("the log begins at %d, want %d", first, want)
		}
		must(t, m.node.Compact(10)) // long gone
		files, err := m.mem.List("/data/wal")
		must(t, err)
		if len(files) > 5 {
			t.Errorf("the write-ahead log was not released: %v", files)
		}
		must(t, m.stop())
		m.restart()
		c.propose(m, "more")
	})
}
