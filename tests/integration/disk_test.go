package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coordd/tests/cluster"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// mount mounts a file system in memory of some size. It ends with the test.
func mount(t *testing.T, size string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("coordd-tests", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("this needs a small file system, and mounting one is not permitted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

func remount(t *testing.T, dir string, flags uintptr, data string) {
	t.Helper()
	if err := syscall.Mount("coordd-tests", dir, "tmpfs", syscall.MS_REMOUNT|flags, data); err != nil {
		t.Skipf("remount: %v", err)
	}
}

// A disk that gets full ends the member with one line; what it has acknowledged is there when there is room again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := mount(t, "100m") // a segment of the log takes 64 MB at once
	m := cluster.NewMember(t, "m")
	m.Dir = filepath.Join(dir, "data")
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	if err := m.WaitReady(cluster.StartLimit); err != nil {
		t.Fatalf("100 MB do not suffice to begin with: %v", err)
	}
	c := memberClient(t, m)
	value := strings.Repeat("v", 100_000)
	acked := 0
	for m.Running() && acked < 2000 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := c.Put(ctx, fmt.Sprintf("full/%05d", acked), value)
		cancel()
		if err != nil {
			break
		}
		acked++
	}
	code, err := m.Wait(startLimit)
	if err != nil {
		t.Fatalf("after %d writes the disk is full: %v", acked, err)
	}
	checkRefusal(t, code, m.Log(), dir, "no space left on device", "make room")
	refusedFull(t, m, dir)
	remount(t, dir, 0, "size=400m")
	m.Restart(t)
	got := must(memberClient(t, m).Get(limited(t), "full/", clientv3.WithPrefix(), clientv3.WithKeysOnly()))(t)
	// The last one may be there without having been acknowledged.
	if len(got.Kvs) < acked || len(got.Kvs) > acked+1 || acked == 0 {
		t.Errorf("%d writes were acknowledged, %d are there", acked, len(got.Kvs))
	}
	if err := m.Crashed(); err != nil {
		t.Error(err)
	}
}

// refusedFull starts the member while the disk is still full: it says so and ends, or runs, if a bit of room is left.
func refusedFull(t *testing.T, m *cluster.Member, dir string) {
	t.Helper()
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	if err := m.WaitReady(cluster.StartLimit); err == nil {
		m.Kill()
		return
	}
	code, err := m.Wait(startLimit)
	if err != nil {
		t.Fatal(err)
	}
	checkRefusal(t, code, m.Log(), dir, "no space left on device", "make room")
}

// A disk without room for the first files is told of at once, and is no harm once there is room.
func TestFullFromTheStart(t *testing.T) {
	t.Parallel()
	for _, size := range []string{"12k", "32k", "24m"} {
		t.Run(size, func(t *testing.T) {
			dir := mount(t, size)
			m := cluster.NewMember(t, "m")
			m.Dir = filepath.Join(dir, "data")
			refused(t, m.Args(), dir, "no space left on device", "make room")
			remount(t, dir, 0, "size=200m")
			m.Restart(t)
		})
	}
}

func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	dir := mount(t, "64m")
	m := cluster.NewMember(t, "m")
	m.Dir = filepath.Join(dir, "data")
	remount(t, dir, syscall.MS_RDONLY, "")
	refused(t, m.Args(), dir, "read-only file system", "--data-dir")
	remount(t, dir, 0, "")
	m.Restart(t)
	must(memberClient(t, m).Put(limited(t), "k", "v"))(t)
	m.Stop()
	remount(t, dir, syscall.MS_RDONLY, "")
	refused(t, m.Args(), dir, "read-only file system")
	remount(t, dir, 0, "")
	m.Restart(t)
	if got := must(memberClient(t, m).Get(limited(t), "k"))(t); len(got.Kvs) != 1 {
		t.Error("a key is lost")
	}
}

// A limit on the size of files, as ulimit -f sets it, is a full disk too.
func TestFileSizeLimit(t *testing.T) {
	t.Parallel()
	m := cluster.NewMember(t, "m")
	got := cluster.RunCommand(t, startLimit, "sh", append([]string{"-c", `ulimit -f 8; exec "$0" "$@"`, cluster.Program(t)}, append(m.Args(), "--log-level", "fatal")...)...)
	checkRefusal(t, got.Code, got.Stderr, m.Dir, "file too large")
	m.Restart(t) // nothing was spoilt
}
