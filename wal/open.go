package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/coordd/coordd/pkg/raftcodec"
	"github.com/coordd/coordd/pkg/vfs"
)

// Recovered is what Open found.
type Recovered struct {
	Meta Metadata
	// HardState is the newest one; never nil, its pointers neither.
	HardState *raftpb.HardState
	// Start is the position that Entries follow: that of the last Reset, or
	// the place at which the oldest segment kept by Release begins, or zero.
	Start Position
	// Entries are consecutive from Start.Index+1 on, each the newest appended
	// with its index. Their memory is shared between neighbours.
	Entries []*raftpb.Entry
	// Segments is the number of files that hold the log.
	Segments int
	// TornBytes, if not zero, is the length of the remains of an append that
	// was cut short, never acknowledged and now removed; TornFile and
	// TornOffset tell where.
	TornBytes  int64
	TornFile   string
	TornOffset int64
}

// Open opens the log in dir, which must exist. It checks all of it, removes the
// remains of an append that a crash cut short, and makes what it returns
// durable. Anything that a crash cannot explain is refused with ErrCorrupt
// and left as it is.
func Open(fs vfs.FS, dir string, opts Options) (*Log, *Recovered, error) {
	if !Exists(fs, dir) {
		return nil, nil, fmt.Errorf("wal: no log in %s: %w: check the data directory, or create a new member", dir, iofs.ErrNotExist)
	}
	lock, err := lockDir(fs, dir)
	if err != nil {
		return nil, nil, err
	}
	l := &Log{fs: fs, dir: dir, opts: opts.withDefaults(), lock: lock, mu: newTurn(), releaseMu: newTurn()}
	o := &opener{Log: l}
	rec, err := o.open()
	if err != nil {
		if l.file != nil {
			err = errors.Join(err, l.file.Close())
		}
		return nil, nil, errors.Join(err, lock.Close())
	}
	return l, rec, nil
}

// opener is a Log being opened, with what was read so far.
type opener struct {
	*Log
	start   Position
	entries []*raftpb.Entry
	arena   []byte // payloads of frames are gathered here, many per allocation
	data    []byte // the segment at hand

	tornFile   string
	tornOffset int64
	tornBytes  int64
	unsynced   int64    // offset in the last segment from which nothing is known to be durable
	leftOver   []string // files to remove once all else has been found good
}

func (o *opener) open() (*Recovered, error) {
	segs, err := o.readHeaders()
	if err != nil {
		return nil, err
	}
	o.start, o.last, o.hard = segs[0].start, segs[0].start, segs[0].hard
	for i := range segs {
		var next *segmentInfo
		if i+1 < len(segs) {
			next = &segs[i+1]
		}
		if err := o.replay(segs[i], next); err != nil {
			return nil, err
		}
	}
	o.older, o.current = segs[:len(segs)-1], segs[len(segs)-1]
	o.floor = o.start.Index
	if err := o.repair(); err != nil {
		return nil, err
	}
	return &Recovered{
		Meta:      o.current.meta,
		HardState: &raftpb.HardState{Term: new(o.hard.term), Vote: new(o.hard.vote), Commit: new(o.hard.commit)},
		Start:     o.start, Entries: o.entries, Segments: len(segs),
		TornBytes: o.tornBytes, TornFile: o.tornFile, TornOffset: o.tornOffset,
	}, nil
}

// corrupt makes the error that refuses a log.
func (o *opener) corrupt(seq uint64, off int64, format string, args ...any) error {
	return fmt.Errorf("wal: %w: %s at offset %d: %s; nothing was changed: check the disk, then replace this member from the others"+
		" (remove it, clear its data directory, add it again) or restore a backup", ErrCorrupt, o.path(seq), off, fmt.Sprintf(format, args...))
}

