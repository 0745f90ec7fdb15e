package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/coordd/coordd/pkg/vfs"
)

const (
	segmentMagic   = "coorddWL"
	segmentVersion = 1
	segmentHeader  = sectorSize // frames begin after the first sector
	segmentSuffix  = ".wal"
	tempSuffix     = ".tmp"
	headerFields   = 104 // bytes of the segment header under its checksum

	minSegmentBytes     = 4 * pageSize
	defaultSegmentBytes = 64_000_000
)

// segmentInfo is the decoded header of a segment file.
type segmentInfo struct {
	seq   uint64
	size  int64 // of the file, in bytes
	meta  Metadata
	start Position // last position of the log when the segment was begun
	hard  hardState
	// Where the frames of the segment before end and the chain value there;
	// zero for the first segment ever.
	prevEnd   int64
	prevChain uint32
	crc       uint32 // of this header: the chain of its frames begins with it
}

func segmentName(seq uint64) string { return fmt.Sprintf("%016x%s", seq, segmentSuffix) }

// parseSegmentName reports the sequence number in a segment's file name.
func parseSegmentName(name string) (seq uint64, ok bool) {
	digits, found := strings.CutSuffix(name, segmentSuffix)
	if !found || len(digits) != 16 {
		return 0, false
	}
	seq, err := strconv.ParseUint(digits, 16, 64)
	return seq, err == nil && segmentName(seq) == name
}

// encode appends the header sector to dst and notes its checksum in s.
func (s *segmentInfo) encode(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, segmentHeader)...)
	h := dst[at:]
	copy(h, segmentMagic)
	binary.LittleEndian.PutUint32(h[8:], segmentVersion)
	for i, v := range [...]uint64{
		uint64(s.size), s.seq, s.meta.MemberID, s.meta.ClusterID, s.start.Index, s.start.Term,
		s.hard.term, s.hard.vote, s.hard.commit, uint64(s.prevEnd),
	} {
		binary.LittleEndian.PutUint64(h[16+8*i:], v)
	}
	binary.LittleEndian.PutUint32(h[96:], s.prevChain)
	s.crc = crc32.Checksum(h[:headerFields], castagnoli)
	binary.LittleEndian.PutUint32(h[headerFields:], s.crc)
	h[segmentHeader-1] = mark
	return dst
}

// headerWritten tells whether a header sector was written at all. Its first and
// last byte are never zero, so a torn write leaves one of them zero.
func headerWritten(h []byte) bool { return h[0] != 0 && h[segmentHeader-1] != 0 }

// decodeSegment reads the header sector of the file with this sequence number
// and size. The error says what was expected.
func decodeSegment(h []byte, seq uint64, size int64) (segmentInfo, error) {
	u64 := func(i int) uint64 { return binary.LittleEndian.Uint64(h[16+8*i:]) }
	s := segmentInfo{
		size: int64(u64(0)), seq: u64(1),
		meta:      Metadata{MemberID: u64(2), ClusterID: u64(3)},
		start:     Position{Index: u64(4), Term: u64(5)},
		hard:      hardState{term: u64(6), vote: u64(7), commit: u64(8)},
		prevEnd:   int64(u64(9)),
		prevChain: binary.LittleEndian.Uint32(h[96:]),
		crc:       binary.LittleEndian.Uint32(h[headerFields:]),
	}
	rest := h[headerFields+4 : segmentHeader-1]
	switch {
	case string(h[:8]) != segmentMagic:
		return s, fmt.Errorf("expected a segment header beginning with %q, found %q", segmentMagic, h[:8])
	case crc32.Checksum(h[:headerFields], castagnoli) != s.crc || h[segmentHeader-1] != mark || len(bytes.Trim(rest, "\x00")) != 0:
		return s, errors.New("the checksum of the segment header does not match")
	case binary.LittleEndian.Uint32(h[8:]) != segmentVersion:
		return s, fmt.Errorf("expected format version %d, found %d: use the version of coordd that wrote it", segmentVersion, binary.LittleEndian.Uint32(h[8:]))
	case s.seq != seq:
		return s, fmt.Errorf("expected segment %d as the file name says, found the header of segment %d", seq, s.seq)
	case s.size != size || size < segmentHeader:
		return s, fmt.Errorf("expected a file of %d bytes as its header says, found %d bytes", s.size, size)
	}
	return s, nil
}

// buildSegment makes the file of a segment under a temporary name, gives it its
// size and head (which may be empty: a prepared segment), makes all that
// durable, and only then gives it its name. It returns the open file.
func buildSegment(fs vfs.FS, dir string, seq uint64, size int64, head []byte, noSync bool) (vfs.File, error) {
	name := filepath.Join(dir, segmentName(seq))
	temp := name + tempSuffix
	file, err := fs.Create(temp)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", temp, err)
	}
	err = fillSegment(file, size, head, noSync)
	if err == nil {
		err = fs.Rename(temp, name)
	}
	if err == nil && !noSync {
		err = fs.SyncDir(dir)
	}
	if err != nil {
		// Best effort: what is left is removed when the log is next opened.
		return nil, errors.Join(fmt.Errorf("prepare %s of %d bytes: %w", name, size, err), file.Close(), ignoreMissing(fs.Remove(temp)))
	}
	return file, nil
}

func fillSegment(file vfs.File, size int64, head []byte, noSync bool) error {
	if err := file.Preallocate(size); err != nil {
		return err
	}
	if len(head) > 0 {
		if _, err := file.WriteAt(head, 0); err != nil {
			return err
		}
	}
	if noSync {
		return nil
	}
	return file.Sync()
}
