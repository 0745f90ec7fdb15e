package ctl

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/concurrency"
)

// background runs a command until stop is called; first is closed at its first line of output. end gives the output and the code.
func (tl *tool) background(first int, args ...string) (begun <-chan struct{}, stop context.CancelFunc, end func() (string, string, int)) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	seen, done := make(chan struct{}), make(chan struct{})
	var out, errOut string
	var code int
	go func() {
		defer close(done)
		out, errOut, code = tl.runUntil(ctx, func() {
			select {
			case <-seen:
			default:
				close(seen)
			}
		}, strings.Repeat(".", first), args...)
	}()
	tl.t.Cleanup(func() { cancel(); <-done })
	return seen, cancel, func() (string, string, int) { <-done; return out, errOut, code }
}

// wait waits until there are n keys below a prefix.
func (tl *tool) wait(prefix string, n int64) {
	tl.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	w := tl.node.Client().Watch(ctx, prefix, client.WithPrefix(), client.WithCreatedNotify())
	defer w.Close()
	for {
		if _, err := w.Next(ctx); err != nil {
			tl.t.Fatalf("waiting for %d keys below %s: %v", n, prefix, err)
		}
		r, err := tl.node.Client().Get(ctx, prefix, client.WithPrefix(), client.WithCountOnly())
		if err != nil {
			tl.t.Fatal(err)
		}
		if r.Count == n {
			return
		}
	}
}

