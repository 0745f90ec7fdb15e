package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/coordd/coordd/pkg/vfs"
)

// begin starts a frame in body.
func (l *Log) begin() {
	if cap(l.body) > keepBuffer {
		l.body = nil
	}
	l.body = append(l.body[:0], make([]byte, frameHeader)...)
}

// addHardState appends the hard state when it changed and returns the flag.
func (l *Log) addHardState(hard hardState) byte {
	if hard == l.hard {
		return 0
	}
	l.body = binary.AppendUvarint(l.body, hard.term)
	l.body = binary.AppendUvarint(l.body, hard.vote)
	l.body = binary.AppendUvarint(l.body, hard.commit)
	return flagHardState
}

// write completes the frame in body and writes it behind the last one, in the
// next segment when it does not fit, by one call.
func (l *Log) write(flags byte) error {
	if n := len(l.body) - frameHeader; n > maxPayload {
		return fmt.Errorf("wal: %s: %w: %d bytes, at most %d are allowed", l.dir, ErrTooLarge, n, maxPayload)
	}
	if cap(l.disk) > keepBuffer {
		l.disk = nil
	}
	l.disk = l.disk[:0]
	l.body = append(l.body, mark)
	at := l.off
	if physicalEnd(l.off, len(l.body)) > l.current.size {
		if err := l.cut(len(l.body)); err != nil {
			return err
		}
		at = 0 // the header of the new segment goes out with the frame
	}
	chain := seal(l.body, flags, l.off, l.durable, l.seed, l.chain)
	l.disk = spread(l.disk, l.off, l.body)
	end := physicalEnd(l.off, len(l.body))
	l.padZone(at, end)
	begin := time.Now()
	if n, err := l.file.WriteAt(l.disk, at); err != nil {
		return l.fail("write %d bytes to %s at offset %d (%d were written): %w", len(l.disk), l.path(l.current.seq), at, n, err)
	}
	if l.opts.OnWrite != nil {
		l.opts.OnWrite(len(l.disk), time.Since(begin))
	}
	l.off, l.chain = min(alignUp(end, frameAlign), l.current.size), chain
	// Not before the header of the current segment is durable: after a crash at
	// most the last file may be without one.
	if l.next == nil && l.off > l.current.size/2 && (l.durable >= segmentHeader || l.opts.UnsafeNoSync) {
		l.prepareNext()
	}
	return nil
}

// padZone lengthens the write by zeros (over zeros) to the end of the zone when it
// enters one. So all other writes go to blocks that have been written before: their
// flush has no metadata to write, and the kernel need not read a page in first.
func (l *Log) padZone(at, end int64) {
	full := min(alignUp(end, zoneSize), l.current.size)
	if (at-1)/zoneSize != (end-1)/zoneSize || at <= segmentHeader {
		l.disk = append(l.disk, zeroZone[:full-end]...)
	}
}

var zeroZone [zoneSize]byte

// cut makes the next segment the current one. Its header is left in disk, to be
// written together with the first frame, of n bytes. The old segment is durable
// before anything is written to the new one: damage in it is never a torn write.
func (l *Log) cut(n int) error {
	if err := l.syncLocked(); err != nil {
		return err
	}
	next := segmentInfo{
		seq: l.current.seq + 1, size: l.opts.SegmentBytes, meta: l.current.meta,
		start: l.last, hard: l.hard, prevEnd: l.off, prevChain: l.chain,
	}
	file, err := l.takePrepared(next.seq)
	if err != nil {
		return l.fail("begin segment %d: %w", next.seq, err)
	}
	if need := alignUp(physicalEnd(segmentHeader, n), pageSize); need > next.size {
		next.size = need
		if err := fillSegment(file, need, nil, l.opts.UnsafeNoSync); err != nil {
			return errors.Join(l.fail("enlarge %s to %d bytes for one append: %w", l.path(next.seq), need, err), file.Close())
		}
	}
	if err := l.file.Close(); err != nil {
		l.opts.Logger.Warn("closing a finished log segment failed; its content is durable",
			zap.String("file", l.path(l.current.seq)), zap.Error(err))
	}
	l.disk = next.encode(l.disk)
	l.older = append(l.older, l.current)
	l.current, l.file = next, file
	l.off, l.durable = segmentHeader, 0
	l.chain, l.seed = next.crc, frameSeed(next.meta, next.seq)
	return nil
}

// prepareNext starts a goroutine that makes the file of the next segment. It
// ends by itself; its outcome waits in next for cut or Close.
func (l *Log) prepareNext() {
	done := make(chan prepared, 1)
	l.next = done
	fs, dir, seq, size, noSync := l.fs, l.dir, l.current.seq+1, l.opts.SegmentBytes, l.opts.UnsafeNoSync
	go func() {
		file, err := buildSegment(fs, dir, seq, size, nil, noSync)
		done <- prepared{file, err}
	}()
}

// takePrepared returns the file of the next segment, made ahead or now. When
// making it ahead failed for want of space, room may have been made since, so
// it is tried again with a new file. Other failures are final.
func (l *Log) takePrepared(seq uint64) (vfs.File, error) {
	if l.next != nil {
		p := <-l.next
		l.next = nil
		if p.err == nil || !errors.Is(p.err, syscall.ENOSPC) {
			return p.file, p.err
		}
		l.opts.Logger.Warn("preparing the next log segment ahead failed for want of disk space; trying again", zap.Error(p.err))
	}
	return buildSegment(l.fs, l.dir, seq, l.opts.SegmentBytes, nil, l.opts.UnsafeNoSync)
}
