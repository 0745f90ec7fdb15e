package server

import (
	"os"
	"strings"
	"testing"
	"time"
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
	case <-time.After(10 * c.cfgs[i].electionTimeout()):
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

// TestPublishedMeansStored: a member is known by its name only when its log would show that it took part.
func TestPublishedMeansStored(t *testing.T) {
	c := newCluster(t, 3).run()
	for i := range c.nodes {
		c.stop(i)
	}
	for i := range c.nodes {
		c.start(i)
		if c.nodes[i].fresh {
			t.Errorf("member %d has published itself and counts as fresh", i)
		}
	}
}
