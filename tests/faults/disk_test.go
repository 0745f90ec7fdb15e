package faults

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coordd/tests/cluster"
)

// flush runs a program that flushes a file once.
func flush(t *testing.T, d *Disk, options ...string) (output string, took time.Duration, err error) {
	t.Helper()
	path, err := exec.LookPath("sync")
	if err != nil {
		t.Skip(err)
	}
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append(options, file)...)
	cmd.Env = os.Environ()
	started, err := d.Launch(cmd)
	if err != nil {
		t.Fatal(err)
	}
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	begin := time.Now()
	err = cmd.Start()
	started()
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	d.Wait()
	return out.String(), time.Since(begin), err
}

// Flushes of both kinds are counted, slowed and failed.
func TestDisk(t *testing.T) {
	if err := CanSlow(); err != nil {
		t.Skipf("the kernel does not let a process run behind a filter: %v", err)
	}
	for _, options := range [][]string{nil, {"-d"}} {
		d := &Disk{}
		if out, _, err := flush(t, d, options...); err != nil || d.Flushes() != 1 {
			t.Errorf("%v: %v after %d flushes: %s", options, err, d.Flushes(), out)
		}
		d.Slow(300 * time.Millisecond)
		if out, took, err := flush(t, d, options...); err != nil || took < 300*time.Millisecond {
			t.Errorf("%v: %v after %v: %s", options, err, took, out)
		}
		d.Slow(0)
		d.FailNext()
		if out, _, err := flush(t, d, options...); err == nil || !strings.Contains(out, "Input/output error") {
			t.Errorf("%v: a flush that fails ends with %v: %s", options, err, out)
		}
		if !d.Heal() {
			t.Error("it does not know that a flush has failed")
		}
		d.FailNext()
		if d.Heal() {
			t.Error("it says that a flush has failed before there was one")
		}
		if out, _, err := flush(t, d, options...); err != nil {
			t.Errorf("%v: healed, but %v: %s", options, err, out)
		}
	}
}

func TestSmallDisk(t *testing.T) {
	m := &cluster.Member{}
	d := NewSmallDisk(t, m)
	if d == nil {
		t.Skip("see above")
	}
	file := m.Dir + ".file"
	write := func() error { return os.WriteFile(file, make([]byte, 200_000), 0o600) }
	if err := write(); err != nil {
		t.Fatal(err)
	}
	if err := d.Fill(); err != nil {
		t.Fatal(err)
	}
	file += "2"
	if err := write(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("writing to a full disk: %v", err)
	}
	if err := d.Empty(); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Error(err)
	}
}
