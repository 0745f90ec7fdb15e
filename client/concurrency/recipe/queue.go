package recipe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/client"
)

// Queue hands each value to one who dequeues, in the order in which they were enqueued.
type Queue struct {
	c      *client.Client
	prefix string
}

// NewQueue gives the queue of a name.
func NewQueue(c *client.Client, name string) *Queue { return &Queue{c, name + "/"} }

// Enqueue appends a value. client.ErrUnknownOutcome: it may or may not have been appended.
func (q *Queue) Enqueue(ctx context.Context, value string) error {
	for {
		added, err := add(ctx, q.c, fmt.Sprintf("%s%016x", q.prefix, rand.Uint64()), value)
		if added || err != nil {
			return err
		}
	}
}

// Dequeue takes the oldest value, and waits for one if there is none.
func (q *Queue) Dequeue(ctx context.Context) (string, error) {
	return take(ctx, q.c, q.prefix, client.SortByCreateRevision)
}

// PriorityQueue hands out values with smaller numbers first, and those of one number in the order in which they were enqueued.
type PriorityQueue struct {
	c      *client.Client
	prefix string
}

// NewPriorityQueue gives the priority queue of a name.
func NewPriorityQueue(c *client.Client, name string) *PriorityQueue {
	return &PriorityQueue{c, name + "/"}
}

// Enqueue adds a value with a priority, of which 0 comes first. client.ErrUnknownOutcome: it may or may not have been added.
func (q *PriorityQueue) Enqueue(ctx context.Context, value string, priority uint16) error {
	class := fmt.Sprintf("%s%05d/", q.prefix, priority)
	for n := 0; ; n++ {
		r, err := q.c.Get(ctx, class, client.WithPrefix(), client.WithKeysOnly(), client.WithLimit(1),
			client.WithSort(client.SortByKey, client.SortDescend))
		if err != nil {
			return because(ctx, err)
		}
		sequence := uint64(0)
		if len(r.Kvs) > 0 {
			last := string(r.Kvs[0].Key[len(class):])
			if sequence, err = strconv.ParseUint(last, 10, 63); err != nil {
				return fmt.Errorf("recipe: key %q is none of a priority queue", r.Kvs[0].Key)
			}
			sequence++
		}
		added, err := add(ctx, q.c, fmt.Sprintf("%s%016d", class, sequence), value)
		if added || err != nil {
			return err
		}
		if err := pause(ctx, n); err != nil {
			return err
		}
	}
}

// Dequeue takes the value with the smallest priority, and waits for one if there is none.
func (q *PriorityQueue) Dequeue(ctx context.Context) (string, error) {
	return take(ctx, q.c, q.prefix, client.SortByKey)
}

// add makes a key, and tells false if it exists.
func add(ctx context.Context, c *client.Client, key, value string) (bool, error) {
	r, err := c.Txn(ctx).If(client.KeyMissing(key)).Then(client.OpPut(key, value)).Commit()
	if err != nil {
		return false, because(ctx, err)
	}
	return r.Succeeded, nil
}

// take takes the first of the keys below a prefix, and waits for one if there is none.
func take(ctx context.Context, c *client.Client, prefix string, by client.SortTarget) (string, error) {
	for n := 0; ; n++ {
		first, rev, err := peek(ctx, c, prefix, by)
		if err != nil {
			return "", because(ctx, err)
		}
		if first == nil {
			if err := next(ctx, c, prefix, rev, client.WithPrefix(), client.WithoutDeletes()); err != nil {
				return "", err
			}
			n = 0
			continue
		}
		key := string(first.Key)
		r, err := c.Txn(ctx).If(client.ModRevision(key).Equal(first.ModRevision)).Then(client.OpDelete(key)).Commit()
		if errors.Is(err, client.ErrUnknownOutcome) {
			return string(first.Value), err
		}
		if err != nil {
			return "", because(ctx, err)
		}
		if r.Succeeded {
			return string(first.Value), nil
		}
		if err := pause(ctx, n); err != nil { // another was faster
			return "", err
		}
	}
}

// peek gives the first key below a prefix, nil if there is none, and the revision.
func peek(ctx context.Context, c *client.Client, prefix string, by client.SortTarget) (*kvpb.KeyValue, int64, error) {
	r, err := c.Get(ctx, prefix, client.WithPrefix(), client.WithLimit(1), client.WithSort(by, client.SortAscend))
	if err != nil {
		return nil, 0, err
	}
	if len(r.Kvs) == 0 {
		return nil, r.Header.Revision, nil
	}
	return r.Kvs[0], r.Header.Revision, nil
}
