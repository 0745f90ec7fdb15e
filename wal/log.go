package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/coordd/coordd/pkg/raftcodec"
	"github.com/coordd/coordd/pkg/vfs"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrCorrupt means that the log on disk is damaged in a way that a power
	// cut cannot cause: opening it would lose or invent entries. The text names
	// file, offset and what was expected. Nothing was changed.
	ErrCorrupt = errors.New("write-ahead log is damaged")
	// ErrInUse means that another process has the log open.
	ErrInUse = errors.New("write-ahead log is in use by another process")
	// ErrExists is returned by Create when the directory holds a log already.
	ErrExists = errors.New("write-ahead log exists already")
	// ErrNotContiguous is returned by Append for entries that would leave a gap
	// after the last one, are not consecutive, or lie at or before the position
	// of the last Reset. Nothing was written and the log stays usable.
	ErrNotContiguous = errors.New("entries do not follow the log")
	// ErrTooLarge is returned by Append for more than 1 GiB at once. Nothing was
	// written and the log stays usable.
	ErrTooLarge = errors.New("append is too large")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("write-ahead log is closed")
)

const (
	lockName = "lock"
	// keepBuffer bounds the memory kept between appends.
	keepBuffer = 4 << 20
)

// Metadata says whose log it is. It is given to Create and never changes.
type Metadata struct{ MemberID, ClusterID uint64 }

// Position is a place in the raft log.
type Position struct{ Index, Term uint64 }

// Options are the parameters of a Log. The zero value is usable.
type Options struct {
	// SegmentBytes is the size of a segment file; 0 means 64,000,000. It is
	// raised to at least 16 KiB and rounded up to whole pages of 4 KiB. An
	// append that does not fit gets a segment of its own size.
	SegmentBytes int64
	// UnsafeNoSync leaves out every flush: a power cut may lose or damage the
	// log, killing the process does not. For tests and throw-away clusters.
	UnsafeNoSync bool
	// OnSync, if set, is told how long each flush took, together with the write if both were asked for in one call, as
	// they mostly are. It is called with the log's lock held: it must be quick and must not call back.
	OnSync func(time.Duration)
	// OnWrite, if set, is told the number of bytes of each write and how long it took, likewise, with its flush.
	OnWrite func(bytes int, took time.Duration)
	// Logger gets rare events: a repaired tail, a segment that could not be
	// prepared ahead. nil means none.
	Logger *zap.Logger
}

func (o Options) withDefaults() Options {
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = defaultSegmentBytes
	}
	o.SegmentBytes = alignUp(max(o.SegmentBytes, minSegmentBytes), pageSize)
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

// hardState is raftpb.HardState without its pointers.
type hardState struct{ term, vote, commit uint64 }

// Log is an open write-ahead log. Its methods may be called from any goroutine;
// calls that write wait for each other. One goroutine of its own, at most, runs
// at times to prepare the next segment; Close waits for it.
type Log struct {
	fs   vfs.FS
	dir  string
	opts Options
	lock io.Closer

	// releaseMu serialises Release and Close. It is taken before mu.
	releaseMu turn

	// mu guards everything below.
	mu     turn
	err    error // the first failure, or ErrClosed: the log takes no more
	closed bool

	current segmentInfo
	file    vfs.File
	older   []segmentInfo // segments before current, oldest first
	next    chan prepared // not nil while a next segment is prepared or ready

	off     int64  // where the next frame goes in the current segment
	durable int64  // bytes of the current segment known to be durable
	chain   uint32 // running checksum up to off
	seed    uint32 // of the current segment's frame headers

	last  Position // of the log
	floor uint64   // entries at or below this index are never overwritten
	hard  hardState

	body []byte // reused: a frame as bytes in order
	disk []byte // reused: what is written, with marks: whole blocks, at an address that suits vfs.File.WriteSync
	tail []byte // what the block that the next frame begins in holds before it; reused
}

// prepared is the outcome of preparing a segment.
type prepared struct {
	file vfs.File
	err  error
}

