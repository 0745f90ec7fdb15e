package raftcodec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrMalformed is wrapped by all decoding errors: the bytes are not what an
// encoder of this version makes. Nothing was decoded.
var ErrMalformed = errors.New("malformed raft encoding")

// reader takes values off the front of buf. The first failure sticks: later
// calls return zero values, so callers check err once.
type reader struct {
	buf   []byte
	total int // bytes at the start, to tell offsets
	err   error
}

func newReader(src []byte) reader { return reader{buf: src, total: len(src)} }

// used is the number of bytes taken.
func (r *reader) used() int { return r.total - len(r.buf) }

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s at byte %d of %d", ErrMalformed, what, r.used(), r.total)
	}
	r.buf = nil
}

func (r *reader) byte() byte {
	if len(r.buf) == 0 {
		r.fail("input ends early")
		return 0
	}
	b := r.buf[0]
	r.buf = r.buf[1:]
	return b
}

// mask takes one byte of bits, of which none but those in known may be set.
func (r *reader) mask(known byte) byte {
	b := r.byte()
	if b&^known != 0 {
		r.fail("unknown field")
		return 0
	}
	return b
}

func (r *reader) bool() bool {
	b := r.byte()
	if b > 1 {
		r.fail("bad truth value")
	}
	return b == 1
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.buf)
	if n <= 0 {
		r.fail("bad number")
		return 0
	}
	r.buf = r.buf[n:]
	return v
}

// enum takes a value of a protobuf enumeration. Negative ones are refused:
// raft uses them to index tables.
func (r *reader) enum() int32 {
	v := r.uvarint()
	if v > math.MaxInt32 {
		r.fail("bad enumeration value")
		return 0
	}
	return int32(v)
}

// count takes the number of things that follow, each of at least one byte.
func (r *reader) count() int {
	n := r.uvarint()
	if n > uint64(len(r.buf)) {
		r.fail("count exceeds input")
		return 0
	}
	return int(n)
}

// bytes takes a byte string, which aliases the input and is never nil.
func (r *reader) bytes() []byte {
	n := r.count()
	if r.err != nil {
		return nil
	}
	b := r.buf[:n:n]
	r.buf = r.buf[n:]
	return b
}