// listSegments returns the sequence numbers of the segments, which must be
// consecutive, and notes files that were never given their name.
func (o *opener) listSegments() ([]uint64, error) {
	names, err := o.fs.List(o.dir)
	if err != nil {
		return nil, fmt.Errorf("wal: list %s: %w", o.dir, err)
	}
	var seqs []uint64 // sorted, as the names are
	for _, name := range names {
		if base, ok := strings.CutSuffix(name, tempSuffix); ok {
			if _, ours := parseSegmentName(base); ours {
				o.leftOver = append(o.leftOver, filepath.Join(o.dir, name))
			}
		}
		seq, ok := parseSegmentName(name)
		if !ok {
			continue
		}
		if n := len(seqs); n > 0 && seq != seqs[n-1]+1 {
			return nil, o.corrupt(seq, 0, "expected segment %d (%s) before it, which is missing", seqs[n-1]+1, segmentName(seqs[n-1]+1))
		}
		seqs = append(seqs, seq)
	}
	return seqs, nil
}

// readHeaders reads the first sector of all segments and leaves out a last one
// that was prepared but never came into use.
func (o *opener) readHeaders() ([]segmentInfo, error) {
	seqs, err := o.listSegments()
	if err != nil {
		return nil, err
	}
	segs := make([]segmentInfo, 0, len(seqs))
	for i, seq := range seqs {
		head := make([]byte, segmentHeader)
		size, err := o.read(seq, head)
		if err != nil {
			return nil, err
		}
		if i > 0 && i == len(seqs)-1 && !headerWritten(head) {
			if err := o.checkUnused(seq, size, segs[i-1].meta); err != nil {
				return nil, err
			}
			break
		}
		s, err := decodeSegment(head, seq, size)
		if err != nil {
			return nil, o.corrupt(seq, 0, "%v", err)
		}
		if i > 0 && s.meta != segs[i-1].meta {
			return nil, o.corrupt(seq, 0, "expected the log of member %x of cluster %x as in the segment before, found that of member %x of cluster %x",
				segs[i-1].meta.MemberID, segs[i-1].meta.ClusterID, s.meta.MemberID, s.meta.ClusterID)
		}
		segs = append(segs, s)
	}
	return segs, nil
}

// read fills buf from the start of a segment, as far as the file goes (the rest
// is zero), and returns the size of the file.
func (o *opener) read(seq uint64, buf []byte) (int64, error) {
	file, err := o.fs.Open(o.path(seq))
	if err != nil {
		return 0, fmt.Errorf("wal: open %s: %w", o.path(seq), err)
	}
	size, err := file.Size()
	if err == nil {
		var n int
		n, err = file.ReadAt(buf[:min(int64(len(buf)), size)], 0)
		clear(buf[n:])
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return 0, fmt.Errorf("wal: read %s: %w", o.path(seq), err)
	}
	return size, nil
}

// checkUnused condemns a last segment without header: one prepared ahead, or
// one whose first append was cut short.
func (o *opener) checkUnused(seq uint64, size int64, meta Metadata) error {
	o.data = make([]byte, size)
	if _, err := o.read(seq, o.data); err != nil {
		return err
	}
	o.leftOver = append(o.leftOver, o.path(seq))
	return o.checkTorn(seq, 0, frameSeed(meta, seq))
}

// checkTorn is called where a frame (or header) is absent or incomplete. It
// refuses the log when a later frame proves that it had been durable, and else
// notes the remains, if there are any.
func (o *opener) checkTorn(seq uint64, off int64, seed uint32) error {
	rest := bytes.TrimRight(o.data[off:], "\x00")
	if len(rest) == 0 {
		return nil
	}
	var h [frameHeader]byte
	for at := alignUp(off+1, frameAlign); at < off+int64(len(rest)); at += frameAlign {
		if o.data[at] != mark || physicalEnd(at, frameHeader) > int64(len(o.data)) {
			continue
		}
		if hd, ok := parseHeader(gather(h[:0], o.data, at, frameHeader), at, seed); ok && hd.durable > off {
			return o.corrupt(seq, off, "expected a frame or segment header, found it missing or incomplete, although the frame at offset %d"+
				" says that everything before offset %d was durable", at, hd.durable)
		}
	}
	o.tornFile, o.tornOffset, o.tornBytes = o.path(seq), off, int64(len(rest))
	return nil
}

