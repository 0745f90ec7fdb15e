package mvcc

import (
	"errors"
	"math/bits"

	"google.golang.org/protobuf/encoding/protowire"
)

// This file writes and reads rows, which are marshalled kvpb.KeyValue messages, without going through the message:
// the store reads no values, and needs one allocation to write one. Fields are written in the order of their
// numbers, and zeros are left out, as protobuf libraries do, since the bytes are part of the hash that members
// compare.
const (
	fieldKey     protowire.Number = 1
	fieldCreate  protowire.Number = 2
	fieldMod     protowire.Number = 3
	fieldVersion protowire.Number = 4
	fieldValue   protowire.Number = 5
	fieldLease   protowire.Number = 6
)

var errRow = errors.New("not a valid row")

// head is a row without its value.
type head struct {
	key                         []byte // within the row
	create, mod, version, lease int64
}

// rowSize is the length of a row.
func rowSize(keyLen, valueLen int, h *head) int {
	return fieldSize(keyLen) + intSize(h.create) + intSize(h.mod) + intSize(h.version) + fieldSize(valueLen) + intSize(h.lease)
}

func fieldSize(n int) int {
	if n == 0 {
		return 0
	}
	return 1 + varintSize(uint64(n)) + n
}

func intSize(v int64) int {
	if v == 0 {
		return 0
	}
	return 1 + varintSize(uint64(v))
}

func varintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// appendRow appends to dst the row of key with value; h.key is not used.
func appendRow[K string | []byte](dst []byte, key K, h *head, value []byte) []byte {
	dst = appendKey(dst, key)
	dst = appendInt(dst, fieldCreate, h.create)
	dst = appendInt(dst, fieldMod, h.mod)
	dst = appendInt(dst, fieldVersion, h.version)
	if len(value) > 0 {
		dst = protowire.AppendTag(dst, fieldValue, protowire.BytesType)
		dst = protowire.AppendBytes(dst, value)
	}
	return appendInt(dst, fieldLease, h.lease)
}

func appendKey[K string | []byte](dst []byte, key K) []byte {
	dst = protowire.AppendTag(dst, fieldKey, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(len(key)))
	return append(dst, key...)
}

func appendInt(dst []byte, field protowire.Number, v int64) []byte {
	if v == 0 {
		return dst
	}
	dst = protowire.AppendTag(dst, field, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(v))
}

// newRow makes a row; keyIn is the key within it.
func newRow(key string, h *head, value []byte) (row, keyIn []byte) {
	row = appendRow(make([]byte, 0, rowSize(len(key), len(value), h)), key, h, value)
	return row, keyOf(row, len(key))
}

// newTombstone makes the row of a deletion; keyIn is the key within it.
func newTombstone(key string) (row, keyIn []byte) {
	row = appendKey(make([]byte, 0, fieldSize(len(key))), key)
	return row, keyOf(row, len(key))
}

// keyOf gives the key, n bytes long, within a row written by this file.
func keyOf(row []byte, n int) []byte {
	at := 1 + varintSize(uint64(n))
	return row[at : at+n : at+n]
}

// readHead reads all of a row but the value, which it passes over like fields it does not know.
func readHead(row []byte) (h head, err error) {
	for len(row) > 0 {
		num, typ, n := protowire.ConsumeTag(row)
		if n < 0 {
			return head{}, errRow
		}
		row = row[n:]
		switch {
		case typ == protowire.BytesType && num == fieldKey:
			h.key, n = protowire.ConsumeBytes(row)
		case typ == protowire.VarintType:
			var v uint64
			v, n = protowire.ConsumeVarint(row)
			h.set(num, int64(v))
		default:
			n = protowire.ConsumeFieldValue(num, typ, row)
		}
		if n < 0 {
			return head{}, errRow
		}
		row = row[n:]
	}
	if len(h.key) == 0 {
		return head{}, errRow
	}
	return h, nil
}

func (h *head) set(num protowire.Number, v int64) {
	switch num {
	case fieldCreate:
		h.create = v
	case fieldMod:
		h.mod = v
	case fieldVersion:
		h.version = v
	case fieldLease:
		h.lease = v
	}
}

// StripValue appends to dst the row without its value. All other fields stay. What cannot be read is appended as
// it is, for whoever decodes it to find.
func StripValue(row, dst []byte) []byte {
	for len(row) > 0 {
		num, _, n := protowire.ConsumeField(row)
		if n < 0 {
			return append(dst, row...)
		}
		if num != fieldValue {
			dst = append(dst, row[:n]...)
		}
		row = row[n:]
	}
	return dst
}
