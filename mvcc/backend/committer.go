package backend

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	"go.uber.org/zap"
)

// rowFill is how full pages of rows are made: rows come in order, so nothing is ever inserted between them.
const rowFill = 0.9

const (
	// remapZone is how close to the end of the memory map, in bytes, a commit may need a larger one. One commit
	// takes far less.
	remapZone = 1 << 30
	// remapPatience is how long such a commit may take before readers are made to leave.
	remapPatience = 20 * time.Millisecond
)

// commitLoop is the committer's goroutine. It ends when jobs is closed.
func (b *Backend) commitLoop() {
	defer close(b.stopped)
	for t := range b.jobs {
		if b.Err() == nil {
			b.commit(t)
		}
		close(t.done)
	}
}

// commit writes t and lets readers have it from the file.
func (b *Backend) commit(t *batch) {
	start := time.Now()
	leave := b.watchRemap()
	err := b.write(t)
	retired := leave()
	if err != nil {
		b.poison(err)
		if retired {
			b.renew(false)
		}
		return
	}
	pos := t.pos
	if pos.ConfState == nil {
		pos.ConfState = b.Position().ConfState
	}
	b.durable.Store(&pos)
	if err := b.renew(true); err != nil {
		b.poison(err)
		return
	}
	b.o.OnCommit(time.Since(start))
}

// write puts t into the file in one transaction. A panic of bbolt, which means a damaged file, becomes an error.
func (b *Backend) write(t *batch) (err error) {
	tx, err := b.db.Begin(true)
	if err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errDamaged, p)
		}
		if err != nil {
			func() {
				defer func() { _ = recover() }() // the file is of no use any more; the first cause is reported
				_ = tx.Rollback()
			}()
		}
	}()
	if err := fill(tx, t); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	stats := tx.Stats()
	b.o.OnPhases(stats.GetRebalanceTime(), stats.GetSpillTime(), stats.GetWriteTime())
	return nil
}

// fill puts the contents of t into tx.
func fill(tx *bbolt.Tx, t *batch) error {
	rows := tx.Bucket([]byte(BucketKey.String()))
	rows.FillPercent = rowFill
	for i := range t.rows {
		r := &t.rows[i]
		key := EncodeRowKey(RowID{r.rev, r.tombstone})
		if err := rows.Put(key.Bytes(), r.row); err != nil {
			return err
		}
	}
	for _, id := range t.removed {
		key := EncodeRowKey(id)
		if err := rows.Delete(key.Bytes()); err != nil {
			return err
		}
	}
	for _, c := range t.changes {
		bucket := tx.Bucket([]byte(c.bucket.String()))
		if c.deletion {
			if err := bucket.Delete(c.key); err != nil {
				return err
			}
		} else if err := bucket.Put(c.key, c.value); err != nil {
			return err
		}
	}
	return putPosition(tx, t.pos)
}

func putPosition(tx *bbolt.Tx, pos Position) error {
	meta := tx.Bucket([]byte(BucketMeta.String()))
	if err := meta.Put([]byte(MetaConsistentIndex), binary.BigEndian.AppendUint64(nil, pos.Index)); err != nil {
		return err
	}
	if err := meta.Put([]byte(MetaTerm), binary.BigEndian.AppendUint64(nil, pos.Term)); err != nil {
		return err
	}
	if pos.ConfState == nil {
		return nil
	}
	return meta.Put([]byte(MetaConfState), pos.ConfState)
}

// renew replaces the read transaction of the state; with written, the sealed batch is in the file now.
func (b *Backend) renew(written bool) error {
	file, err := newFileView(b.db)
	if err != nil {
		return err
	}
	b.measure(file.tx)
	b.mu.Lock()
	old := b.state.Load()
	next := &state{tail: old.tail, file: file}
	if !written {
		next.sealed = old.sealed
	}
	b.state.Store(next)
	b.mu.Unlock()
	old.file.dispose()
	return nil
}

// dispose lets go of a file view that is in the state no more.
func (f *fileView) dispose() {
	f.retire()
	close(f.replaced)
}

// retire takes the owner's part in f away, once. Readers that come from now on wait until it is replaced.
func (f *fileView) retire() {
	if f.retired.CompareAndSwap(false, true) {
		f.release()
	}
}

// measure sets the sizes as of tx, and follows the memory map, which bbolt enlarges as the file needs it.
func (b *Backend) measure(tx *bbolt.Tx) {
	total := tx.Size()
	stats := b.db.Stats()
	free := int64(stats.FreePageN+stats.PendingPageN) * int64(b.db.Info().PageSize)
	b.total.Store(total)
	b.inUse.Store(max(total-free, 0))
	b.mapped = max(b.mapped, mapSize(total))
}

// mapSize is the memory map bbolt makes for size bytes: powers of two up to 1 GiB, then whole GiB.
func mapSize(size int64) int64 {
	for n := int64(32 << 10); n <= 1<<30; n *= 2 {
		if size <= n {
			return n
		}
	}
	return (size + 1<<30 - 1) &^ (1<<30 - 1)
}

// watchRemap is called before a commit, and the function it returns after it. If the commit may have to move the
// memory map and takes long, which then may mean that it waits for readers, the present file view is retired.
// retired says so.
func (b *Backend) watchRemap() (leave func() (retired bool)) {
	if b.total.Load()+remapZone < b.mapped {
		return func() bool { return false }
	}
	file := b.state.Load().file
	fired := make(chan struct{})
	timer := time.AfterFunc(remapPatience, func() {
		defer close(fired)
		file.retire()
	})
	return func() bool {
		if timer.Stop() {
			return false
		}
		<-fired
		return true
	}
}

// poison records the error that ends all writing.
func (b *Backend) poison(cause error) {
	hint := "the data is safe in the log: see what is wrong with the disk, then start the member again"
	switch {
	case errors.Is(cause, syscall.ENOSPC), errors.Is(cause, syscall.EDQUOT):
		hint = "make room on the disk, then start the member again"
	case errors.Is(cause, errDamaged):
		hint = adviceDamaged
	}
	err := fmt.Errorf("data file %s: commit failed: %w; %s", b.path, cause, hint)
	if b.err.CompareAndSwap(nil, &err) {
		b.o.Logger.Error("cannot write to the data file any more", zap.Error(err))
		close(b.fatal)
	}
}
