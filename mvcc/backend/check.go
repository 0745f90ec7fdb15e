package backend

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"runtime/debug"
)

// This file checks the structure of a bbolt file before bbolt is let loose on it: bbolt checks the two meta pages,
// trusts the rest, and panics on a goroutine of its own if that is wrong. The check reads the header and the
// element table of each page in use, and the keys; values are not read. Numbers are in the byte order of the
// machine, as bbolt has them.
//
//	page      id 8, flags 2, count 2, overflow 4 (further pages that belong to it), then the elements
//	leaf      flags 4 (1 = a bucket), pos 4 (from the start of the element to its key), key size 4, value size 4
//	branch    pos 4, key size 4, page 8
//	bucket    root page 8 (0 = the page follows inline), sequence 8
//	meta      magic 4, version 4, page size 4, flags 4, root bucket 16, freelist page 8,
//	          first unused page 8, transaction 8, FNV-1a of all before 8
const (
	pageHeader     = 16
	elementSize    = 16
	bucketHeader   = 16
	metaSize       = 64
	metaMagic      = 0xED0CDAED
	metaVersion    = 2
	flagBranch     = 0x01
	flagLeaf       = 0x02
	flagFreelist   = 0x10
	elementBucket  = 0x01
	noFreelist     = ^uint64(0)
	minPageSize    = 1 << 10
	maxPageSize    = 1 << 24
	maxFreeInCount = 0xFFFF
)

var native = binary.NativeEndian

// checker walks over the pages of one file.
type checker struct {
	data     []byte
	pageSize uint64
	unused   uint64 // the first page number that is not in use
	seen     []bool // pages reached
}

// checkFile checks the file f, size bytes long. An empty file is good. Errors are errDamaged with what was found.
func checkFile(f *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	if size < 2*minPageSize {
		return fmt.Errorf("%w: only %d bytes long", errDamaged, size)
	}
	data, unmap, err := mapFile(f, size)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unmap()
	return checkData(data)
}

// checkData checks the contents of a file.
func checkData(data []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // the file may have become shorter meanwhile
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: cannot be read: %v", errDamaged, p)
		}
	}()
	c := &checker{data: data}
	root, freelist, err := c.meta()
	if err != nil {
		return err
	}
	if err := c.freelist(freelist); err != nil {
		return err
	}
	return c.bucket(root)
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errDamaged, fmt.Sprintf(format, args...))
}

// meta finds the newer valid meta page, as bbolt does: the first page tells the page size; if it is broken, the
// second is searched at all sizes.
func (c *checker) meta() (root, freelist uint64, err error) {
	best := validMeta(c.data, 0)
	if best != nil {
		if second := validMeta(c.data, uint64(native.Uint32(best[8:]))); second != nil && native.Uint64(second[48:]) > native.Uint64(best[48:]) {
			best = second
		}
	}
	for at := uint64(minPageSize); best == nil && at <= maxPageSize; at *= 2 {
		best = validMeta(c.data, at)
	}
	if best == nil {
		return 0, 0, damaged("it has no valid meta page")
	}
	c.pageSize, c.unused = uint64(native.Uint32(best[8:])), native.Uint64(best[40:])
	switch have := uint64(len(c.data)) / max(c.pageSize, 1); {
	case c.pageSize < minPageSize || c.pageSize > maxPageSize || c.pageSize&(c.pageSize-1) != 0:
		return 0, 0, damaged("its page size is %d", c.pageSize)
	case c.unused > have:
		return 0, 0, damaged("it has been cut off: %d pages of %d bytes are in use, %d are there", c.unused, c.pageSize, have)
	case c.unused < 4:
		return 0, 0, damaged("only %d pages are in use", c.unused)
	}
	c.seen = make([]bool, c.unused)
	return native.Uint64(best[16:]), native.Uint64(best[32:]), nil
}

// validMeta gives the meta record in the page at offset at, or nil if there is no valid one.
func validMeta(data []byte, at uint64) []byte {
	if at+pageHeader+metaSize > uint64(len(data)) {
		return nil
	}
	m := data[at+pageHeader:][:metaSize]
	sum := fnv.New64a()
	sum.Write(m[:metaSize-8])
	if native.Uint32(m) != metaMagic || native.Uint32(m[4:]) != metaVersion || native.Uint64(m[metaSize-8:]) != sum.Sum64() {
		return nil
	}
	return m
}

// page gives the bytes of page id with its overflow, having checked that its header makes sense and that it
// is reached for the first time.
func (c *checker) page(id uint64) ([]byte, error) {
	if id < 2 || id >= c.unused {
		return nil, damaged("page %d is out of bounds", id)
	}
	p := c.data[id*c.pageSize:]
	if got := native.Uint64(p); got != id {
		return nil, damaged("page %d says it is page %d", id, got)
	}
	end := id + 1 + uint64(native.Uint32(p[12:]))
	if end > c.unused {
		return nil, damaged("page %d goes on to page %d, out of bounds", id, end-1)
	}
	for i := id; i < end; i++ {
		if c.seen[i] {
			return nil, damaged("page %d is used twice", i)
		}
		c.seen[i] = true
	}
	return p[:(end-id)*c.pageSize], nil
}