// Exists reports whether dir holds a log. What Create left when it was cut short
// is either no log or a whole, empty one.
func Exists(fs vfs.FS, dir string) bool {
	names, err := fs.List(dir)
	if err != nil {
		return false
	}
	for _, name := range names {
		if _, ok := parseSegmentName(name); ok {
			return true
		}
	}
	return false
}

// Create makes an empty log in dir, making the directory (whose parent should
// be durable) when it is missing, and opens it. When it returns without error
// the log survives a power cut; when it is cut short, either Exists is false or
// the log is there, empty, to be opened.
func Create(fs vfs.FS, dir string, meta Metadata, opts Options) (*Log, error) {
	opts = opts.withDefaults()
	if err := fs.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("wal: create directory %s: %w", dir, err)
	}
	lock, err := lockDir(fs, dir)
	if err != nil {
		return nil, err
	}
	if Exists(fs, dir) {
		return nil, errors.Join(fmt.Errorf("wal: %s: %w: open it, or choose another data directory", dir, ErrExists), lock.Close())
	}
	l := &Log{fs: fs, dir: dir, opts: opts, lock: lock, mu: newTurn(), releaseMu: newTurn()}
	l.current = segmentInfo{seq: 1, size: opts.SegmentBytes, meta: meta}
	l.tail = l.current.encode(nil)
	l.file, err = buildSegment(fs, dir, 1, opts.SegmentBytes, l.tail, opts.UnsafeNoSync)
	if err == nil && !opts.UnsafeNoSync {
		if err = fs.SyncDir(filepath.Dir(dir)); err != nil {
			err = errors.Join(err, l.file.Close())
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wal: create the first segment in %s: %w", dir, err), lock.Close())
	}
	l.off, l.durable = segmentHeader, segmentHeader
	l.chain, l.seed = l.current.crc, frameSeed(meta, 1)
	return l, nil
}

// lockDir takes the lock that keeps other processes out.
func lockDir(fs vfs.FS, dir string) (io.Closer, error) {
	lock, err := fs.Lock(filepath.Join(dir, lockName))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("wal: %s: %w: stop it, or choose another data directory", dir, ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("wal: lock %s: %w", dir, err)
	}
	return lock, nil
}

// Append writes a hard state (nil: unchanged) and entries (may be none) as one
// unit, and with sync makes it and all that was appended before it durable. After
// a crash a unit is there wholly or not at all, and in the latter case so are
// all later ones.
//
// Entries must be consecutive and the first may be at most one past the last of
// the log; if it is earlier, all entries from its index on are replaced. Neither
// hs nor ents are kept or changed.
//
// An error of the file system ends the log: this call and every later one
// return it, and whether the unit is there is known only after Open.
func (l *Log) Append(hs *raftpb.HardState, ents []*raftpb.Entry, sync bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	if err := l.checkEntries(ents); err != nil {
		return err
	}
	hard := l.hardAfter(hs)
	if hard != l.hard || len(ents) > 0 {
		l.begin()
		flags := l.addHardState(hard)
		l.body = raftcodec.AppendEntries(l.body, ents)
		if err := l.write(flags, sync); err != nil {
			return err
		}
		l.hard = hard
		if n := len(ents); n > 0 {
			l.last = Position{Index: ents[n-1].GetIndex(), Term: ents[n-1].GetTerm()}
		}
	}
	if !sync {
		return nil
	}
	return l.syncLocked()
}

func (l *Log) checkEntries(ents []*raftpb.Entry) error {
	for i, e := range ents {
		index, first := e.GetIndex(), ents[0].GetIndex()
		if index != first+uint64(i) || index > l.last.Index+uint64(i)+1 || index <= l.floor {
			return fmt.Errorf("wal: %s: %w: the log ends at index %d and begins after %d, entry %d of the append has index %d",
				l.dir, ErrNotContiguous, l.last.Index, l.floor, i, index)
		}
	}
	return nil
}

func (l *Log) hardAfter(hs *raftpb.HardState) hardState {
	if hs == nil {
		return l.hard
	}
	return hardState{term: hs.GetTerm(), vote: hs.GetVote(), commit: hs.GetCommit()}
}

