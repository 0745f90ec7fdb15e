package backend

import (
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
)

// Snapshot is an image of the file as of one commit. It belongs to one goroutine and must be closed. As long as it
// is open, the pages it needs are not used anew, so the file may grow.
type Snapshot struct {
	tx     *bbolt.Tx
	pos    Position
	begin  time.Time
	closed func(took time.Duration)
}

// Snapshot gives the image as of the last commit. To have all that was written, Commit with wait before. Any
// goroutine.
func (b *Backend) Snapshot() (*Snapshot, error) {
	begin := time.Now()
	tx, err := b.db.Begin(false)
	if err != nil {
		return nil, fmt.Errorf("data file %s: snapshot: %w", b.path, err)
	}
	pos, err := readPosition(tx)
	if err != nil {
		_ = tx.Rollback() // cannot fail
		return nil, describe(b.path, err)
	}
	return &Snapshot{tx: tx, pos: pos, begin: begin, closed: b.o.OnSnapshot}, nil
}

// Position is that of the data in the image.
func (s *Snapshot) Position() Position { return s.pos }

// Size is the number of bytes that WriteTo writes.
func (s *Snapshot) Size() int64 { return s.tx.Size() }

// StorageVersion is the version of the file's layout, or "" if it has none.
func (s *Snapshot) StorageVersion() string {
	return string(s.tx.Bucket([]byte(BucketMeta.String())).Get([]byte(MetaStorageVersion)))
}

// WriteTo writes the image, a bbolt file, to w.
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) { return s.tx.WriteTo(w) }

// Close ends the snapshot. Further calls do nothing.
func (s *Snapshot) Close() error {
	if s.tx.DB() == nil {
		return nil
	}
	s.closed(time.Since(s.begin))
	return s.tx.Rollback()
}

// OpenReads is the number of read transactions of the file that are open. Any goroutine.
func (b *Backend) OpenReads() int {
	stats := b.db.Stats()
	return stats.OpenTxN
}

// Hash is the CRC-32 (Castagnoli) over the names, keys and values of all buckets of the file, in order, but for
// the consistent index, the term and the storage version, in which members that agree may differ. It is that of
// the last commit. Any goroutine.
func (b *Backend) Hash() (uint32, error) {
	tx, err := b.db.Begin(false)
	if err != nil {
		return 0, fmt.Errorf("data file %s: hash: %w", b.path, err)
	}
	defer func() { _ = tx.Rollback() }() // cannot fail
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	err = tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
		sum.Write(name)
		meta := string(name) == BucketMeta.String()
		return bucket.ForEach(func(k, v []byte) error {
			if meta {
				switch string(k) {
				case MetaConsistentIndex, MetaTerm, MetaStorageVersion:
					return nil
				}
			}
			sum.Write(k)
			sum.Write(v)
			return nil
		})
	})
	if err != nil {
		return 0, fmt.Errorf("data file %s: hash: %w", b.path, err)
	}
	return sum.Sum32(), nil
}

// PositionOf reads the position of a file that is not open. The error is os.ErrNotExist if there is no such file.
func PositionOf(path string) (pos Position, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return Position{}, err
	}
	if info.Size() == 0 {
		return Position{}, nil // made, and never written to
	}
	f, err := os.Open(path)
	if err != nil {
		return Position{}, err
	}
	err = checkFile(f, info.Size())
	_ = f.Close() // only read
	if err != nil {
		return Position{}, describe(path, err)
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = describe(path, fmt.Errorf("%w: %v", errDamaged, p))
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return Position{}, describe(path, err)
	}
	defer func() { _ = db.Close() }() // only read
	err = db.View(func(tx *bbolt.Tx) error {
		pos, err = readPosition(tx)
		return err
	})
	if err != nil {
		return Position{}, describe(path, err)
	}
	return pos, nil
}