func TestLockCommand(t *testing.T) {
	tl := newTool(t)
	begun, stop, end := tl.background(1, "lock", "m")
	<-begun
	tl.wait("m/", 1)
	_, _, second := tl.background(1, "lock", "m", "--ttl", "5", "--", "sh", "-c", "echo ran; exit 7")
	tl.wait("m/", 2)

	out, errOut, code := tl.run(context.Background(), "", "lock", "list", "m")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || len(lines) != 2 || !strings.HasPrefix(lines[0], "holder m/") || !strings.HasPrefix(lines[1], "waiter m/") ||
		!strings.HasSuffix(lines[0], "/10s") || !strings.HasSuffix(lines[1], "/5s") {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
	for _, format := range []string{"table", "fields", "json", "protobuf"} {
		if out, errOut, code := tl.run(context.Background(), "", "lock", "list", "m", "-w", format); code != 0 || !strings.Contains(out, "m/") && format != "json" {
			t.Errorf("%s: exit %d, %s%s", format, code, out, errOut)
		}
	}
	if out, _, code := tl.run(context.Background(), "", "lock", "list", "none"); out != "nobody holds it\n" || code != 0 {
		t.Errorf("exit %d, %q", code, out)
	}

	stop()
	if out, _, code := end(); code != exitInterrupted || !strings.HasPrefix(out, "m/") || strings.Count(out, "\n") != 2 {
		t.Errorf("exit %d, %q", code, out)
	}
	if out, errOut, code := second(); code != 7 || out != "ran\n" || errOut != "" {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
	tl.wait("m/", 0)
	for _, args := range [][]string{{"lock"}, {"lock", "m", "--ttl", "0"}, {"lock", "m", "--no-such-flag"}} {
		if _, _, code := tl.run(context.Background(), "", args...); code != exitArguments {
			t.Errorf("%q: exit %d", args, code)
		}
	}
	if _, errOut, code := tl.run(context.Background(), "", "lock", "m", "/no/such/program"); code != exitIO || !strings.Contains(errOut, "/no/such/program") {
		t.Errorf("exit %d, %s", code, errOut)
	}
	if _, _, code := tl.run(context.Background(), "", "lock", "--", "list", "true"); code != 0 {
		t.Errorf("a lock named list: exit %d", code)
	}
}

// The command sees what it holds.
func TestLockEnvironment(t *testing.T) {
	tl := newTool(t)
	script := `echo "$ETCD_LOCK_KEY $COORDD_LOCK_KEY $COORDD_LOCK_TOKEN $COORDD_LOCK_LEASE $ETCD_LOCK_REV"`
	out, errOut, code := tl.run(context.Background(), "", "lock", "m", "sh", "-c", script)
	var key, same, lease string
	var token, rev int64
	if _, err := fmt.Sscan(out, &key, &same, &token, &lease, &rev); err != nil || code != 0 {
		t.Fatalf("exit %d, %q, %s", code, out, errOut)
	}
	if key != same || key != "m/"+lease || token <= 1 || rev < token {
		t.Errorf("environment %q", out)
	}
}

// A lock that is lost takes its command with it, and what the command has started.
func TestLockLost(t *testing.T) {
	tl := newTool(t)
	pipe := filepath.Join(tl.dir, "alive")
	// The inner shell holds the output open, which is waited for as long as stopTime if it lives on.
	start := time.Now()
	begun, _, end := tl.background(1, "lock", "m", "sh", "-c", "sh -c 'echo begun; while :; do sleep 60; done'; touch "+pipe)
	<-begun
	ctx := context.Background()
	if r, err := tl.node.Client().Delete(ctx, "m/", client.WithPrefix()); err != nil || r.Deleted != 1 {
		t.Fatalf("%v %v", r, err)
	}
	out, errOut, code := end()
	if code != exitError || out != "begun\n" || !strings.Contains(errOut, "was killed: session expired") {
		t.Errorf("exit %d, %q, %s", code, out, errOut)
	}
	if time.Since(start) >= stopTime {
		t.Error("what the command had started lived on")
	}
	if _, err := os.Stat(pipe); err == nil {
		t.Error("the command went on after the lock was lost")
	}
	begun, _, end = tl.background(1, "lock", "m")
	<-begun
	if r, err := tl.node.Client().Delete(ctx, "m/", client.WithPrefix()); err != nil || r.Deleted != 1 {
		t.Fatalf("%v %v", r, err)
	}
	if _, errOut, code := end(); code != exitError || !strings.Contains(errOut, "session expired") {
		t.Errorf("exit %d, %s", code, errOut)
	}
}

// An interrupt asks the command to end, and the lock is given back after that.
func TestLockInterrupted(t *testing.T) {
	tl := newTool(t)
	begun, stop, end := tl.background(1, "lock", "m", "sh", "-c", "trap 'echo cleaned; exit 0' TERM; echo begun; while :; do sleep 0.01; done")
	<-begun
	stop()
	if out, errOut, code := end(); code != exitInterrupted || out != "begun\ncleaned\n" {
		t.Errorf("exit %d, %q, %s", code, out, errOut)
	}
	tl.wait("m/", 0)
}

func TestElectCommand(t *testing.T) {
	tl := newTool(t)
	c := tl.node.Client()
	begun, stop, end := tl.background(1, "elect", "e", "me")
	<-begun
	heard, stopListening, listened := tl.background(1, "elect", "-l", "e")
	<-heard
	if l, err := concurrency.Observe(context.Background(), c, "e").Next(); err != nil || l.Leader.Value != "me" {
		t.Errorf("%+v %v", l, err)
	}
	stop()
	out, _, code := end()
	if code != exitInterrupted || !strings.HasPrefix(out, "e/") || !strings.HasSuffix(out, "\nme\n") {
		t.Errorf("exit %d, %q", code, out)
	}
	tl.wait("e/", 0)
	stopListening()
	if got, _, code := listened(); code != exitInterrupted || got != out {
		t.Errorf("exit %d, heard %q, want %q", code, got, out)
	}
	jsonBegun, stopJSON, jsonEnd := tl.background(1, "elect", "--listen", "e", "-w", "json")
	<-jsonBegun
	stopJSON()
	if got, _, _ := jsonEnd(); !strings.Contains(got, `"change":"vacant"`) {
		t.Errorf("heard %q", got)
	}
	for _, args := range [][]string{{"elect"}, {"elect", "e"}, {"elect", "-l", "e", "v"}} {
		if _, _, code := tl.run(context.Background(), "", args...); code != exitArguments {
			t.Errorf("%q: exit %d", args, code)
		}
	}
}