// Reset makes the log continue after pos, as after a snapshot from the leader:
// the entries so far are gone, the next one has index pos.Index+1. hs as in
// Append. It is durable on return. Errors as in Append.
func (l *Log) Reset(pos Position, hs *raftpb.HardState) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	hard := l.hardAfter(hs)
	l.begin()
	flags := l.addHardState(hard) | flagReset
	l.body = binary.AppendUvarint(l.body, pos.Index)
	l.body = binary.AppendUvarint(l.body, pos.Term)
	l.body = raftcodec.AppendEntries(l.body, nil)
	if err := l.write(flags, true); err != nil {
		return err
	}
	l.hard, l.last, l.floor = hard, pos, pos.Index
	return nil
}

// Sync makes all that was appended durable.
func (l *Log) Sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	return l.syncLocked()
}

func (l *Log) syncLocked() error {
	if l.opts.UnsafeNoSync || l.durable == l.off {
		return nil
	}
	begin := time.Now()
	if err := l.file.Sync(); err != nil {
		return l.fail("make %s durable up to offset %d: %w", l.path(l.current.seq), l.off, err)
	}
	if l.opts.OnSync != nil {
		l.opts.OnSync(time.Since(begin))
	}
	l.durable = l.off
	return nil
}

// fail records the first error, after which the log takes nothing more.
func (l *Log) fail(format string, args ...any) error {
	if l.err == nil {
		hint := "restart the member once the disk is well"
		err := fmt.Errorf(format, args...)
		if errors.Is(err, syscall.ENOSPC) {
			hint = "make room on its disk and restart the member"
		}
		l.err = fmt.Errorf("wal: %w: nothing more is written to this log, %s", err, hint)
	}
	return l.err
}

func (l *Log) path(seq uint64) string { return filepath.Join(l.dir, segmentName(seq)) }

// Release tells that entries up to index are not needed any more. It removes
// the segments that hold no other ones; the rest stays. It may take as long as
// the file system takes to remove a file, without holding up Append; nothing is
// lost when it fails.
func (l *Log) Release(index uint64) error {
	l.releaseMu.Lock()
	defer l.releaseMu.Unlock()
	for {
		victim, ok, err := l.releasable(index)
		if !ok || err != nil {
			return err
		}
		if err := ignoreMissing(l.fs.Remove(l.path(victim))); err != nil {
			return fmt.Errorf("wal: remove %s, which is not needed any more: %w", l.path(victim), err)
		}
		if err := l.released(); err != nil {
			return err
		}
	}
}

// releasable returns the oldest segment if no entry above index needs it: if a
// later segment began when the log's last index was at or below index.
func (l *Log) releasable(index uint64) (seq uint64, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || len(l.older) == 0 {
		return 0, false, l.err
	}
	for _, s := range l.older[1:] {
		ok = ok || s.start.Index <= index
	}
	if !ok && l.current.start.Index <= index {
		ok = true
		if l.durable < segmentHeader {
			// The header that takes over from the old segments must outlive them.
			err = l.syncLocked()
		}
	}
	return l.older[0].seq, ok, err
}

// released notes that the oldest file is gone and makes that durable: files
// must vanish in order, or the next Open would find a gap.
func (l *Log) released() error {
	var err error
	if !l.opts.UnsafeNoSync {
		err = l.fs.SyncDir(l.dir)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		return l.fail("make the removal of a segment in %s durable: %w", l.dir, err)
	}
	l.older = l.older[1:]
	return nil
}

// Last returns the position of the last entry, or what the last Reset or the
// first segment gave when there are no entries.
func (l *Log) Last() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Close makes all that was appended durable and closes the log. It waits for
// calls in progress. A second Close does nothing. It returns the failure that
// had ended the log, if any.
func (l *Log) Close() error {
	l.releaseMu.Lock()
	defer l.releaseMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	err := l.err
	if err == nil {
		err = l.syncLocked()
	}
	l.err = ErrClosed
	if l.next != nil {
		if p := <-l.next; p.file != nil {
			err = errors.Join(err, p.file.Close())
		}
		l.next = nil
	}
	return errors.Join(err, l.file.Close(), l.lock.Close())
}

func ignoreMissing(err error) error {
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	return err
}
