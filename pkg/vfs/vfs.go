package vfs

import (
	"errors"
	"io"
	"reflect"
)

// SectorSize is the number of bytes that a disk is assumed to write either
// wholly or not at all. Disks with larger sectors satisfy it too.
const SectorSize = 512

// BlockSize is the unit in which WriteSync is quick. Disks and file systems with larger blocks are served like others that cannot do better.
const BlockSize = 4096

// Aligned returns an empty slice with room for n bytes, whose memory begins at a multiple of BlockSize.
func Aligned(n int) []byte {
	b := make([]byte, n+BlockSize)
	skip := -int(reflect.ValueOf(b).Pointer()) & (BlockSize - 1)
	return b[skip : skip : skip+n]
}

// aligned tells whether WriteSync can be quick.
func aligned(p []byte, off int64) bool {
	return (off|int64(len(p))|int64(reflect.ValueOf(p).Pointer()))&(BlockSize-1) == 0
}

// ErrLocked is returned (wrapped) by FS.Lock when somebody else, in this
// process or another one, holds the lock.
var ErrLocked = errors.New("locked by another process")

// ErrClosed is returned (wrapped) by operations on a closed file of a file
// system that is not the operating system's.
var ErrClosed = errors.New("file already closed")

// Info is what is known about a name.
type Info struct {
	Size int64 // bytes; 0 for a directory
	Dir  bool
}

// FS is a file system. A missing name is reported as an error that matches
// io/fs.ErrNotExist, a full disk as one that matches syscall.ENOSPC.
type FS interface {
	// Open opens an existing file for reading.
	Open(name string) (File, error)
	// Create makes an empty file, or empties an existing one, and opens it for
	// reading and writing. The name is durable after SyncDir of its directory.
	Create(name string) (File, error)
	// OpenReadWrite opens an existing file for reading and writing.
	OpenReadWrite(name string) (File, error)
	// Rename gives a file another name in the same directory, replacing what
	// had that name. It is atomic, and durable after SyncDir.
	Rename(from, to string) error
	// Remove removes a file (not a directory). Open handles stay usable.
	Remove(name string) error
	// List returns the names, without directory, of what dir holds, sorted.
	List(dir string) ([]string, error)
	// MkdirAll makes a directory and its missing parents. It succeeds when the
	// directory exists. Each is durable after SyncDir of its own parent.
	MkdirAll(dir string) error
	// SyncDir makes the names in dir durable (not the content of its files).
	SyncDir(dir string) error
	// Stat tells the size and kind of a name.
	Stat(name string) (Info, error)
	// Lock takes the exclusive lock named by a file, making the file when it is
	// missing. It does not wait: when the lock is held it returns ErrLocked.
	// The lock ends with Close of what is returned, or with the process.
	Lock(name string) (io.Closer, error)
}

// File is an open file. WriteAt follows io.WriterAt: it returns an error when
// fewer bytes than given were written.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// WriteSync is WriteAt and then Sync, if the first succeeds: all that was written to the file by this handle is durable. It is
	// quicker than the two where off, the length and the memory are multiples of BlockSize (see Aligned) and the system can do
	// without its cache; nothing depends on that.
	WriteSync(p []byte, off int64) (n int, err error)
	// Sync makes the content and length of the file durable (fdatasync). After
	// an error nothing is known about unsynced bytes, and calling it again
	// proves nothing: a kernel may have dropped them.
	Sync() error
	// Truncate sets the length. Bytes gained read as zero.
	Truncate(size int64) error
	// Preallocate makes sure that the file is at least size bytes long and that
	// disk space is set aside for them where the file system can do that. Bytes
	// gained read as zero.
	Preallocate(size int64) error
	// Size returns the length in bytes.
	Size() (int64, error)
}
