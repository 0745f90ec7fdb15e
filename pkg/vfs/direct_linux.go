package vfs

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// direct is a second handle of a file, whose writes go past the page cache (O_DIRECT) and come back when they are durable (O_DSYNC): one
// call, after which the kernel need not look for pages to write, and has the disk flush its cache as soon as the write is done.
// It is opened by the first WriteSync that can use it.
type direct struct {
	mu    sync.Mutex // guards all below
	tried bool
	file  *os.File // nil: not tried, or the system cannot do it
}

// WriteSync implements File.
func (f *osFile) WriteSync(p []byte, off int64) (int, error) {
	if f.readOnly || !aligned(p, off) || f.unsynced.Load() {
		return f.writeThenSync(p, off)
	}
	d := f.direct.handle(f.File)
	if d == nil {
		return f.writeThenSync(p, off)
	}
	n, err := d.WriteAt(p, off)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, os.ErrClosed) {
		// The file system has opened the file so, but wants larger blocks (or another write has found that out, or the file
		// is closed). The disk has refused nothing.
		f.direct.giveUp()
		return f.writeThenSync(p, off)
	}
	return n, err
}

// handle returns the second handle of file, nil if there can be none. The file may have another name by now, or none.
func (d *direct) handle(file *os.File) *os.File {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tried {
		return d.file
	}
	d.tried = true
	raw, err := file.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) { // it fails with a closed file, as will the write that follows
		if got, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_WRONLY|unix.O_DIRECT|unix.O_DSYNC, 0); err == nil {
			d.file = got
		}
	})
	return d.file
}

// giveUp closes the second handle, for good.
func (d *direct) giveUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file != nil {
		_ = d.file.Close() // each write has told how it went
		d.file = nil
	}
}

func (f *osFile) Close() error {
	f.direct.giveUp()
	return f.File.Close()
}
