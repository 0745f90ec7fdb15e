package raftnode

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A proposal for later waits for one that is not, keeps its place before it, and shares its batch; alone it waits for a tick.
func TestLaterAtLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		defer c.close()
		lead := c.leader()
		synctest.Wait()
		had := len(lead.state().data)
		must(t, lead.node.ProposeLater(1, []byte("a")))
		must(t, lead.node.ProposeLater(2, []byte("b")))
		synctest.Wait()
		if got := lead.state().data[had:]; len(got) != 0 {
			t.Fatalf("%q did not wait", got)
		}
		must(t, lead.node.Propose(3, []byte("c")))
		synctest.Wait() // no time passes, so there is no tick
		if got := lead.state().data[had:]; !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Fatalf("applied %q", got)
		}
		must(t, lead.node.ProposeLater(4, []byte("d")))
		time.Sleep(2 * testTick)
		synctest.Wait()
		if got := lead.state().data[had:]; !slices.Equal(got, []string{"a", "b", "c", "d"}) {
			t.Fatalf("applied %q after a tick", got)
		}
	})
}

// What a follower passes on for later waits at the leader likewise, and a member that has no other traffic is heard at a tick.
func TestLaterAtFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		defer c.close()
		lead := c.leader()
		m := c.members[lead.id%3+1]
		synctest.Wait()
		had := len(lead.state().data)
		after := func() []string { return lead.state().data[had:] }
		must(t, m.node.ProposeLater(1, []byte("a")))
		must(t, lead.node.Propose(2, []byte("b"))) // its append gives the follower a turn
		synctest.Wait()
		if got := after(); !slices.Equal(got, []string{"b"}) {
			t.Fatalf("applied %q", got)
		}
		other := c.members[6-lead.id-m.id]
		must(t, other.node.Propose(3, []byte("c")))
		synctest.Wait()
		if got := after(); !slices.Equal(got, []string{"b", "a", "c"}) {
			t.Fatalf("applied %q", got)
		}
		must(t, m.node.ProposeLater(4, []byte("d")))
		time.Sleep(3 * testTick)
		synctest.Wait()
		if got := after(); !slices.Equal(got, []string{"b", "a", "c", "d"}) {
			t.Fatalf("applied %q after ticks", got)
		}
	})
}

// A proposal for later that can reach no leader waits like any other, and can be withdrawn.
func TestLaterWithoutLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		defer c.close()
		old := c.leader()
		c.isolate(old.id)
		m := c.leader(old.id)
		c.isolate(m.id)
		c.eventually("no leader", func() bool { return m.node.Status().Leader == 0 })
		must(t, m.node.ProposeLater(1, []byte("withdrawn")))
		must(t, m.node.ProposeLater(2, []byte("kept")))
		m.node.Withdraw(1)
		time.Sleep(testSecond)
		c.isolate(0)
		c.eventually("applied", func() bool {
			data := m.state().data
			return slices.Contains(data, "kept") && !slices.Contains(data, "withdrawn")
		})
	})
}
