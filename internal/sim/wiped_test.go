package sim

import (
	"context"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/pkg/vfs"
)

// TestWipedMember loses all files of a member and starts it again under its old name. It has forgotten its votes and what it
// acknowledged, so it must not go on: the leader that knows what it had makes it stop, with a message that says what to do, and the
// others serve. Runs with faults have no wiped members: a leader elected later does not know, and would take it for one that lags.
func TestWipedMember(t *testing.T) {
	dir, remove, err := TempDir()
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	synctest.Test(t, func(t *testing.T) {
		shape := newShape(rand.New(rand.NewPCG(1, 1)), 3)
		shape.slowDisk, shape.slowRemoval = 0, 0
		c, err := newCluster(1, shape, dir)
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		if !c.found() {
			t.Fatal(c.violation)
		}
		for range 5 {
			putAt(t, c, 0)
		}
		lost := c.members[0]
		if c.leader().ID() == lost.id {
			lost = c.members[1]
		}
		lost.stop()
		lost.mem = vfs.NewMem()
		if err := os.RemoveAll(lost.dataDir(lost.lives)); err != nil {
			t.Fatal(err)
		}
		if err := lost.start(); err != nil {
			t.Fatal(err)
		}
		n, _ := lost.live()
		lost.mu.Lock()
		lost.sick = true // it may end
		lost.mu.Unlock()
		select {
		case <-n.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("the member goes on")
		}
		if err := n.Err(); err == nil || !strings.Contains(err.Error(), "remove the member and add it anew with an empty data directory") {
			t.Errorf("it ended with: %v", err)
		}
		putAt(t, c, c.index[c.leader().ID()])
		if c.failed() {
			t.Error(c.violation)
		}
	})
}

// putAt puts a key at a member.
func putAt(t *testing.T, c *cluster, i int) {
	t.Helper()
	n, life := c.members[i].live()
	ctx, cancel := context.WithTimeout(life, 5*time.Second)
	defer cancel()
	if o := c.do(ctx, 1, i, n, request{then: []action{{kind: put, key: "r/0", value: "v"}}}); !o.known {
		t.Fatal(o)
	}
}
