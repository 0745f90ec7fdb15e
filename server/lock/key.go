package lock

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/coordd/coordd/api/lockpb"
)

// keyOf is the key with which the holder of a lease stands in the queue of a name.
func keyOf(name []byte, lease int64) []byte {
	return strconv.AppendUint(prefixOf(name), uint64(lease), 16)
}

// leaseOf is the lease that a key of a queue must be attached to, by its form; ok is false for a key that is in no queue.
func leaseOf(key []byte) (name []byte, lease int64, ok bool) {
	i := bytes.LastIndexByte(key, '/')
	if i < 0 {
		return nil, 0, false
	}
	text := string(key[i+1:])
	id, err := strconv.ParseUint(text, 16, 64)
	if err != nil || id == 0 || strconv.FormatUint(id, 16) != text {
		return nil, 0, false
	}
	return key[:i], int64(id), true
}

// mode is how an entry shares the lock. The zero value is an ordinary, exclusive lock, as etcd's clients make.
type mode struct {
	shared bool
	limit  int64 // of a semaphore, at least 2; else 0
	guard  int64 // the lease of the entry's guard, 0 if it has none; see the package comment
	guards int64 // for a guard: the lease of the entry it stands behind
}

// same reports whether entries of both modes may hold together.
func (m mode) same(o mode) bool { return m.shared == o.shared && m.limit == o.limit }

// value is the mode as stored: nothing, which is what etcd's clients write, for an ordinary lock; else lockpb.ModeMark and words.
func (m mode) value() []byte {
	if m == (mode{}) {
		return nil
	}
	b := []byte(lockpb.ModeMark)
	if m.shared {
		b = append(b, " "+lockpb.WordShared...)
	}
	if m.limit != 0 {
		b = strconv.AppendInt(append(b, " "+lockpb.WordLimit+"="...), m.limit, 10)
	}
	if m.guard != 0 {
		b = strconv.AppendUint(append(b, " "+lockpb.WordGuard+"="...), uint64(m.guard), 16)
	}
	if m.guards != 0 {
		b = strconv.AppendUint(append(b, " "+lockpb.WordGuards+"="...), uint64(m.guards), 16)
	}
	return b
}

// parseMode reads a value. What is no mode is a value of an election, or somebody else's: that is exclusive.
func parseMode(value []byte) mode {
	rest, ok := bytes.CutPrefix(value, []byte(lockpb.ModeMark))
	if !ok {
		return mode{}
	}
	var m mode
	for _, word := range strings.Fields(string(rest)) {
		name, text, _ := strings.Cut(word, "=")
		switch name {
		case lockpb.WordShared:
			m.shared = true
		case lockpb.WordLimit:
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < 2 {
				return mode{}
			}
			m.limit = n
		case lockpb.WordGuard, lockpb.WordGuards:
			id, err := strconv.ParseUint(text, 16, 64)
			if err != nil {
				return mode{}
			}
			if name == lockpb.WordGuard {
				m.guard = int64(id)
			} else {
				m.guards = int64(id)
			}
		default:
			return mode{} // of a later version; exclusive is safe
		}
	}
	return m
}