// replay reads the frames of a segment. next is the segment after it, nil for the last.
func (o *opener) replay(s segmentInfo, next *segmentInfo) error {
	if int64(cap(o.data)) < s.size {
		o.data = make([]byte, s.size)
	}
	o.data = o.data[:s.size]
	if _, err := o.read(s.seq, o.data); err != nil {
		return err
	}
	o.off, o.chain, o.seed, o.unsynced = segmentHeader, s.crc, frameSeed(s.meta, s.seq), 0
	for next == nil || o.off < next.prevEnd {
		f, written, err := o.frameAt(s.seq)
		if err != nil {
			return err
		}
		if !written && next == nil {
			return o.checkTorn(s.seq, o.off, o.seed)
		}
		if !written {
			return o.corrupt(s.seq, o.off, "expected a frame, found none, although the next segment says that this one ends at offset %d", next.prevEnd)
		}
		if err := o.apply(f); err != nil {
			return o.corrupt(s.seq, o.off, "%v", err)
		}
		o.off, o.chain, o.unsynced = f.next, f.bodyCRC, f.durable
	}
	if o.off != next.prevEnd || o.chain != next.prevChain {
		return o.corrupt(s.seq, o.off, "expected the segment to end at offset %d with checksum %08x as the next one says, found its end at %d with %08x",
			next.prevEnd, next.prevChain, o.off, o.chain)
	}
	return nil
}

// frame is a frame read back.
type frame struct {
	header
	payload []byte
	next    int64 // offset of the frame after it
}

// frameAt reads the frame at off. written is false when none was written there,
// or one only in part: when one of the bytes that are never zero is zero.
func (o *opener) frameAt(seq uint64) (f frame, written bool, err error) {
	size := int64(len(o.data))
	headEnd := physicalEnd(o.off, frameHeader)
	if o.off >= size || headEnd > size {
		return f, false, nil
	}
	nonZero := func(b byte) bool { return b != 0 }
	var buf [frameHeader]byte
	h := gather(buf[:0], o.data, o.off, frameHeader)
	if h[0] == 0 || h[frameHeader-1] == 0 || !marksIn(o.data, o.off, headEnd, nonZero) {
		return f, false, nil
	}
	var ok bool
	if f.header, ok = parseHeader(h, o.off, o.seed); !ok {
		return f, true, o.corrupt(seq, o.off, "the checksum of the frame header does not match")
	}
	n := frameHeader + f.length + frameEnd
	end := physicalEnd(o.off, n)
	if end > size {
		return f, true, o.corrupt(seq, o.off, "expected a frame within the file, found one that ends at offset %d", end)
	}
	if o.data[end-1] == 0 || !marksIn(o.data, o.off, end-1, nonZero) {
		return f, false, nil
	}
	isMark := func(b byte) bool { return b == mark }
	body := o.gather(n)
	if o.data[end-1] != mark || !marksIn(o.data, o.off, end-1, isMark) || chainCRC(o.chain, body) != f.bodyCRC {
		return f, true, o.corrupt(seq, o.off, "the checksum of the frame of %d bytes does not match", end-o.off)
	}
	f.next = min(alignUp(end, frameAlign), size)
	if len(bytes.Trim(o.data[end:f.next], "\x00")) != 0 {
		return f, true, o.corrupt(seq, end, "expected zeros behind the frame, found %x", o.data[end:f.next])
	}
	f.payload = body[frameHeader : n-frameEnd]
	return f, true, nil
}

