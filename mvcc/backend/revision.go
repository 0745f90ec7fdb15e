package backend

import (
	"cmp"
	"encoding/binary"
	"math"
)

// Revision numbers one change of one key. Main is the revision of the transaction, Sub counts the changes within
// it from 0. Its zero value is before all revisions.
type Revision struct {
	Main, Sub int64
}

// Compare is negative, zero or positive as r is before, equal to, or after o.
func (r Revision) Compare(o Revision) int {
	return cmp.Or(cmp.Compare(r.Main, o.Main), cmp.Compare(r.Sub, o.Sub))
}

// EndOf gives a revision that is not before any revision of the transaction main.
func EndOf(main int64) Revision { return Revision{Main: main, Sub: math.MaxInt64} }

// RowID names a row in the file, whose key says whether the row is a tombstone.
type RowID struct {
	Revision
	Tombstone bool
}

const (
	rowKeyLen     = 17
	rowKeyMaxLen  = rowKeyLen + 1
	rowKeyDivider = '_'
	tombstoneMark = 't'
)

// RowKey is the encoded key of a row with its length, made to live on the stack.
type RowKey struct {
	buf [rowKeyMaxLen]byte
	n   int
}

// EncodeRowKey gives the key of the row id in the bucket of rows. Keys sort like revisions.
func EncodeRowKey(id RowID) RowKey {
	k := RowKey{n: rowKeyLen}
	binary.BigEndian.PutUint64(k.buf[:], uint64(id.Main))
	k.buf[8] = rowKeyDivider
	binary.BigEndian.PutUint64(k.buf[9:], uint64(id.Sub))
	if id.Tombstone {
		k.buf[rowKeyLen] = tombstoneMark
		k.n++
	}
	return k
}

// Bytes is the encoded key. It is valid as long as k is.
func (k *RowKey) Bytes() []byte { return k.buf[:k.n] }

// DecodeRowKey is the inverse of [EncodeRowKey]; ok is false if key is no key of a row.
func DecodeRowKey(key []byte) (id RowID, ok bool) {
	switch {
	case len(key) == rowKeyLen:
	case len(key) == rowKeyMaxLen && key[rowKeyLen] == tombstoneMark:
		id.Tombstone = true
	default:
		return RowID{}, false
	}
	if key[8] != rowKeyDivider {
		return RowID{}, false
	}
	id.Main = int64(binary.BigEndian.Uint64(key))
	id.Sub = int64(binary.BigEndian.Uint64(key[9:]))
	return id, id.Main >= 0 && id.Sub >= 0
}
