package cluster_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coordd/tests/cluster"
)

func TestMain(m *testing.M) { cluster.Main(m) }

// What the other packages count on: members can be held, killed, stopped and started again, and that is noticed.
func TestProcesses(t *testing.T) {
	c := cluster.New(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.Etcd(t).Put(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	leader := c.Leader(t)
	leader.Pause()
	if !leader.Running() || !leader.Paused() {
		t.Error("the member that is held does not count as held")
	}
	if next := c.Leader(t); next == leader {
		t.Error("the leader still leads while it is held")
	}
	leader.Resume()
	leader.Kill()
	if leader.Running() || leader.Start() != nil || leader.WaitReady(cluster.StartLimit) != nil {
		t.Error("the member does not come back after SIGKILL")
	}
	if err := leader.Start(); err == nil {
		t.Error("one member runs twice")
	}
	if state := leader.Stop(); state == nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("stopped by SIGTERM it ends with %v", state)
	}
	if !strings.Contains(leader.Log(), "received signal; shutting down") {
		t.Errorf("its log does not tell of the signal:\n%s", leader.Log())
	}
	c.Start(t)
	if rev := c.SameHash(t, 10*time.Second); rev != 2 {
		t.Errorf("at revision %d after one put", rev)
	}
}

func TestCrash(t *testing.T) {
	for _, text := range []string{"panic: x\n\ngoroutine 1 [running]:", "fatal error: all goroutines are asleep"} {
		if cluster.Crash(text) == nil {
			t.Errorf("%q does not look like a crash", text)
		}
	}
	if err := cluster.Crash(`{"level":"info","msg":"ready"}`); err != nil {
		t.Error(err)
	}
}