// gather takes n bytes of body at off into memory that outlives the segment's buffer.
func (o *opener) gather(n int) []byte {
	const chunk = 256 << 10
	if cap(o.arena)-len(o.arena) < n {
		o.arena = make([]byte, 0, max(n, chunk))
	}
	at := len(o.arena)
	o.arena = gather(o.arena, o.data, o.off, n)
	return o.arena[at:len(o.arena):len(o.arena)]
}

// apply takes over what a frame says.
func (o *opener) apply(f frame) error {
	rest, hard, reset := f.payload, o.hard, Position{}
	ok := true
	if f.flags&flagHardState != 0 {
		rest, ok = uvarints(rest, &hard.term, &hard.vote, &hard.commit)
	}
	if ok && f.flags&flagReset != 0 {
		rest, ok = uvarints(rest, &reset.Index, &reset.Term)
	}
	if !ok {
		return errors.New("expected a hard state or position, found bytes that are none")
	}
	ents, n, err := raftcodec.DecodeEntries(rest)
	if err != nil {
		return err
	}
	if n != len(rest) {
		return fmt.Errorf("expected %d bytes of entries, found %d", n, len(rest))
	}
	o.hard = hard
	if f.flags&flagReset != 0 {
		o.start, o.last, o.entries = reset, reset, nil
	}
	for _, e := range ents {
		if err := o.add(e); err != nil {
			return err
		}
	}
	return nil
}

func uvarints(src []byte, dst ...*uint64) (rest []byte, ok bool) {
	for _, d := range dst {
		v, n := binary.Uvarint(src)
		if n <= 0 {
			return nil, false
		}
		*d, src = v, src[n:]
	}
	return src, true
}

// add appends an entry, replacing those from its index on.
func (o *opener) add(e *raftpb.Entry) error {
	pos := Position{Index: e.GetIndex(), Term: e.GetTerm()}
	switch {
	case pos.Index == 0 || pos.Index > o.last.Index+1:
		return fmt.Errorf("expected an entry with an index up to %d, found index %d", o.last.Index+1, pos.Index)
	case pos.Index <= o.start.Index:
		// It replaced an entry of a segment since removed. What follows it is
		// kept; the entry itself was released with its predecessor.
		o.start, o.entries = pos, nil
	default:
		o.entries = append(o.entries[:pos.Index-o.start.Index-1], e)
	}
	o.last = pos
	return nil
}

// repair opens the last segment for writing, wipes the remains of a torn write,
// and makes durable what has been read. Bytes not known to be durable are
// written again first: they may exist only in the page cache, marked clean
// by a flush that failed when another process had the log open.
func (o *opener) repair() error {
	for _, name := range o.leftOver {
		if err := o.fs.Remove(name); err != nil {
			return fmt.Errorf("wal: remove left-over file %s: %w", name, err)
		}
	}
	name := o.path(o.current.seq)
	file, err := o.fs.OpenReadWrite(name)
	if err != nil {
		return fmt.Errorf("wal: open %s for writing: %w", name, err)
	}
	o.file = file
	o.tail = slices.Clone(o.data[o.off/pageSize*pageSize : o.off])
	wipe := o.off
	if o.tornBytes > 0 {
		o.opts.Logger.Warn("removing the remains of an append that was cut short",
			zap.String("file", o.tornFile), zap.Int64("offset", o.tornOffset), zap.Int64("bytes", o.tornBytes))
		if o.tornFile == name {
			wipe += o.tornBytes
			clear(o.data[o.off:wipe])
		}
	}
	if _, err := file.WriteAt(o.data[o.unsynced:wipe], o.unsynced); err != nil {
		return fmt.Errorf("wal: repair %s from offset %d to %d: %w", name, o.unsynced, wipe, err)
	}
	if o.opts.UnsafeNoSync {
		o.durable = o.unsynced
		return nil
	}
	if err := errors.Join(file.Sync(), o.fs.SyncDir(o.dir)); err != nil {
		return fmt.Errorf("wal: make %s durable: %w", name, err)
	}
	o.durable = o.off
	return nil
}
