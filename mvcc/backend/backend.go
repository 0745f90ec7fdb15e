package backend

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

var (
	errClosed  = errors.New("closed")
	errDamaged = errors.New("damaged, or not a data file")
)

const adviceDamaged = "restore it from a snapshot, or remove this member and add it again with an empty data directory"

// Position is a place in the log: that of the last entry whose effects are included.
type Position struct {
	Index, Term uint64
	// ConfState is the cluster's configuration as JSON of raftpb.ConfState. Given to a commit, nil means
	// unchanged; as an answer, nil means that the file has none.
	ConfState []byte
}

// Backend is the file and its tail. See the package comment for which goroutine may call what.
type Backend struct {
	path string
	o    Options
	db   *bbolt.DB

	// The writer's.
	active *batch
	sealed *batch   // handed to the committer and not yet seen done
	last   Revision // of the last row

	jobs    chan *batch   // to the committer; room for one, sent to only when it is idle
	stopped chan struct{} // closed when the committer has ended
	mapped  int64         // the committer's: size of the memory map, or less

	mu      sync.Mutex // guards replacing state
	state   atomic.Pointer[state]
	durable atomic.Pointer[Position]
	total   atomic.Int64
	inUse   atomic.Int64

	err    atomic.Pointer[error]
	fatal  chan struct{} // closed with err set
	closed atomic.Bool
	close  sync.Once
	closeE error
}

// Open opens the data file path, creating it with all its buckets if need be, and starts the committer. Errors
// name the file and what to do: another process has it open, it is damaged, it is no data file, or it cannot be
// read.
func Open(path string, o Options) (*Backend, error) {
	o = o.withDefaults()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open data file: %w", err)
	}
	size, err := claim(f, o.LockTimeout)
	if err != nil {
		_ = f.Close() // the first error is the one to report
		return nil, err
	}
	b := &Backend{
		path: path, o: o, active: newBatch(0),
		jobs: make(chan *batch, 1), stopped: make(chan struct{}), fatal: make(chan struct{}),
	}
	b.mapped = mapSize(max(int64(o.InitialMmap), 4*size))
	if b.db, err = openBolt(f, o, int(b.mapped)); err != nil {
		_ = f.Close() // closed already if bbolt got that far
		return nil, describe(path, err)
	}
	if err := b.load(); err != nil {
		_ = b.db.Close() // the first error is the one to report
		return nil, describe(path, err)
	}
	go b.commitLoop()
	return b, nil
}

// claim locks f and checks its structure.
func claim(f *os.File, timeout time.Duration) (size int64, err error) {
	if err := lock(f, timeout); err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("cannot open data file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("data file %s is not a regular file: name another data directory", f.Name())
	}
	if err := checkFile(f, info.Size()); err != nil {
		return 0, describe(f.Name(), err)
	}
	return info.Size(), nil
}

// lock takes the file's lock, waiting up to timeout.
func lock(f *os.File, timeout time.Duration) error {
	const pause = 20 * time.Millisecond
	for deadline := time.Now().Add(timeout); ; time.Sleep(pause) {
		ok, err := tryLock(f)
		if err != nil {
			return fmt.Errorf("cannot lock data file %s: %w", f.Name(), err)
		}
		if ok {
			return nil
		}
		if time.Now().After(deadline) {
			return lockedError(f.Name())
		}
	}
}

func lockedError(path string) error {
	return fmt.Errorf("data file %s is in use by another process: stop that process, or name another data directory", path)
}

// describe names the file in an error of opening it.
func describe(path string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return lockedError(path)
	case errors.Is(err, errDamaged):
		return fmt.Errorf("data file %s: %w; %s", path, err, adviceDamaged)
	}
	return fmt.Errorf("cannot open data file %s: %w", path, err)
}

// openBolt opens the file f, locked and checked, with bbolt. Should the checks have missed something, the panic
// becomes an error.
func openBolt(f *os.File, o Options, mapped int) (db *bbolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errDamaged, p)
		}
	}()
	return bbolt.Open(f.Name(), 0o600, &bbolt.Options{
		Timeout:         o.LockTimeout,
		FreelistType:    bbolt.FreelistMapType,
		NoFreelistSync:  true,
		InitialMmapSize: mapped,
		NoSync:          o.NoSync,
		Mlock:           o.Mlock,
		OpenFile:        func(string, int, fs.FileMode) (*os.File, error) { return f, nil },
	})
}

