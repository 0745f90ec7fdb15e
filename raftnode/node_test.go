package raftnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/coordd/coordd/pkg/vfs"
)

// A sole voter leads without waiting for an election timeout.
func TestSingleLeadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		c := newCluster(t, 1)
		defer c.close()
		m := c.members[1]
		synctest.Wait()
		if st := m.node.Status(); st.Leader != 1 || st.State != raft.StateLeader || time.Since(begin) != 0 {
			t.Fatalf("status %+v after %v", st, time.Since(begin))
		}
		c.propose(m, "a")
		must(t, m.stop())
		m.restart()
		synctest.Wait()
		if st := m.node.Status(); st.Leader != 1 || st.Term < 3 {
			t.Fatalf("after restart: %+v", st)
		}
		c.propose(m, "b")
	})
}

// What a single member hands to apply is on its disk: nothing comes while the
// flush is under way, and nothing ever when it fails.
func TestSingleDurableBeforeApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		m := c.members[1]
		c.propose(m, "before")
		bad := errors.New("the disk is on fire")
		flushing, goOn := make(chan struct{}), make(chan struct{})
		m.plan.Add(vfs.Fault{Op: vfs.OpSync, Err: bad, Hook: func(vfs.Op, string) { close(flushing); <-goOn }, Times: 1})
		must(t, m.node.Propose(0, []byte("lost")))
		<-flushing
		time.Sleep(10 * testSecond)
		synctest.Wait()
		if slices.Contains(m.state().data, "lost") {
			t.Fatal("applied before it was durable")
		}
		close(goOn)
		err := <-m.stopped
		if !errors.Is(err, bad) {
			t.Fatalf("Run returned %v", err)
		}
		synctest.Wait()
		if slices.Contains(m.state().data, "lost") {
			t.Fatal("applied although the flush failed")
		}
		for name, err := range map[string]error{
			"Propose": m.node.Propose(0, []byte("x")), "ReadIndex": m.node.ReadIndex(1), "Campaign": m.node.Campaign(),
			"Compact": m.node.Compact(1),
		} {
			if !errors.Is(err, ErrStopped) {
				t.Errorf("%s after the end: %v", name, err)
			}
		}
		if _, err := m.node.Progress(context.Background()); !errors.Is(err, ErrStopped) {
			t.Errorf("Progress after the end: %v", err)
		}
		if _, err := m.node.ApplyConf(&raftpb.ConfChange{}); !errors.Is(err, ErrStopped) {
			t.Errorf("ApplyConf after the end: %v", err)
		}
		_ = m.log.Close()
		m.mem = m.mem.Crash(nil)
		m.restart()
		c.propose(m, "after")
		if !slices.Contains(m.state().data, "before") {
			t.Fatal("an acknowledged entry is lost")
		}
		c.close()
	})
}

// An append is not acknowledged while its write is under way; the rest of the
// cluster goes on meanwhile.
func TestFollowerAnswersAfterDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		defer c.close()
		lead := c.leader()
		slow := c.members[lead.id%3+1]
		c.propose(lead, "a")
		c.same()
		index := lead.state().index + 1
		goOn := make(chan struct{})
		slow.plan.Add(vfs.Fault{Op: vfs.OpSync, Times: 1, Hook: func(vfs.Op, string) { <-goOn }})
		early := 0
		released := false
		c.set(func() {
			c.observe = func(m *raftpb.Message) {
				if m.GetFrom() == slow.id && m.GetType() == raftpb.MsgAppResp && m.GetIndex() >= index && !released {
					early++
				}
			}
		})
		must(t, lead.node.Propose(0, []byte("b")))
		c.eventually("the others go on", func() bool { return slices.Contains(lead.state().data, "b") })
		c.set(func() {
			if early > 0 {
				t.Error("an append was acknowledged before it was on disk")
			}
			released = true
		})
		close(goOn)
		c.same()
	})
}

// A leader sends an append before its own flush, and its entry commits by the
// others' flushes; but it hands the entry to its own apply loop only when it is on its own disk.
func TestLeaderSendsBeforeDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		defer c.close()
		lead := c.leader()
		c.propose(lead, "a")
		c.same()
		flushing, goOn := make(chan struct{}), make(chan struct{})
		lead.plan.Add(vfs.Fault{Op: vfs.OpSync, Times: 1, Hook: func(vfs.Op, string) { close(flushing); <-goOn }})
		sent := 0
		c.set(func() {
			c.observe = func(m *raftpb.Message) {
				if m.GetType() == raftpb.MsgApp && len(m.GetEntries()) > 0 {
					sent++
				}
			}
		})
		must(t, lead.node.Propose(0, []byte("b")))
		<-flushing
		synctest.Wait()
		c.set(func() {
			if sent != 2 {
				t.Errorf("%d append messages left before the flush, want 2", sent)
			}
		})
		if slices.Contains(lead.state().data, "b") {
			t.Error("the leader applied what is not on its disk")
		}
		close(goOn)
		c.same()
		if !slices.Contains(lead.state().data, "b") {
			t.Error("not applied")
		}
	})
}

// A member whose disk fails ends, the others go on, and it returns.
func TestFsyncFailureEndsOneMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		defer c.close()
		lead := c.leader()
		c.propose(lead, "a")
		bad := errors.New("no more sectors")
		lead.plan.Add(vfs.Fault{Op: vfs.OpSync, Err: bad})
		must(t, lead.node.Propose(0, []byte("b")))
		err := <-lead.stopped
		if !errors.Is(err, bad) || !strings.Contains(err.Error(), "write-ahead log") {
			t.Fatalf("Run returned %v", err)
		}
		lead.stopped <- nil
		mem := lead.mem.Crash(nil)
		_ = lead.stop()
		next := c.leader(lead.id)
		c.propose(next, "c")
		lead.mem = mem
		lead.restart()
		c.same()
		if d := lead.state().data; !slices.Contains(d, "a") || !slices.Contains(d, "c") {
			t.Fatalf("applied %q", d)
		}
	})
}

