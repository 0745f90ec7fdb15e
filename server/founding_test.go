package server

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/coordd/coordd/peer"
)

// wipe takes away all files of member i, which has stopped.
func (c *cluster) wipe(i int) {
	c.t.Helper()
	if err := os.RemoveAll(c.cfgs[i].DataDir); err != nil {
		c.t.Fatal(err)
	}
}

// refused starts member i and waits for it to end by itself, for the reason that it has taken part before.
func (c *cluster) refused(i int) {
	c.t.Helper()
	n := c.start(i)
	select {
	case <-n.Done():
	case <-n.Ready():
		c.t.Fatal("a member that has lost its files goes on")
	case <-time.After(testWait):
		c.t.Fatal("it does not end")
	}
	if err := n.Close(); err == nil || !strings.Contains(err.Error(), "has taken part in this cluster before") || !strings.Contains(err.Error(), c.cfgs[i].DataDir) {
		c.t.Errorf("it ended with: %v", err)
	}
	c.nodes[i], c.cfgs[i].PeerListeners = nil, nil
}

// waiting checks that member i, which is not sure, takes no part for some elections.
func (c *cluster) waiting(i int) {
	c.t.Helper()
	select {
	case <-c.nodes[i].part:
		c.t.Error("it takes part")
	case <-c.nodes[i].Done():
		c.t.Errorf("it ended: %v", c.nodes[i].Err())
	case <-time.After(10 * c.nodes[i].ElectionTimeout()):
	}
}

// A member that lost its files says so and ends, at each start, whether there is a leader that knows it or only another
// member; and a cluster goes on with the others.
func TestWipedMemberTakesNoPart(t *testing.T) {
	c := newCluster(t, 3).run()
	put(t, c.nodes[0], "k", "v")
	c.stop(2)
	c.wipe(2)
	c.refused(2)
	c.refused(2)
	put(t, c.nodes[0], "k", "w")
	c.stop(0) // who is left knows, and has no leader
	c.refused(2)
	c.ready(c.start(0))
	if got := get(t, c.nodes[1], "k", false); got != "w" {
		t.Errorf("read %q", got)
	}
}

// A cluster begins with a majority, and who comes late takes part as soon as a leader says that it is new; without
// a leader it waits for one.
func TestLateFounder(t *testing.T) {
	c := newCluster(t, 3)
	c.start(0)
	c.waiting(0)
	c.start(1)
	c.ready(c.nodes[0])
	c.ready(c.nodes[1])
	put(t, c.nodes[0], "k", "v")
	c.stop(1)
	c.start(2)
	c.waiting(2)
	c.start(1)
	c.ready(c.nodes[1])
	c.ready(c.nodes[2])
	if got := get(t, c.nodes[2], "k", false); got != "v" {
		t.Errorf("read %q", got)
	}
}

// A member that found others as new as itself and then held nothing yet asks anew when it is started again, and goes on.
func TestFounderStartedAgain(t *testing.T) {
	c := newCluster(t, 3)
	c.start(0)
	c.waiting(0)
	c.stop(0)
	c.run()
	for i := range c.nodes {
		c.stop(i)
	}
	c.run()
	put(t, c.nodes[0], "k", "v")
}

// A member of another cluster at the address of one of ours is no voice.
func TestFounderBesideAnotherCluster(t *testing.T) {
	c := newCluster(t, 3)
	c.cfgs[1].ClusterToken = "another"
	c.start(0)
	c.start(1)
	c.waiting(0)
	c.waiting(1)
}

// A member whose peers' addresses lead back to itself does not take its own answers for theirs.
func TestFounderThatFindsItself(t *testing.T) {
	c := newCluster(t, 3)
	own := strings.TrimPrefix(c.cfgs[0].PeerURLs[0], "http://")
	c.cfgs[0].PeerDialer = func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", own)
	}
	c.start(0)
	c.waiting(0)
}

// The rules by themselves, in the order in which they decide.
func TestJudge(t *testing.T) {
	n := &Node{cfg: Config{Name: "m", DataDir: "d"}, id: 1}
	for name, tc := range map[string]struct {
		others       []standing
		done, barred bool
	}{
		"nobody answers":                          {others: []standing{silent, silent}},
		"two of three are new":                    {others: []standing{alike, silent}, done: true},
		"two of five are new":                     {others: []standing{alike, silent, silent, silent}},
		"three of five are new":                   {others: []standing{alike, alike, silent, silent}, done: true},
		"one has data, a majority is new":         {others: []standing{unsure, alike}},
		"one of five has data, all else is new":   {others: []standing{unsure, alike, alike, alike}},
		"a leader says so, one has data":          {others: []standing{unsure, unknown}, done: true},
		"one knows it, the others are new":        {others: []standing{alike, known}, done: true, barred: true},
		"one knows it, another's leader does not": {others: []standing{unknown, known}, done: true, barred: true},
	} {
		var opinions []opinion
		for _, s := range tc.others {
			opinions = append(opinions, opinion{standing: s, why: "says so"})
		}
		if done, err := n.judge(opinions); done != tc.done || (err != nil) != tc.barred {
			t.Errorf("%s: decided %v, %v", name, done, err)
		}
	}
}

// deaf is a raft that gets no entries until it hears.
type deaf struct {
	peer.Raft
	hears *atomic.Bool
}

func (d deaf) Step(msgs []*raftpb.Message) {
	if !d.hears.Load() {
		msgs = slices.DeleteFunc(msgs, func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgApp })
	}
	d.Raft.Step(msgs)
}

// TestPublishedMeansStored: nobody knows a member by its name before its log shows that it takes part, though it knows the leader.
func TestPublishedMeansStored(t *testing.T) {
	c := newCluster(t, 3)
	var hears atomic.Bool
	c.cfgs[2].NewTransport = func(p peer.Config) (Transport, error) {
		p.Raft = deaf{p.Raft, &hears}
		return peer.New(p)
	}
	c.start(0)
	c.start(1)
	c.ready(c.nodes[0])
	c.ready(c.nodes[1])
	late := c.start(2)
	for changed := late.leadership.changed(); late.Leader() == 0; changed = late.leadership.changed() {
		select {
		case <-changed:
		case <-time.After(testWait):
			t.Fatal("it hears of no leader")
		}
	}
	select {
	case <-late.Ready():
		t.Error("it is ready with nothing in its log")
	case <-time.After(5 * late.ElectionTimeout()):
	}
	if m := c.nodes[0].memberOf(late.ID()); m.Name != "" {
		t.Errorf("it is known as %s and has nothing in its log", m.Name)
	}
	hears.Store(true)
	c.ready(late)
}
