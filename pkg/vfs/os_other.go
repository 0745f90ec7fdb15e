//go:build !linux

package vfs

import (
	"os"
	"runtime"
)

// direct is nothing here: WriteSync is two calls.
type direct struct{}

func (f *osFile) WriteSync(p []byte, off int64) (int, error) { return f.writeThenSync(p, off) }

// flush falls back to a full flush; on Darwin Go asks for F_FULLFSYNC.
func (f *osFile) flush() error { return f.File.Sync() }

// Preallocate only sets the length: space is not set aside here.
func (f *osFile) Preallocate(size int64) error { return f.extend(size) }

// syncDirHandle flushes a directory. Windows makes names durable by itself and
// refuses the call.
func syncDirHandle(d *os.File) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	return d.Sync()
}
