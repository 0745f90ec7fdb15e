package mirror

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/client"
)

// change is what is to be done to a key of the copy.
type change struct {
	key, value string
	remove     bool
}

func (c change) op() client.Op {
	if c.remove {
		return client.OpDelete(c.key)
	}
	return client.OpPut(c.key, c.value)
}

// pauses between attempts to write.
const (
	minPause = 10 * time.Millisecond
	maxPause = time.Second
)

// write does changes in one transaction, with a new note if there are notes and it is not empty. It is repeated until its outcome is known.
func (r *run) write(ctx context.Context, changes []change, note string) error {
	ops := make([]client.Op, 0, len(changes)+1)
	for _, c := range changes {
		ops = append(ops, c.op())
	}
	var conditions []client.Cmp
	if r.m.key != "" {
		if note == "" {
			note = r.note
		}
		ops = append(ops, client.OpPut(r.m.key, note))
		conditions = append(conditions, client.KeyMissing(r.m.key))
		if r.note != "" {
			conditions[0] = client.Value(r.m.key).Equal(r.note)
		}
	}
	if len(ops) == 0 {
		return nil
	}
	if err := r.send(ctx, conditions, ops, note); err != nil {
		return err
	}
	r.note = note
	for _, c := range changes {
		if c.remove {
			r.m.deletes.Add(1)
		} else {
			r.m.puts.Add(1)
		}
	}
	return nil
}

// send sends the transaction until its outcome is known.
func (r *run) send(ctx context.Context, conditions []client.Cmp, ops []client.Op, note string) error {
	bound, again := minPause, false
	for {
		txn := r.m.to.Txn(ctx).If(conditions...).Then(ops...)
		if len(conditions) > 0 {
			txn.Else(client.OpGet(r.m.key))
		}
		resp, err := txn.Commit()
		if err == nil && resp.Succeeded {
			return nil
		}
		if err == nil {
			// An attempt before this may have done it, if the note has changed with it; else to do it was lost to another.
			now := resp.Responses[0].GetResponseRange().GetKvs()
			if again && len(now) > 0 && string(now[0].Value) == note {
				return nil
			}
			return fmt.Errorf("%w: %q", ErrSuperseded, r.m.key)
		}
		if !errors.Is(err, client.ErrUnknownOutcome) || ctx.Err() != nil {
			return fmt.Errorf("mirror: writing the copy: %w", err)
		}
		again = true
		t := time.NewTimer(rand.N(bound))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
		bound = min(2*bound, maxPause)
	}
}

// batchBytes is how many bytes of keys and values are put together in a transaction, well below what servers take. What the source
// took in one transaction is not split for its size.
const batchBytes = 512 << 10

// batch collects changes for one transaction.
type batch struct {
	run     *run
	changes []change
	keys    map[string]bool
	bytes   int
}

func (r *run) newBatch() *batch { return &batch{run: r, keys: map[string]bool{}} }

// room is how many changes fit a transaction besides the note.
func (b *batch) room() int {
	if b.run.m.key != "" {
		return b.run.m.maxOps - 1
	}
	return b.run.m.maxOps
}

// add adds a change, and does those before it first if it does not fit with them.
func (b *batch) add(ctx context.Context, c change, note string) error {
	if len(b.changes) >= b.room() || b.keys[c.key] {
		if err := b.flush(ctx, note); err != nil {
			return err
		}
	}
	b.changes, b.keys[c.key] = append(b.changes, c), true
	b.bytes += len(c.key) + len(c.value)
	return nil
}

// fits tells whether the changes of a revision can be added without splitting them.
func (b *batch) fits(events []*kvpb.Event) bool {
	if len(b.changes)+len(events) > b.room() {
		return false
	}
	bytes := b.bytes
	for _, e := range events {
		bytes += len(e.Kv.Key) + len(e.Kv.Value)
		if bytes > batchBytes || b.keys[b.run.copied(e.Kv.Key)] {
			return false
		}
	}
	return true
}

// flush does the changes.
func (b *batch) flush(ctx context.Context, note string) error {
	if len(b.changes) == 0 && note == "" {
		return nil
	}
	err := b.run.write(ctx, b.changes, note)
	b.changes, b.bytes = b.changes[:0], 0
	clear(b.keys)
	return err
}
