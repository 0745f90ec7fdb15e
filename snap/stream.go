package snap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// ErrDamaged is wrapped by the errors of a stream or file that is not what was
// sent: a bad checksum, a wrong length, a wrong position.
var ErrDamaged = errors.New("snapshot is damaged")

// Position is the place in the raft log whose state a snapshot holds.
type Position struct{ Index, Term uint64 }

// Header begins a stream and a description file.
type Header struct {
	Position Position
	Size     int64 // bytes of the snapshot file
}

const (
	magic       = "coorddSN"
	version     = 1
	headerBytes = 40
	chunkHeader = 8
	chunkBytes  = 256 << 10 // what Send puts into a chunk
	maxChunk    = 4 << 20   // what Receive accepts
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendHeader appends: magic (8 bytes), version (4), index (8), term (8),
// size (8), CRC-32C of all that (4).
func appendHeader(dst []byte, h Header) []byte {
	at := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, version)
	dst = binary.LittleEndian.AppendUint64(dst, h.Position.Index)
	dst = binary.LittleEndian.AppendUint64(dst, h.Position.Term)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Size))
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
}

func decodeHeader(b []byte) (Header, error) {
	h := Header{
		Position: Position{Index: binary.LittleEndian.Uint64(b[12:]), Term: binary.LittleEndian.Uint64(b[20:])},
		Size:     int64(binary.LittleEndian.Uint64(b[28:])),
	}
	switch {
	case string(b[:8]) != magic:
		return h, fmt.Errorf("%w: expected it to begin with %q, found %q", ErrDamaged, magic, b[:8])
	case binary.LittleEndian.Uint32(b[36:]) != crc32.Checksum(b[:36], castagnoli):
		return h, fmt.Errorf("%w: the checksum of its header does not match", ErrDamaged)
	case binary.LittleEndian.Uint32(b[8:]) != version:
		return h, fmt.Errorf("%w: expected format version %d, found %d: use the same version of coordd on all members", ErrDamaged, version, binary.LittleEndian.Uint32(b[8:]))
	case h.Size < 0:
		return h, fmt.Errorf("%w: its header says it has %d bytes", ErrDamaged, h.Size)
	}
	return h, nil
}

// Send writes a snapshot to w as a stream that Receive can check: the header,
// then the h.Size bytes that it reads from r in chunks, each with the running
// checksum so far, then an empty chunk. It stops between chunks when ctx ends;
// to interrupt a blocked read or write, close what r and w stand on. It writes
// in pieces of 256 KiB and needs no buffering.
func Send(ctx context.Context, w io.Writer, h Header, r io.Reader) error {
	if _, err := w.Write(appendHeader(nil, h)); err != nil {
		return fmt.Errorf("snap: send the header of snapshot %d: %w", h.Position.Index, err)
	}
	buf := make([]byte, chunkHeader+chunkBytes)
	var crc uint32
	for left := h.Size; ; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("snap: send snapshot %d: %w", h.Position.Index, context.Cause(ctx))
		}
		n := int(min(left, chunkBytes))
		data := buf[chunkHeader : chunkHeader+n]
		if _, err := io.ReadFull(r, data); err != nil {
			return fmt.Errorf("snap: read snapshot %d to be sent, %d of %d bytes left: %w", h.Position.Index, left, h.Size, err)
		}
		crc = crc32.Update(crc, castagnoli, data)
		binary.LittleEndian.PutUint32(buf[0:], uint32(n))
		binary.LittleEndian.PutUint32(buf[4:], crc)
		if _, err := w.Write(buf[:chunkHeader+n]); err != nil {
			return fmt.Errorf("snap: send snapshot %d, %d of %d bytes left: %w", h.Position.Index, left, h.Size, err)
		}
		if n == 0 {
			return nil
		}
		left -= int64(n)
	}
}

// ReadHeader reads the header of a stream made by Send and nothing more. The
// rest can be given to Receive with io.MultiReader, or checked and dropped.
func ReadHeader(r io.Reader) (Header, error) {
	var b [headerBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return Header{}, fmt.Errorf("snap: read the header of a snapshot: %w", noEOF(err))
	}
	h, err := decodeHeader(b[:])
	if err != nil {
		return Header{}, fmt.Errorf("snap: %w", err)
	}
	return h, nil
}

// chunks reads the chunks of a stream after its header and hands each to sink,
// which must not keep it. It returns the checksum of all bytes.
func chunks(ctx context.Context, h Header, r io.Reader, sink func(p []byte, off int64) error) (uint32, error) {
	buf := make([]byte, chunkHeader+chunkBytes)
	var crc uint32
	for off := int64(0); ; {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		head := buf[:chunkHeader]
		if _, err := io.ReadFull(r, head); err != nil {
			return 0, fmt.Errorf("the stream broke off after %d of %d bytes: %w", off, h.Size, noEOF(err))
		}
		n, want := int(binary.LittleEndian.Uint32(head[0:])), binary.LittleEndian.Uint32(head[4:])
		if n > maxChunk || int64(n) > h.Size-off {
			return 0, fmt.Errorf("%w: a chunk of %d bytes after %d of %d bytes", ErrDamaged, n, off, h.Size)
		}
		if n > len(buf) {
			buf = make([]byte, n)
		}
		data := buf[:n]
		if _, err := io.ReadFull(r, data); err != nil {
			return 0, fmt.Errorf("the stream broke off after %d of %d bytes: %w", off, h.Size, noEOF(err))
		}
		if crc = crc32.Update(crc, castagnoli, data); crc != want {
			return 0, fmt.Errorf("%w: expected checksum %08x after %d bytes, found %08x", ErrDamaged, want, off+int64(n), crc)
		}
		if n == 0 {
			if off != h.Size {
				return 0, fmt.Errorf("%w: expected %d bytes, the stream ended after %d", ErrDamaged, h.Size, off)
			}
			return crc, nil
		}
		if err := sink(data, off); err != nil {
			return 0, err
		}
		off += int64(n)
	}
}

// noEOF makes a stream that ends early an error that nobody takes for its end.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
