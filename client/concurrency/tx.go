package concurrency

import (
	"bytes"
	"context"
	"maps"
	"slices"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/client"
)

// Pair is a key and its value.
type Pair struct{ Key, Value string }

// value is what a key was when it was read; the zero value is that of a key that does not exist.
type value struct {
	text string
	mod  int64 // revision of its last change; 0 if it does not exist
}

// valueOf gives the value of a read of one key.
func valueOf(kvs []*kvpb.KeyValue) value {
	if len(kvs) == 0 {
		return value{}
	}
	return value{string(kvs[0].Value), kvs[0].ModRevision}
}

// span is a range that was read.
type span struct {
	key  string
	keys client.KeysOption
	rev  int64
}

// write is what is to become of a key.
type write struct {
	op     client.Op
	text   string
	exists bool
}

// Tx is one run of the function of Transact, which alone may use it, and only until it returns.
type Tx struct {
	ctx   context.Context
	c     *client.Client
	level Isolation
	known *fetched // read in advance and not yet part of the transaction; may be nil

	// rev is the revision of all reads under a snapshot level; 0 before the first.
	rev     int64
	reads   map[string]value
	spans   []span
	order   []string // keys written, by their first write
	written map[string]write

	refetched *fetched // after a conflict
}

func newTx(ctx context.Context, c *client.Client, level Isolation, known *fetched) *Tx {
	tx := &Tx{ctx: ctx, c: c, level: level, known: known, reads: map[string]value{}, written: map[string]write{}}
	if known != nil && level.snapshot() {
		tx.rev = known.rev
	}
	return tx
}

// Get gives the value of a key, empty if it does not exist.
func (tx *Tx) Get(key string) string {
	v, _ := tx.Lookup(key)
	return v
}

// Lookup gives the value of a key and whether it exists. It sees what the function has written.
func (tx *Tx) Lookup(key string) (value string, exists bool) {
	if w, ok := tx.written[key]; ok {
		return w.text, w.exists
	}
	v := tx.read(key)
	return v.text, v.mod > 0
}

// Rev gives the revision of the last change of a key, 0 if it does not exist. It does not see what the function has
// written.
func (tx *Tx) Rev(key string) int64 { return tx.read(key).mod }

// Put writes a key.
func (tx *Tx) Put(key, value string, opts ...client.PutOption) {
	tx.write(key, write{client.OpPut(key, value, opts...), value, true})
}

// Del removes a key.
func (tx *Tx) Del(key string) { tx.write(key, write{op: client.OpDelete(key)}) }

// Range gives the pairs in the order of their keys; which ones says keys as for [client.Client.Get]. It sees what the function has
// written. Keys that come to be in the range, or go, are conflicts, too.
func (tx *Tx) Range(key string, keys client.KeysOption) []Pair {
	opts := []client.GetOption{keys}
	if tx.level.snapshot() {
		opts = append(opts, client.WithRev(tx.rev))
	}
	r, err := tx.c.Get(tx.ctx, key, opts...)
	if err != nil {
		tx.fail(err)
	}
	at := r.Header.Revision
	if tx.level.snapshot() {
		if tx.rev == 0 {
			tx.rev = at
		}
		at = tx.rev
	}
	found := map[string]string{}
	for _, kv := range r.Kvs {
		k := string(kv.Key)
		found[k] = string(kv.Value)
		if seen, ok := tx.reads[k]; ok && tx.level == RepeatableReads && seen.mod != kv.ModRevision {
			tx.fail(errConflict) // it must not read differently, and the commit would fail anyway
		}
		tx.reads[k] = valueOf([]*kvpb.KeyValue{kv})
	}
	tx.spans = append(tx.spans, span{key, keys, at})
	tx.overlay(key, keys, found)
	pairs := make([]Pair, 0, len(found))
	for _, k := range slices.Sorted(maps.Keys(found)) {
		pairs = append(pairs, Pair{k, found[k]})
	}
	return pairs
}

// overlay puts what the function has written over what was found in a range.
func (tx *Tx) overlay(key string, keys client.KeysOption, found map[string]string) {
	r := client.OpGet(key, keys).Request().GetRequestRange()
	for k, w := range tx.written {
		open := bytes.Equal(r.RangeEnd, []byte{0})
		if k < string(r.Key) || !open && k >= string(r.RangeEnd) {
			continue
		}
		if w.exists {
			found[k] = w.text
		} else {
			delete(found, k)
		}
	}
}

// read reads a key, or remembers it.
func (tx *Tx) read(key string) value {
	if tx.level != ReadCommitted {
		if v, ok := tx.reads[key]; ok {
			return v
		}
		if tx.known != nil {
			if v, ok := tx.known.kvs[key]; ok {
				tx.reads[key] = v
				return v
			}
		}
	}
	var opts []client.GetOption
	if tx.level.snapshot() {
		opts = append(opts, client.WithRev(tx.rev))
	}
	r, err := tx.c.Get(tx.ctx, key, opts...)
	if err != nil {
		tx.fail(err)
	}
	if tx.rev == 0 && tx.level.snapshot() {
		tx.rev = r.Header.Revision
	}
	v := valueOf(r.Kvs)
	tx.reads[key] = v
	return v
}

// write notes a write; of several of one key the last counts.
func (tx *Tx) write(key string, w write) {
	if _, again := tx.written[key]; !again {
		tx.order = append(tx.order, key)
	}
	tx.written[key] = w
}

// readKeys are the keys read, in their order, as many as one transaction may read again.
func (tx *Tx) readKeys() []string {
	const most = 100 // below the bound of operations that servers have
	keys := slices.Sorted(maps.Keys(tx.reads))
	return keys[:min(len(keys), most)]
}

// writes are the operations of the commit.
func (tx *Tx) writes() []client.Op {
	ops := make([]client.Op, 0, len(tx.order))
	for _, k := range tx.order {
		ops = append(ops, tx.written[k].op)
	}
	return ops
}
