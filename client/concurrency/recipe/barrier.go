package recipe

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/concurrency"
)

// Conditions.
var (
	// ErrClosed: Close found the barrier closed already.
	ErrClosed = errors.New("recipe: barrier is closed already")
	// ErrFull: as many parties as the double barrier has are in it already.
	ErrFull = errors.New("recipe: double barrier is full")
	// ErrOutside: Leave of a party that is not in the double barrier, or whose session has ended.
	ErrOutside = errors.New("recipe: this session is not in the double barrier")
)

// Barrier is a gate: all who wait go on when it opens.
type Barrier struct {
	c   *client.Client
	key string
}

// NewBarrier gives the barrier of a key.
func NewBarrier(c *client.Client, key string) *Barrier { return &Barrier{c, key} }

// Close closes the barrier. ErrClosed: it was closed. With client.WithLease it opens by itself when the lease ends.
func (b *Barrier) Close(ctx context.Context, opts ...client.PutOption) error {
	r, err := b.c.Txn(ctx).If(client.KeyMissing(b.key)).Then(client.OpPut(b.key, "", opts...)).Commit()
	if err == nil && !r.Succeeded {
		return fmt.Errorf("%w: key %q", ErrClosed, b.key)
	}
	return err
}

// Open opens the barrier, and does nothing if it is open.
func (b *Barrier) Open(ctx context.Context) error {
	for n := 0; ; n++ {
		_, err := b.c.Delete(ctx, b.key)
		if !errors.Is(err, client.ErrUnknownOutcome) || pause(ctx, n) != nil {
			return err
		}
	}
}

// Wait waits until the barrier is open.
func (b *Barrier) Wait(ctx context.Context) error {
	for {
		r, err := b.c.Get(ctx, b.key)
		if err != nil {
			return because(ctx, err)
		}
		if len(r.Kvs) == 0 {
			return nil
		}
		if err := next(ctx, b.c, b.key, r.Header.Revision, client.WithoutPuts()); err != nil {
			return err
		}
	}
}

// DoubleBarrier lets a number of parties in together, and out together, round after round. Each party is a session.
type DoubleBarrier struct {
	s     *concurrency.Session
	c     *client.Client
	name  string
	count int64
	key   string // of this party
}

// NewDoubleBarrier gives the double barrier of a name for a session. All parties must give the same count, which is at
// least 1.
func NewDoubleBarrier(s *concurrency.Session, name string, count int) *DoubleBarrier {
	return &DoubleBarrier{
		s: s, c: s.Client(), name: name, count: max(int64(count), 1),
		key: fmt.Sprintf("%s%x", waiters(name), int64(s.Lease())),
	}
}

func waiters(name string) string { return name + "/waiters/" }
func ready(name string) string   { return name + "/ready" }

// Enter waits until as many parties have entered as the barrier has. If those of the round before are not all out yet it waits
// for them first. ErrFull: there are enough already. If it fails the party is out again.
func (b *DoubleBarrier) Enter(ctx context.Context) error {
	ctx, stop := b.bind(ctx)
	defer stop()
	if err := b.join(ctx); err != nil {
		return err
	}
	err := b.gather(ctx)
	if err != nil {
		out, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.s.TTL())
		defer cancel()
		_, gone := b.c.Delete(out, b.key) // or it goes with the lease
		return errors.Join(err, gone)
	}
	return nil
}

// bind ends a context with the session, too.
func (b *DoubleBarrier) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	bound, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(b.s.Context(), func() { cancel(b.s.Err()) })
	return bound, func() { stop(); cancel(nil) }
}

// join makes the key of this party when no round is under way.
func (b *DoubleBarrier) join(ctx context.Context) error {
	nobody := client.CreateRevision(waiters(b.name), client.WithPrefix()).Equal(0)
	put := client.OpPut(b.key, "", client.WithLease(b.s.Lease()))
	for {
		r, err := b.c.Txn(ctx).If(client.KeyMissing(ready(b.name))).Then(put).
			// A round whose parties have all died ends here.
			Else(client.OpTxn([]client.Cmp{nobody}, []client.Op{client.OpDelete(ready(b.name)), put}, nil)).Commit()
		if err != nil {
			return because(ctx, err)
		}
		if r.Succeeded || r.Responses[0].GetResponseTxn().GetSucceeded() {
			return nil
		}
		if err := next(ctx, b.c, ready(b.name), r.Header.Revision, client.WithoutPuts()); err != nil {
			return err
		}
	}
}

