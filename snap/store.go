package snap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	iofs "io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coordd/coordd/pkg/vfs"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrNotFound means that the store has no snapshot of that position.
	ErrNotFound = errors.New("snapshot not found")
	// ErrBusy means that a snapshot of the same index is being received.
	ErrBusy = errors.New("a snapshot of this index is being received")
)

const (
	fileSuffix = ".snap.db"
	metaSuffix = ".snap.meta"
	tempSuffix = ".tmp"
	metaBytes  = headerBytes + 8 // header, checksum of the file, checksum of all that
)

// Options are the parameters of a Store. The zero value is usable.
type Options struct {
	// UnsafeNoSync leaves out every flush, for tests and throw-away clusters.
	UnsafeNoSync bool
	// OnSync, if set, is told how long each flush of a file took, on the goroutine that receives it.
	OnSync func(took time.Duration)
}

// Store is a directory of snapshot files. Its methods may be called from any
// goroutine.
type Store struct {
	fs   vfs.FS
	dir  string
	opts Options

	mu        sync.Mutex
	receiving map[uint64]struct{} // indexes; guarded by mu
}

// Open opens the store in dir, making the directory (whose parent should be
// durable) when it is missing. It removes nothing: see CleanTemp.
func Open(fs vfs.FS, dir string, opts Options) (*Store, error) {
	s := &Store{fs: fs, dir: dir, opts: opts, receiving: make(map[uint64]struct{})}
	err := fs.MkdirAll(dir)
	if err == nil {
		err = s.syncDir(filepath.Dir(dir))
	}
	if err != nil {
		return nil, fmt.Errorf("snap: create directory %s: %w", dir, err)
	}
	return s, nil
}

// Name returns the file name of the snapshot at a raft index.
func Name(index uint64) string { return fmt.Sprintf("%016x%s", index, fileSuffix) }

// ParseName returns the raft index in a snapshot's file name. ok is false for
// names of other files.
func ParseName(name string) (index uint64, ok bool) {
	digits, found := strings.CutSuffix(name, fileSuffix)
	if !found || len(digits) != 16 {
		return 0, false
	}
	index, err := strconv.ParseUint(digits, 16, 64)
	return index, err == nil && Name(index) == name
}

func (s *Store) path(index uint64) string { return filepath.Join(s.dir, Name(index)) }

func (s *Store) metaPath(index uint64) string {
	return filepath.Join(s.dir, fmt.Sprintf("%016x%s", index, metaSuffix))
}

func (s *Store) syncDir(dir string) error {
	if s.opts.UnsafeNoSync {
		return nil
	}
	return s.fs.SyncDir(dir)
}

func (s *Store) syncFile(f vfs.File) error {
	if s.opts.UnsafeNoSync {
		return nil
	}
	begin := time.Now()
	err := f.Sync()
	if err == nil && s.opts.OnSync != nil {
		s.opts.OnSync(time.Since(begin))
	}
	return err
}

// Receive reads a stream made by Send, which must be the snapshot of pos with
// size bytes, and returns the path of its file. When it returns without error
// the file is whole and survives a power cut. After an error there may be a file
// of that name, if making its name durable failed, but never a part of one.
// A snapshot of the same index is replaced.
//
// It stops between chunks when ctx ends; to interrupt a blocked read, close what
// r stands on. Disk space for the whole file is set aside first, so that a
// full disk is found before the transfer.
func (s *Store) Receive(ctx context.Context, pos Position, size int64, r io.Reader) (path string, err error) {
	if err := s.claim(pos.Index); err != nil {
		return "", err
	}
	defer s.unclaim(pos.Index)
	if err := s.receive(ctx, Header{Position: pos, Size: size}, r); err != nil {
		return "", fmt.Errorf("snap: receive snapshot %d into %s: %w", pos.Index, s.dir, err)
	}
	return s.path(pos.Index), nil
}

func (s *Store) claim(index uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, busy := s.receiving[index]; busy {
		return fmt.Errorf("snap: index %d: %w: wait for it, or cancel it", index, ErrBusy)
	}
	s.receiving[index] = struct{}{}
	return nil
}

func (s *Store) unclaim(index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.receiving, index)
}

func (s *Store) receive(ctx context.Context, want Header, r io.Reader) error {
	got, err := ReadHeader(r)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%w: expected %d bytes at index %d of term %d, the stream has %d bytes at index %d of term %d", ErrDamaged,
			want.Size, want.Position.Index, want.Position.Term, got.Size, got.Position.Index, got.Position.Term)
	}
	index := want.Position.Index
	var crc uint32
	temp := s.path(index) + tempSuffix
	err = s.writeFile(temp, func(f vfs.File) error {
		if err := f.Preallocate(want.Size); err != nil {
			return err
		}
		crc, err = chunks(ctx, want, r, func(p []byte, off int64) error {
			_, err := f.WriteAt(p, off)
			return err
		})
		return err
	})
	if err != nil {
		return err
	}
	// An older file of this index must not be taken for the new one, so it is
	// gone for good before the description changes.
	err = s.removeOne(index)
	if err == nil {
		err = s.writeMeta(want, crc)
	}
	if err == nil {
		err = s.fs.Rename(temp, s.path(index))
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(s.fs.Remove(temp)))
	}
	return s.syncDir(s.dir)
}

