package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// flush uses fdatasync: it flushes content and length but not the times, which
// saves a journal write when neither length nor blocks have changed.
func (f *osFile) flush() error {
	return f.control("fdatasync", func(fd int) error { return unix.Fdatasync(fd) })
}

func (f *osFile) Preallocate(size int64) error {
	f.unsynced.Store(true)
	err := f.control("fallocate", func(fd int) error { return unix.Fallocate(fd, 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return f.extend(size)
	}
	return err
}

// control runs a system call on the descriptor, again when a signal cut it short.
func (f *osFile) control(op string, call func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	err = raw.Control(func(fd uintptr) {
		for {
			if callErr = call(int(fd)); !errors.Is(callErr, unix.EINTR) {
				return
			}
		}
	})
	if err == nil {
		err = callErr
	}
	if err != nil {
		return pathErr(op, f.Name(), err)
	}
	return nil
}

func syncDirHandle(d *os.File) error { return d.Sync() }