// gather waits until all are there, and declares it if it is the first to see that.
func (b *DoubleBarrier) gather(ctx context.Context) error {
	for {
		resp, err := b.c.Txn(ctx).Then(client.OpGet(waiters(b.name), b.first()...), client.OpGet(ready(b.name))).Commit()
		if err != nil {
			return because(ctx, err)
		}
		if declared := resp.Responses[1].GetResponseRange().Kvs; len(declared) > 0 {
			return b.admitted(ctx, declared[0].CreateRevision)
		}
		r := resp.Responses[0].GetResponseRange()
		if r.Count < b.count {
			// Whatever changes here is worth another look: parties come and go, or the barrier is declared ready.
			if err := next(ctx, b.c, b.name+"/", resp.Header.Revision, client.WithPrefix()); err != nil {
				return err
			}
			continue
		}
		if !b.among(r.Kvs) {
			return fmt.Errorf("%w: %q is for %d", ErrFull, b.name, b.count)
		}
		_, err = b.c.Txn(ctx).If(client.KeyMissing(ready(b.name)), client.KeyExists(b.key)).
			Then(client.OpPut(ready(b.name), "")).Commit()
		if err != nil {
			return because(ctx, err)
		}
	}
}

// first are the options to read those whom the barrier has room for.
func (b *DoubleBarrier) first() []client.GetOption {
	return []client.GetOption{client.WithPrefix(), client.WithKeysOnly(), client.WithLimit(b.count),
		client.WithSort(client.SortByCreateRevision, client.SortAscend)}
}

// among tells whether this party is one of these.
func (b *DoubleBarrier) among(kvs []*kvpb.KeyValue) bool {
	return slices.ContainsFunc(kvs, func(kv *kvpb.KeyValue) bool { return string(kv.Key) == b.key })
}

// admitted tells whether there was room for this party when the barrier was declared ready. Since then parties may have left.
func (b *DoubleBarrier) admitted(ctx context.Context, rev int64) error {
	r, err := b.c.Get(ctx, waiters(b.name), append(b.first(), client.WithRev(rev))...)
	if err != nil {
		return because(ctx, err)
	}
	if !b.among(r.Kvs) {
		return fmt.Errorf("%w: %q is for %d", ErrFull, b.name, b.count)
	}
	return nil
}

// Leave waits until all parties that entered have left, or died. It is ErrOutside if this one is not in.
func (b *DoubleBarrier) Leave(ctx context.Context) error {
	ctx, stop := b.bind(ctx)
	defer stop()
	nobody := client.CreateRevision(waiters(b.name), client.WithPrefix()).Equal(0)
	out, err := b.c.Txn(ctx).If(client.KeyExists(b.key), client.KeyExists(ready(b.name))).
		Then(client.OpDelete(b.key), client.OpGet(ready(b.name))).Commit()
	if err != nil {
		return because(ctx, err)
	}
	if !out.Succeeded {
		return fmt.Errorf("%w: %q", ErrOutside, b.name)
	}
	round := client.CreateRevision(ready(b.name)).Equal(out.Responses[1].GetResponseRange().Kvs[0].CreateRevision)
	for {
		// The round is over when its key is gone, or is that of a later one.
		r, err := b.c.Txn(ctx).If(round).Then(client.OpTxn([]client.Cmp{nobody}, []client.Op{client.OpDelete(ready(b.name))}, nil)).Commit()
		if err != nil {
			return because(ctx, err)
		}
		if !r.Succeeded || r.Responses[0].GetResponseTxn().GetSucceeded() {
			return nil
		}
		if err := next(ctx, b.c, b.name+"/", r.Header.Revision, client.WithPrefix(), client.WithoutPuts()); err != nil {
			return err
		}
	}
}