// load makes the buckets and reads what is kept in memory.
func (b *Backend) load() error {
	if err := b.createBuckets(); err != nil {
		return err
	}
	file, err := newFileView(b.db)
	if err != nil {
		return err
	}
	b.state.Store(&state{file: file})
	b.measure(file.tx)
	pos, err := readPosition(file.tx)
	if err != nil {
		file.release()
		return err
	}
	b.durable.Store(&pos)
	v := b.View()
	defer v.Release()
	if _, last, ok := v.Bounds(); ok {
		b.last = last
	}
	return nil
}

// createBuckets makes the buckets that are missing. A file without any is new and gets its storage version.
func (b *Backend) createBuckets() error {
	complete, empty := true, true
	err := b.db.View(func(tx *bbolt.Tx) error {
		for _, name := range bucketNames {
			found := tx.Bucket([]byte(name)) != nil
			complete, empty = complete && found, empty && !found
		}
		return nil
	})
	if err != nil || complete {
		return err
	}
	return b.db.Update(func(tx *bbolt.Tx) error {
		for _, name := range bucketNames {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		if !empty {
			return nil
		}
		return tx.Bucket([]byte(BucketMeta.String())).Put([]byte(MetaStorageVersion), []byte(StorageVersion))
	})
}

// readPosition reads the position in tx. A file that has none is at the zero position.
func readPosition(tx *bbolt.Tx) (pos Position, err error) {
	meta := tx.Bucket([]byte(BucketMeta.String()))
	if meta == nil {
		return Position{}, nil
	}
	number := func(key string) uint64 {
		v := meta.Get([]byte(key))
		if len(v) != 8 {
			if v != nil {
				err = fmt.Errorf("%w: %s in bucket %s has %d bytes instead of 8", errDamaged, key, BucketMeta, len(v))
			}
			return 0
		}
		return binary.BigEndian.Uint64(v)
	}
	pos.Index, pos.Term = number(MetaConsistentIndex), number(MetaTerm)
	pos.ConfState = slices.Clone(meta.Get([]byte(MetaConfState)))
	return pos, err
}

// Path is the file's name as given to Open.
func (b *Backend) Path() string { return b.path }

// Position is that of the data in the file. What came later is in the tail. Any goroutine; ConfState must not be
// changed.
func (b *Backend) Position() Position { return *b.durable.Load() }

// Size gives the size of the data in the file in bytes, with and without pages that are free. It costs next to
// nothing. The tail is not included. Any goroutine.
func (b *Backend) Size() (total, inUse int64) { return b.total.Load(), b.inUse.Load() }

// Err is the error of the commit that failed, or nil. Any goroutine.
func (b *Backend) Err() error {
	if err := b.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Fatal is closed when a commit has failed; see [Backend.Err].
func (b *Backend) Fatal() <-chan struct{} { return b.fatal }

// ForEach calls f for each key and value of a bucket, in key order, as they are in the file: changes
// not committed are not seen. The slices are valid during the call only. An error of f ends it and is returned.
func (b *Backend) ForEach(bucket Bucket, f func(k, v []byte) error) error {
	v := b.View()
	defer v.Release()
	if v.Closed() {
		return fmt.Errorf("data file %s: %w", b.path, errClosed)
	}
	return v.file.tx.Bucket([]byte(bucket.String())).ForEach(f)
}

// Get gives a copy of the value of a key in the file: changes not committed are not seen. ok is false if there is
// none.
func (b *Backend) Get(bucket Bucket, key []byte) (value []byte, ok bool) {
	v := b.View()
	defer v.Release()
	if v.Closed() {
		return nil, false
	}
	value = v.file.tx.Bucket([]byte(bucket.String())).Get(key)
	return slices.Clone(value), value != nil
}

// Close writes what has been sealed, ends the committer and closes the file. What is not sealed is in the log. The
// writer must have stopped. It waits for views and snapshots to be released. Further calls do nothing and return
// the same.
func (b *Backend) Close() error {
	b.close.Do(func() {
		b.closed.Store(true)
		close(b.jobs)
		<-b.stopped
		b.mu.Lock()
		old := b.state.Load()
		b.state.Store(&state{})
		b.mu.Unlock()
		old.file.dispose()
		if err := b.db.Close(); err != nil {
			b.closeE = fmt.Errorf("data file %s: close: %w", b.path, err)
		}
	})
	return b.closeE
}
