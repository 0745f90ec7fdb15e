package server

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coordd/coordd/pkg/vfs"
	"github.com/coordd/coordd/wal"
)

// openErr opens member i of a cluster that must not open, and returns the error.
func openErr(t *testing.T, cfg Config) string {
	t.Helper()
	n, err := Open(t.Context(), cfg)
	if err == nil {
		n.Close()
		t.Fatal("opened")
	}
	return err.Error()
}

// However far a first start gets before the disk refuses, the next one founds
// the member as if nothing had been.
func TestFoundingCutShort(t *testing.T) {
	for after := range 40 {
		c := newCluster(t, 1)
		plan := new(vfs.Plan)
		hits := plan.Add(vfs.Fault{Op: vfs.OpCreate | vfs.OpWrite | vfs.OpSync | vfs.OpSyncDir | vfs.OpRename | vfs.OpPreallocate, After: after, Err: syscall.ENOSPC})
		c.cfgs[0].FS = vfs.WithFaults(vfs.OS(), plan)
		n, err := Open(t.Context(), c.cfgs[0])
		if err == nil { // far enough; it may still fail later
			n.Close()
		} else if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("after %d operations: %v", after, err)
		}
		if hits() == 0 {
			return
		}
		plan.Clear()
		c.cfgs[0].PeerListeners = nil
		c.ready(c.start(0))
		put(t, c.nodes[0], "k", "v")
		c.stop(0)
		c.ready(c.start(0))
		if got := get(t, c.nodes[0], "k", false); got != "v" {
			t.Fatalf("after %d operations: %q", after, got)
		}
		c.stop(0)
	}
}

// What a founding makes is durable with all directories above it: a power cut that takes every name
// away that was not synced leaves the log of what was acknowledged.
func TestFoundingSurvivesPowerCut(t *testing.T) {
	c := newCluster(t, 1)
	disk := vfs.NewMem()
	c.cfgs[0].FS = disk
	c.ready(c.start(0))
	put(t, c.nodes[0], "k", "v")
	if after := disk.Crash(nil); !wal.Exists(after, c.cfgs[0].walDir()) {
		t.Errorf("after a power cut there is no log in %s", c.cfgs[0].walDir())
	}
}

// A disk that fails under a running member ends it with an error that names the
// file, and what was acknowledged is there afterwards.
func TestDiskFailsWhileRunning(t *testing.T) {
	c := newCluster(t, 1)
	plan := new(vfs.Plan)
	c.cfgs[0].FS = vfs.WithFaults(vfs.OS(), plan)
	c.run()
	n := c.nodes[0]
	rev := put(t, n, "k", "acknowledged")
	plan.Add(vfs.Fault{Op: vfs.OpSync, Err: syscall.EIO})
	if _, err := n.Put(within(t, testWait), putRequest("k", "lost")); err == nil {
		t.Error("a write was acknowledged that is not on disk")
	}
	select {
	case <-n.Done():
	case <-within(t, testWait).Done():
		t.Fatal("the member runs on")
	}
	if err := n.Close(); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), filepath.Join("member", "wal")) {
		t.Errorf("the member ended with: %v", err)
	}
	plan.Clear()
	c.nodes[0], c.cfgs[0].PeerListeners = nil, nil
	c.ready(c.start(0))
	if got := get(t, c.nodes[0], "k", false); got != "acknowledged" && got != "lost" || c.nodes[0].Revision() < rev {
		t.Errorf("%q at revision %d", got, c.nodes[0].Revision())
	}
}

func TestDataDirectoryInUse(t *testing.T) {
	c := newCluster(t, 1).run()
	cfg := c.cfgs[0]
	cfg.PeerListeners = nil
	if got := openErr(t, cfg); !strings.Contains(got, "in use by another process") || !strings.Contains(got, cfg.DataDir) {
		t.Error(got)
	}
}

func TestWrongConfiguration(t *testing.T) {
	base := newCluster(t, 1).cfgs[0]
	base.PeerListeners = nil
	for want, change := range map[string]func(*Config){
		"has no name":                         func(c *Config) { c.Name = "" },
		"no data directory":                   func(c *Config) { c.DataDir = "" },
		"at least 5 heartbeats":               func(c *Config) { c.ElectionTicks = 3 },
		"does not name this member \"other\"": func(c *Config) { c.Name = "other" },
		"make them the same":                  func(c *Config) { c.PeerURLs = []string{"http://127.0.0.1:9"} },
		"not of the form name=url":            func(c *Config) { c.InitialCluster = "m1" },
		"is not there yet":                    func(c *Config) { c.NewCluster = false },
		"cannot make the data directory":      func(c *Config) { c.DataDir = filepath.Join(os.DevNull, "x") },
	} {
		cfg := base
		change(&cfg)
		if got := openErr(t, cfg); !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("error is %q, want one line with %q", got, want)
		}
	}
}

// A data file without its log, and a log without its data file, are refused: to
// go on with either would lose acknowledged writes in silence.
func TestHalfADataDirectory(t *testing.T) {
	for _, gone := range []string{"wal", "snap/db"} {
		c := newCluster(t, 1).run()
		put(t, c.nodes[0], "k", "v")
		c.stop(0)
		if err := os.RemoveAll(filepath.Join(c.cfgs[0].memberDir(), gone)); err != nil {
			t.Fatal(err)
		}
		if got := openErr(t, c.cfgs[0]); !strings.Contains(got, c.cfgs[0].DataDir) || !strings.Contains(got, "restore") {
			t.Errorf("without %s: %s", gone, got)
		}
	}
}
