package wal

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/coordd/coordd/pkg/vfs"
)

// The layout of frames; README.md draws it and argues for it.
const (
	sectorSize = vfs.SectorSize
	pageSize   = 4096
	zoneSize   = 128 << 10 // of which padZone writes the whole when it writes the first byte

	mark        = 0xD7 // first and last byte of a frame's header, last byte of a frame, last byte of a sector
	frameAlign  = 8
	frameHeader = 24
	frameEnd    = 1 // the closing mark

	// maxPayload bounds a frame: far above what raft hands over at once, far
	// below what the length and offset fields can say.
	maxPayload = 1 << 30
)

// Flags of a frame: what its payload holds besides entries.
const (
	flagHardState = 1 << iota
	flagReset

	flagBits = 1<<iota - 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frameSeed is mixed into the header checksum of each frame of a segment, so
// that a frame is valid only in the file (and, with its offset, at the place)
// it was written for, even when a value holds the bytes of another log.
func frameSeed(meta Metadata, seq uint64) uint32 {
	var b [24]byte
	binary.LittleEndian.PutUint64(b[0:], meta.MemberID)
	binary.LittleEndian.PutUint64(b[8:], meta.ClusterID)
	binary.LittleEndian.PutUint64(b[16:], seq)
	return crc32.Checksum(b[:], castagnoli)
}

// physicalEnd tells where n bytes end that begin at off, given that the last
// byte of each sector they run through is taken by a mark. It holds that
// off%sectorSize < sectorSize-1.
func physicalEnd(off int64, n int) int64 {
	room := sectorSize - 1 - int(off%sectorSize)
	if n <= room {
		return off + int64(n)
	}
	return off + int64(n) + 1 + int64((n-room-1)/(sectorSize-1))
}

func alignUp(n, to int64) int64 { return (n + to - 1) / to * to }

// spread appends body to dst as it lies on disk from off on, with its marks.
func spread(dst []byte, off int64, body []byte) []byte {
	room := sectorSize - 1 - int(off%sectorSize)
	for len(body) > room {
		dst = append(dst, body[:room]...)
		dst = append(dst, mark)
		body = body[room:]
		room = sectorSize - 1
	}
	return append(dst, body...)
}

// gather appends to dst the n bytes of body that lie in data from off on,
// without marks. data must reach to physicalEnd(off, n).
func gather(dst, data []byte, off int64, n int) []byte {
	room := sectorSize - 1 - int(off%sectorSize)
	for n > room {
		dst = append(dst, data[off:off+int64(room)]...)
		off += int64(room) + 1
		n -= room
		room = sectorSize - 1
	}
	return append(dst, data[off:off+int64(n)]...)
}

// marksIn calls visit with each sector mark in [off, end) until it returns false.
func marksIn(data []byte, off, end int64, visit func(b byte) bool) bool {
	for at := off/sectorSize*sectorSize + sectorSize - 1; at < end; at += sectorSize {
		if !visit(data[at]) {
			return false
		}
	}
	return true
}

// header is the decoded header of a frame.
type header struct {
	flags   byte
	length  int   // of the payload
	durable int64 // all bytes of the segment before it were durable when the frame was written
	bodyCRC uint32
}

// seal fills in the header at the front of body (header, payload, closing mark)
// for a frame at off, and returns the chain value after it.
func seal(body []byte, flags byte, off, durable int64, seed, chain uint32) uint32 {
	h := body[:frameHeader]
	clear(h)
	h[0] = mark
	h[1] = flags
	binary.LittleEndian.PutUint32(h[4:], uint32(len(body)-frameHeader-frameEnd))
	binary.LittleEndian.PutUint32(h[8:], uint32(durable/frameAlign))
	chain = chainCRC(chain, body)
	binary.LittleEndian.PutUint32(h[12:], chain)
	binary.LittleEndian.PutUint32(h[16:], headerCRC(h, off, seed))
	h[frameHeader-1] = mark
	body[len(body)-1] = mark
	return chain
}

// chainCRC continues the running checksum over a frame: the part of its header
// that says what the payload is, then the payload.
func chainCRC(chain uint32, body []byte) uint32 {
	chain = crc32.Update(chain, castagnoli, body[:12])
	return crc32.Update(chain, castagnoli, body[frameHeader:len(body)-frameEnd])
}

// headerCRC covers the header up to itself, the segment and the offset.
func headerCRC(h []byte, off int64, seed uint32) uint32 {
	crc := crc32.Update(seed, castagnoli, h[:16])
	// The offset is folded in without a buffer, which would escape to the heap.
	return crc ^ uint32(off/frameAlign)*0x9E3779B1
}

// parseHeader checks the header h of a frame at off. ok is false when it is not
// one that seal made for this place.
func parseHeader(h []byte, off int64, seed uint32) (hd header, ok bool) {
	if h[0] != mark || h[frameHeader-1] != mark || h[1]&^flagBits != 0 ||
		h[2]|h[3]|h[20]|h[21]|h[22] != 0 ||
		binary.LittleEndian.Uint32(h[16:]) != headerCRC(h, off, seed) {
		return header{}, false
	}
	hd = header{
		flags:   h[1],
		length:  int(binary.LittleEndian.Uint32(h[4:])),
		durable: int64(binary.LittleEndian.Uint32(h[8:])) * frameAlign,
		bodyCRC: binary.LittleEndian.Uint32(h[12:]),
	}
	return hd, hd.length <= maxPayload && hd.durable <= off
}
