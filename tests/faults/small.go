package faults

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/coordd/coordd/tests/cluster"
)

// SmallDisk is a file system in memory that holds the data of one member and can be made full.
type SmallDisk struct {
	member *cluster.Member
	dir    string
}

// room is the size of a small disk that is not full.
const room = "2g"

// NewSmallDisk puts the data of a member, which has not been started, on a small disk. It gives nil, and logs why, where none can be
// had. It ends with the test.
func NewSmallDisk(t testing.TB, m *cluster.Member) *SmallDisk {
	t.Helper()
	d := &SmallDisk{m, t.TempDir()}
	if err := syscall.Mount("coordd-tests", d.dir, "tmpfs", 0, "size="+room); err != nil {
		t.Logf("no disk can be made full here, that needs root: %v", err)
		return nil
	}
	t.Cleanup(func() {
		m.Kill()
		if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", d.dir, err)
		}
	})
	m.Dir = filepath.Join(d.dir, "data")
	return d
}

// index is the number of the member.
func (d *SmallDisk) index(c *cluster.Cluster) int { return slices.Index(c.Members, d.member) }

// Fill leaves no room.
func (d *SmallDisk) Fill() error {
	for try := 0; ; try++ {
		var st syscall.Statfs_t
		if err := syscall.Statfs(d.dir, &st); err != nil {
			return err
		}
		used := (st.Blocks - st.Bfree) * uint64(st.Bsize)
		err := d.resize(fmt.Sprint(used))
		if err == nil || try == 20 { // more may have come to be used meanwhile
			return err
		}
	}
}

// Empty gives all room back.
func (d *SmallDisk) Empty() error { return d.resize(room) }

func (d *SmallDisk) resize(size string) error {
	return syscall.Mount("coordd-tests", d.dir, "tmpfs", syscall.MS_REMOUNT, "size="+size)
}