// freelist checks the page of free page numbers, if there is one.
func (c *checker) freelist(id uint64) error {
	if id == noFreelist {
		return nil
	}
	p, err := c.page(id)
	if err != nil {
		return err
	}
	if native.Uint16(p[8:]) != flagFreelist {
		return damaged("page %d is not the freelist it should be", id)
	}
	list, n := p[pageHeader:], uint64(native.Uint16(p[10:]))
	if n == maxFreeInCount {
		n, list = native.Uint64(list), list[8:]
	}
	if n > uint64(len(list))/8 {
		return damaged("the freelist has %d entries, too many for its pages", n)
	}
	for i := range n {
		if free := native.Uint64(list[8*i:]); free < 2 || free >= c.unused {
			return damaged("the freelist names page %d, out of bounds", free)
		}
	}
	return nil
}

// bucket checks the tree of a bucket that has pages of its own.
func (c *checker) bucket(root uint64) error { return c.tree(root, nil, nil) }

// tree checks the subtree at page id, whose keys must be ≥ low, and < high unless that is nil.
func (c *checker) tree(id uint64, low, high []byte) error {
	p, err := c.page(id)
	if err != nil {
		return err
	}
	switch native.Uint16(p[8:]) {
	case flagBranch:
		return c.branch(id, p, low, high)
	case flagLeaf:
		return c.leaf(id, p, low, high)
	}
	return damaged("page %d is neither branch nor leaf", id)
}

// element gives the 16 bytes of element i of page p, and the bytes from its key on.
func element(id uint64, p []byte, i int, posAt int) (e, rest []byte, err error) {
	start := pageHeader + elementSize*uint64(i)
	if start+elementSize > uint64(len(p)) {
		return nil, nil, damaged("page %d has too many elements", id)
	}
	e = p[start:][:elementSize]
	at := start + uint64(native.Uint32(e[posAt:]))
	if at > uint64(len(p)) {
		return nil, nil, damaged("page %d: element %d is out of bounds", id, i)
	}
	return e, p[at:], nil
}

// inOrder checks a key against its neighbours.
func inOrder(id uint64, i int, key, before, low, high []byte) error {
	if len(key) == 0 || i > 0 && bytes.Compare(before, key) >= 0 || i == 0 && bytes.Compare(key, low) < 0 || high != nil && bytes.Compare(key, high) >= 0 {
		return damaged("page %d: key %d is out of order", id, i)
	}
	return nil
}

func (c *checker) branch(id uint64, p, low, high []byte) error {
	n := int(native.Uint16(p[10:]))
	if n == 0 {
		return damaged("page %d is a branch without elements", id)
	}
	key := func(i int) (key []byte, page uint64, err error) {
		e, rest, err := element(id, p, i, 0)
		if err != nil {
			return nil, 0, err
		}
		size := uint64(native.Uint32(e[4:]))
		if size > uint64(len(rest)) {
			return nil, 0, damaged("page %d: key %d is out of bounds", id, i)
		}
		return rest[:size], native.Uint64(e[8:]), nil
	}
	k, child, err := key(0)
	if err != nil {
		return err
	}
	var before []byte
	for i := range n {
		if err := inOrder(id, i, k, before, low, high); err != nil {
			return err
		}
		next, nextChild := high, uint64(0)
		if i+1 < n {
			if next, nextChild, err = key(i + 1); err != nil {
				return err
			}
		}
		if err := c.tree(child, k, next); err != nil {
			return err
		}
		before, k, child = k, next, nextChild
	}
	return nil
}

func (c *checker) leaf(id uint64, p, low, high []byte) error {
	var before []byte
	for i := range int(native.Uint16(p[10:])) {
		e, rest, err := element(id, p, i, 4)
		if err != nil {
			return err
		}
		ksize, vsize := uint64(native.Uint32(e[8:])), uint64(native.Uint32(e[12:]))
		if ksize+vsize > uint64(len(rest)) {
			return damaged("page %d: element %d is out of bounds", id, i)
		}
		key, value := rest[:ksize], rest[ksize:][:vsize]
		if err := inOrder(id, i, key, before, low, high); err != nil {
			return err
		}
		before = key
		if native.Uint32(e)&elementBucket != 0 {
			if err := c.child(id, i, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// child checks the bucket whose record is value, element i of page id.
func (c *checker) child(id uint64, i int, value []byte) error {
	if len(value) < bucketHeader {
		return damaged("page %d: bucket %d has a record of %d bytes", id, i, len(value))
	}
	if root := native.Uint64(value); root != 0 {
		return c.bucket(root)
	}
	inline := value[bucketHeader:]
	if len(inline) < pageHeader || native.Uint16(inline[8:]) != flagLeaf {
		return damaged("page %d: bucket %d has no valid inline page", id, i)
	}
	return c.leaf(id, inline, nil, nil)
}
