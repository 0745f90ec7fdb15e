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
// next segment when it does not fit, by one call, which with sync makes it durable.
func (l *Log) write(flags byte, sync bool) error {
	if n := len(l.body) - frameHeader; n > maxPayload {
		return fmt.Errorf("wal: %s: %w: %d bytes, at most %d are allowed", l.dir, ErrTooLarge, n, maxPayload)
	}
	l.body = append(l.body, mark)
	if physicalEnd(l.off, len(l.body)) > l.current.size {
		if err := l.cut(len(l.body)); err != nil {
			return err
		}
	}
	at := l.off - int64(len(l.tail))
	chain := seal(l.body, flags, l.off, l.durable, l.seed, l.chain)
	end := physicalEnd(l.off, len(l.body))
	l.fillDisk(at, end)
	if err := l.put(at, sync && !l.opts.UnsafeNoSync); err != nil {
		return err
	}
	l.off, l.chain = min(alignUp(end, frameAlign), l.current.size), chain
	if sync && !l.opts.UnsafeNoSync {
		l.durable = l.off
	}
	whole := l.off / pageSize * pageSize
	l.tail = append(l.tail[:0], l.disk[whole-at:l.off-at]...)
	// Not before the header of the current segment is durable: after a crash at
	// most the last file may be without one.
	if l.next == nil && l.off > l.current.size/2 && (l.durable >= segmentHeader || l.opts.UnsafeNoSync) {
		l.prepareNext()
	}
	return nil
}

// put writes disk at an offset, and with sync makes it and all before it durable.
func (l *Log) put(at int64, sync bool) error {
	begin := time.Now()
	var n int
	var err error
	if sync {
		n, err = l.file.WriteSync(l.disk, at)
	} else {
		n, err = l.file.WriteAt(l.disk, at)
	}
	if err != nil {
		return l.fail("write %d bytes to %s at offset %d, durable: %t (%d were written): %w", len(l.disk), l.path(l.current.seq), at, sync, n, err)
	}
	took := time.Since(begin)
	if l.opts.OnWrite != nil {
		l.opts.OnWrite(len(l.disk), took)
	}
	if sync && l.opts.OnSync != nil {
		l.opts.OnSync(took)
	}
	return nil
}

// fillDisk makes what is written for the frame in body, from at, where tail begins, to the end of the block in which the frame ends. What is
// there behind the frame is zero, and before it as before, so nothing changes but the frame.
//
// When the write enters a zone, it is lengthened by zeros to the zone's end. So all other writes go to blocks that have been written before:
// to make them durable takes no metadata.
func (l *Log) fillDisk(at, end int64) {
	unit := int64(pageSize)
	if (l.off-1)/zoneSize != (end-1)/zoneSize || l.off <= segmentHeader {
		unit = zoneSize
	}
	full := min(alignUp(end, unit), l.current.size)
	if n := int(full - at); cap(l.disk) < n || cap(l.disk) > keepBuffer {
		l.disk = vfs.Aligned(max(n, zoneSize+pageSize))
	}
	l.disk = spread(append(l.disk[:0], l.tail...), l.off, l.body)
	have := len(l.disk)
	l.disk = l.disk[:full-at]
	clear(l.disk[have:])
}

// cut makes the next segment the current one. Its header is left in tail, to be
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
	l.tail = next.encode(l.tail[:0])
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
