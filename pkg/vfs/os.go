package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
)

const (
	filePerm = 0o600
	dirPerm  = 0o700
)

// OS returns the operating system's file system. New files are readable by
// their owner alone (0600), new directories likewise (0700).
func OS() FS { return osFS{} }

type osFS struct{}

// osFile is an open file. Its own WriteAt and the like note what a direct write does not make durable.
type osFile struct {
	*os.File
	readOnly bool
	unsynced atomic.Bool // something was changed since the last Sync
	direct   direct
}

var (
	_ FS   = osFS{}
	_ File = (*osFile)(nil)
)

func (osFS) Open(name string) (File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return &osFile{File: f, readOnly: true}, nil
}

func (osFS) Create(name string) (File, error) {
	return wrapOS(os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, filePerm))
}

func (osFS) OpenReadWrite(name string) (File, error) {
	return wrapOS(os.OpenFile(name, os.O_RDWR, 0))
}

func wrapOS(f *os.File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return &osFile{File: f}, nil
}

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	f.unsynced.Store(true)
	return f.File.WriteAt(p, off)
}

func (f *osFile) Truncate(size int64) error {
	f.unsynced.Store(true)
	return f.File.Truncate(size)
}

// Sync implements File. What is changed meanwhile is left to the next.
func (f *osFile) Sync() error {
	f.unsynced.Store(false)
	if err := f.flush(); err != nil {
		f.unsynced.Store(true)
		return err
	}
	return nil
}

// writeThenSync is WriteSync where there is nothing quicker.
func (f *osFile) writeThenSync(p []byte, off int64) (int, error) {
	n, err := f.WriteAt(p, off)
	if err != nil {
		return n, err
	}
	return n, f.Sync()
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }

func (osFS) Remove(name string) error { return os.Remove(name) }

func (osFS) MkdirAll(dir string) error { return os.MkdirAll(dir, dirPerm) }

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries)) // ReadDir sorts
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) Stat(name string) (Info, error) {
	st, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	if st.IsDir() {
		return Info{Dir: true}, nil
	}
	return Info{Size: st.Size()}, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = syncDirHandle(d)
	return errors.Join(err, d.Close())
}

// osLock is a held lock. Closing the file drops the lock. The file is left
// behind: removing it would let a third process lock a new file of that name
// while a second one still waits on the old.
type osLock struct{ *os.File }

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, filePerm)
	if err != nil {
		return nil, err
	}
	if err := lockHandle(f); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), f.Close())
	}
	return osLock{f}, nil
}

func (f *osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// extend is Preallocate for file systems that cannot set space aside.
func (f *osFile) extend(size int64) error {
	have, err := f.Size()
	if err != nil {
		return err
	}
	if have >= size {
		return nil
	}
	return f.Truncate(size)
}

func pathErr(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: filepath.Clean(name), Err: err}
}