// Followers forward proposals in one message, and each is applied once.
func TestForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		defer c.close()
		lead := c.leader()
		follower := c.members[lead.id%3+1]
		c.propose(follower, "warm")
		c.set(func() { clear(c.sent) })
		// Both sides of a turn: the loop may take the first few alone.
		for i := range 500 {
			must(t, follower.node.Propose(uint64(i+1), fmt.Append(nil, "p", i)))
		}
		c.eventually("all applied", func() bool { return slices.Contains(lead.state().data, "p499") })
		c.same()
		c.set(func() {
			if n := c.sent[raftpb.MsgProp]; n == 0 || n > 250 {
				t.Errorf("%d messages forwarded 500 proposals", n)
			}
		})
		seen := map[string]int{}
		for _, d := range lead.state().data {
			seen[d]++
		}
		for i := range 500 {
			if n := seen[fmt.Sprint("p", i)]; n != 1 {
				t.Fatalf("proposal %d was applied %d times", i, n)
			}
		}
	})
}

// Without a leader proposals wait; those withdrawn never happen; the others are applied in order.
func TestProposalsWaitForLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		defer c.close()
		lead := c.leader()
		m := c.members[lead.id%3+1]
		c.propose(m, "a")
		c.set(func() { c.cut = func(from, to uint64) bool { return true } })
		c.eventually("no leader", func() bool { return m.node.Status().Leader == 0 })
		for i := range 10 {
			must(t, m.node.Propose(uint64(100+i), fmt.Append(nil, "w", i)))
		}
		time.Sleep(testSecond)
		m.node.Withdraw(100)
		m.node.Withdraw(105)
		m.node.Withdraw(4711)
		if n, _ := m.node.Waiting(); n != 9 { // the one at the head is gone, the other marked
			t.Errorf("%d proposals wait", n)
		}
		c.isolate(0)
		c.eventually("applied", func() bool { return slices.Contains(m.state().data, "w9") })
		var got []string
		for _, d := range m.state().data {
			if strings.HasPrefix(d, "w") {
				got = append(got, d)
			}
		}
		if want := []string{"w1", "w2", "w3", "w4", "w6", "w7", "w8", "w9"}; !slices.Equal(got, want) {
			t.Errorf("applied %q, want %q", got, want)
		}
	})
}

// A slow apply loop stops the intake; the queue fills and refuses; when it
// goes on, everything kept is applied.
func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		defer c.close()
		m := c.members[1]
		c.propose(m, "a")
		m.node.cfg.MaxUnapplied = 10
		hold := make(chan struct{})
		m.mu.Lock()
		m.hold = hold
		m.mu.Unlock()
		var taken int
		var err error
		for ; taken < 100_000; taken++ {
			if err = m.node.Propose(0, make([]byte, 4<<10)); err != nil {
				break
			}
			if taken%100 == 0 {
				synctest.Wait()
			}
		}
		if !errors.Is(err, ErrOverloaded) {
			t.Fatalf("after %d proposals: %v", taken, err)
		}
		synctest.Wait()
		if st := m.node.Status(); st.Commit > st.Applied+10+300 { // one batch of 1 MiB may be under way
			t.Errorf("status %+v", st)
		}
		m.mu.Lock()
		m.hold = nil
		m.mu.Unlock()
		close(hold)
		c.eventually("all applied", func() bool { return len(m.state().data) >= taken+2 })
		if n, bytes := m.node.Waiting(); n != 0 || bytes != 0 {
			t.Errorf("%d proposals of %d bytes wait", n, bytes)
		}
	})
}

func TestTransferLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		defer c.close()
		lead := c.leader()
		to := c.members[lead.id%3+1]
		c.propose(lead, "a")
		term := lead.node.Status().Term
		must(t, lead.node.TransferLeader(to.id))
		for i := range 20 { // some of them while the transfer is under way
			must(t, lead.node.Propose(0, fmt.Append(nil, "t", i)))
		}
		c.eventually("transferred", func() bool { return to.node.Status().State == raft.StateLeader })
		c.eventually("applied", func() bool { return slices.Contains(lead.state().data, "t19") })
		c.same()
		if got := to.node.Status().Term; got != term+1 {
			t.Errorf("term %d after %d", got, term)
		}
		// A follower may ask, too.
		must(t, lead.node.TransferLeader(lead.id))
		c.eventually("back", func() bool { return lead.node.Status().State == raft.StateLeader })
	})
}

// A leader that is cut off steps down and says so; its term is told with it.
func TestOnLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		defer c.close()
		old := c.leader()
		c.isolate(old.id)
		next := c.leader(old.id)
		c.eventually("deposed", func() bool { return old.node.Status().Leader == 0 })
		c.isolate(0)
		c.leader()
		old.mu.Lock()
		defer old.mu.Unlock()
		var leaders []uint64
		for i, s := range old.leaders {
			leaders = append(leaders, s.Leader)
			if i > 0 && s.Term < old.leaders[i-1].Term {
				t.Errorf("terms went back: %+v", old.leaders)
			}
		}
		if n := len(leaders); n < 3 || leaders[n-1] != next.id || !slices.Contains(leaders, old.id) || !slices.Contains(leaders, 0) {
			t.Errorf("leaders told: %v", leaders)
		}
	})
}