// writeFile makes a durable file of what fill writes; after an error there is none.
func (s *Store) writeFile(name string, fill func(vfs.File) error) error {
	f, err := s.fs.Create(name)
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil {
		err = s.syncFile(f)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(s.fs.Remove(name)))
	}
	return nil
}

// writeMeta makes the description of a snapshot durable under its name.
func (s *Store) writeMeta(h Header, crc uint32) error {
	name := s.metaPath(h.Position.Index)
	b := binary.LittleEndian.AppendUint32(appendHeader(nil, h), crc)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	err := s.writeFile(name+tempSuffix, func(f vfs.File) error {
		_, err := f.WriteAt(b, 0)
		return err
	})
	if err == nil {
		err = s.fs.Rename(name+tempSuffix, name)
	}
	if err == nil {
		err = s.syncDir(s.dir)
	}
	return err
}

// readMeta reads the description of the snapshot at index.
func (s *Store) readMeta(index uint64) (h Header, crc uint32, err error) {
	name := s.metaPath(index)
	f, err := s.fs.Open(name)
	if err != nil {
		return h, 0, fmt.Errorf("snap: open %s: %w", name, err)
	}
	b := make([]byte, metaBytes)
	_, err = f.ReadAt(b, 0)
	if err := errors.Join(noEOF(err), f.Close()); err != nil {
		return h, 0, fmt.Errorf("snap: read %s: %w: remove the snapshot", name, err)
	}
	h, err = decodeHeader(b)
	if err == nil && binary.LittleEndian.Uint32(b[metaBytes-4:]) != crc32.Checksum(b[:metaBytes-4], castagnoli) {
		err = fmt.Errorf("%w: the checksum of its description does not match", ErrDamaged)
	}
	if err != nil {
		return h, 0, fmt.Errorf("snap: %s: %w: remove the snapshot", name, err)
	}
	return h, binary.LittleEndian.Uint32(b[headerBytes:]), nil
}

// Find returns the path of the snapshot at pos, whose size it has checked but
// not its content. Without one it returns ErrNotFound, with one of the same
// index that is of another term or size ErrDamaged.
func (s *Store) Find(pos Position) (path string, err error) {
	path, _, _, err = s.find(pos)
	return path, err
}

func (s *Store) find(pos Position) (path string, h Header, crc uint32, err error) {
	path = s.path(pos.Index)
	info, err := s.fs.Stat(path)
	if errors.Is(err, iofs.ErrNotExist) {
		return "", h, 0, fmt.Errorf("snap: %s: %w", path, ErrNotFound)
	}
	if err != nil {
		return "", h, 0, fmt.Errorf("snap: look at %s: %w", path, err)
	}
	h, crc, err = s.readMeta(pos.Index)
	if err != nil {
		return "", h, 0, err
	}
	if h.Position != pos || h.Size != info.Size {
		return "", h, 0, fmt.Errorf("snap: %s: %w: expected term %d and %d bytes, found term %d and %d bytes: remove the snapshot", path, ErrDamaged,
			pos.Term, h.Size, h.Position.Term, info.Size)
	}
	return path, h, crc, nil
}

// Verify reads the whole snapshot at pos and checks that it holds the bytes that
// were received, so it fails once somebody has changed the file. Errors as of
// Find, or ctx's.
func (s *Store) Verify(ctx context.Context, pos Position) error {
	path, h, want, err := s.find(pos)
	if err != nil {
		return err
	}
	f, err := s.fs.Open(path)
	if err != nil {
		return fmt.Errorf("snap: open %s: %w", path, err)
	}
	crc, err := checksum(ctx, f, h.Size)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("snap: verify %s: %w", path, err)
	}
	if crc != want {
		return fmt.Errorf("snap: %s: %w: expected checksum %08x, found %08x: remove the snapshot", path, ErrDamaged, want, crc)
	}
	return nil
}

func checksum(ctx context.Context, r io.ReaderAt, size int64) (crc uint32, err error) {
	buf := make([]byte, chunkBytes)
	for off := int64(0); off < size; off += chunkBytes {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		p := buf[:min(chunkBytes, size-off)]
		if n, err := r.ReadAt(p, off); n < len(p) {
			return 0, noEOF(err)
		}
		crc = crc32.Update(crc, castagnoli, p)
	}
	return crc, nil
}
