package concurrency

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

// line is a queue: the keys below a prefix, in the order of their create revisions. An entry waits for those before it, save
// for those it passes.
type line struct {
	prefix string // ends with a slash
	key    string // what the session queues with
	// free are conditions of which each means that there is nobody to wait for.
	free [][]client.Cmp
	// passes tells whom an entry does not wait for; nil if it waits for all.
	passes func(value []byte) bool
	// named: values name the entries and may change. Otherwise they say how an entry holds, and another value is another entry.
	named bool
}

// place is a session's place in a line: its key exists, unless it was lost.
type place struct {
	s *Session
	line
	rev int64 // create revision of the key, the fencing token
	// front: nobody was before this place when it was taken, so nobody ever will be.
	front bool
}

// newLine gives the line of an entry that waits for all before it.
func newLine(s *Session, name string) line {
	prefix := name + "/"
	return line{
		prefix: prefix, key: fmt.Sprintf("%s%x", prefix, int64(s.id)),
		free: [][]client.Cmp{{client.CreateRevision(prefix, client.WithPrefix()).Equal(0)}},
	}
}

// join queues up, at the end, with a value. With try it does so only if nobody is there, and fails with ErrLocked otherwise.
// On success the key is reserved until leave.
func (l line) join(ctx context.Context, s *Session, value string, try bool) (*place, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	if err := s.reserve(l.key); err != nil {
		return nil, err
	}
	p := &place{s: s, line: l}
	bound, cancel := s.bind(ctx)
	defer cancel(nil)
	err := p.enter(bound, value, try)
	if err == nil {
		return p, nil
	}
	if p.rev == 0 && !errors.Is(err, client.ErrUnknownOutcome) {
		s.unreserve(l.key)
	} else {
		p.abandon(ctx)
	}
	return nil, p.verdict(bound, err)
}

// enter creates the key, or finds the one that an attempt before this has created.
func (p *place) enter(ctx context.Context, value string, try bool) error {
	expected := p.s.expects(p.key)
	for {
		resp, again, err := commit(ctx, func() (*rpcpb.TxnResponse, error) { return p.entry(ctx, value, try) })
		if errors.Is(err, errs.ErrLeaseNotFound) {
			return fmt.Errorf("%w: %w", ErrSessionExpired, err)
		}
		if err != nil {
			return err
		}
		branch, own := outcome(resp)
		switch {
		case branch >= 0:
			p.rev, p.front = resp.Header.Revision, branch < len(p.free)
			return nil
		case own == nil:
			return ErrLocked
		case !expected && !again:
			return fmt.Errorf("%w: key %q", ErrInUse, p.key)
		}
		p.rev = own.CreateRevision
		if string(own.Value) == value {
			return nil
		}
		if p.named {
			return p.write(ctx, value)
		}
		// Those behind it may have passed it for what it was. So it goes, and a new one comes.
		if _, err := p.remove(ctx); err != nil {
			return err
		}
		p.rev = 0
	}
}

// entry sends the transaction that creates the key if it is missing. It is a chain: where nobody is to wait for it
// succeeds in one of the first branches, in the order of free, else in the one after them, which is left out with try; and
// if it fails in all it reads the key.
func (p *place) entry(ctx context.Context, value string, try bool) (*rpcpb.TxnResponse, error) {
	branches := slices.Clone(p.free)
	if !try {
		branches = append(branches, nil)
	}
	put := []client.Op{client.OpPut(p.key, value, client.WithLease(p.s.id))}
	otherwise := client.OpGet(p.key)
	for _, free := range slices.Backward(branches[1:]) {
		otherwise = client.OpTxn(append([]client.Cmp{client.KeyMissing(p.key)}, free...), put, []client.Op{otherwise})
	}
	return p.s.c.Txn(ctx).If(client.KeyMissing(p.key)).If(branches[0]...).Then(put...).Else(otherwise).Commit()
}

// outcome gives the branch in which the transaction of entry succeeded, or -1 and the key if it is there.
func outcome(resp *rpcpb.TxnResponse) (branch int, own *kvpb.KeyValue) {
	for ; !resp.Succeeded; branch++ {
		inner := resp.Responses[0].GetResponseTxn()
		if inner == nil {
			if kvs := resp.Responses[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
				own = kvs[0]
			}
			return -1, own
		}
		resp = inner
	}
	return branch, nil
}

// write puts a value while the place is kept.
func (p *place) write(ctx context.Context, value string) error {
	resp, _, err := commit(ctx, func() (*rpcpb.TxnResponse, error) {
		return p.s.c.Txn(ctx).If(p.kept()).Then(client.OpPut(p.key, value, client.WithLease(p.s.id))).Commit()
	})
	if errors.Is(err, errs.ErrLeaseNotFound) {
		return fmt.Errorf("%w: %w", ErrSessionExpired, err)
	}
	if err == nil && !resp.Succeeded {
		return p.vanished()
	}
	return err
}

// kept is the condition that the place is still there.
func (p *place) kept() client.Cmp { return client.CreateRevision(p.key).Equal(p.rev) }

// vanished is the error for a key that is gone while nobody here deleted it, most likely with its lease.
func (p *place) vanished() error {
	return fmt.Errorf("%w: %w: key %q", ErrSessionExpired, ErrLost, p.key)
}

// pageSize is how many of those before it one who passes others reads at a time.
const pageSize = 100

// look finds who is next before this place to wait for, nil if nobody is, and the revision of that. It fails if the place is
// lost.
func (p *place) look(ctx context.Context) (before *kvpb.KeyValue, rev int64, err error) {
	resp, err := p.s.c.Txn(ctx).If(p.kept()).Then(client.OpGet(p.prefix, p.older(p.rev)...)).Commit()
	if err != nil {
		return nil, 0, err
	}
	if !resp.Succeeded {
		return nil, 0, p.vanished()
	}
	rev = resp.Header.Revision
	for page := resp.Responses[0].GetResponseRange(); ; {
		for _, kv := range page.GetKvs() {
			if p.passes == nil || !p.passes(kv.Value) {
				return kv, rev, nil
			}
		}
		if !page.GetMore() {
			return nil, rev, nil
		}
		last := page.Kvs[len(page.Kvs)-1].CreateRevision
		if page, err = p.s.c.Get(ctx, p.prefix, append(p.older(last), client.WithRev(rev))...); err != nil {
			return nil, 0, err
		}
	}
}

// older are the options to read those who came before a create revision, the latest first: one, or a page of them with their
// values if some may be passed.
func (p *place) older(rev int64) []client.GetOption {
	opts := []client.GetOption{client.WithPrefix(), client.WithCreateRevBetween(0, rev-1),
		client.WithSort(client.SortByCreateRevision, client.SortDescend)}
	if p.passes == nil {
		return append(opts, client.WithLimit(1), client.WithKeysOnly())
	}
	return append(opts, client.WithLimit(pageSize))
}

// wait waits until nobody is before this place. It fails at once when the place is lost. On failure the place is left.
func (p *place) wait(ctx context.Context) error {
	if p.front {
		return nil
	}
	bound, cancel := p.s.bind(ctx)
	before, rev, err := p.look(bound)
	if err == nil && before != nil {
		var wg sync.WaitGroup
		wg.Go(func() {
			if why := p.lost(bound, rev); why != nil {
				cancel(why)
			}
		})
		err = p.queue(bound, before, rev)
		cancel(nil)
		wg.Wait()
	}
	cancel(nil)
	if err == nil {
		return nil
	}
	err = p.verdict(bound, err)
	p.abandon(ctx)
	return err
}

// queue waits for one key after the other to go, until nobody is before this place.
func (p *place) queue(ctx context.Context, before *kvpb.KeyValue, rev int64) error {
	for before != nil {
		err := gone(ctx, p.s.c, string(before.Key), rev)
		if err != nil && !errors.Is(err, errs.ErrCompacted) { // after that one, look again
			return err
		}
		if before, rev, err = p.look(ctx); err != nil {
			return err
		}
	}
	return nil
}

// gone waits until a key is deleted after a revision at which it exists.
func gone(ctx context.Context, c *client.Client, key string, rev int64) error {
	w := c.Watch(ctx, key, client.WithRev(rev+1), client.WithoutPuts())
	defer w.Close()
	for {
		r, err := w.Next(ctx)
		if err != nil {
			return err
		}
		if len(r.Events) > 0 {
			return nil
		}
	}
}

// lost waits until the place is lost, and tells why; or nil when ctx ends.
func (p *place) lost(ctx context.Context, rev int64) error {
	for {
		err := gone(ctx, p.s.c, p.key, rev)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			return p.vanished()
		}
		if !errors.Is(err, errs.ErrCompacted) {
			return err
		}
		if _, rev, err = p.look(ctx); err != nil {
			return err
		}
	}
}

// hold gives a context that ends with ctx, with the session, or when the place is lost. Its goroutine ends with it.
func (p *place) hold(ctx context.Context) (context.Context, context.CancelFunc) {
	bound, cancel := p.s.bind(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if why := p.lost(bound, p.rev); why != nil {
			cancel(why)
		}
	})
	return bound, func() {
		cancel(context.Canceled)
		wg.Wait()
	}
}

// leave gives the place up. held tells whether it was there until then. After an error it may still be there, and leave
// may be called again: the create revision keeps it from deleting a later place under the same key.
func (p *place) leave(ctx context.Context) (held bool, err error) {
	if held, err = p.remove(ctx); err == nil {
		p.s.release(p.key, false)
	}
	return held, err
}

// remove deletes the key.
func (p *place) remove(ctx context.Context) (held bool, err error) {
	resp, again, err := commit(ctx, func() (*rpcpb.TxnResponse, error) {
		return p.s.c.Txn(ctx).If(p.kept()).Then(client.OpDelete(p.key)).Commit()
	})
	if err != nil {
		return false, err
	}
	return resp.Succeeded || again, nil
}

// abandon leaves as well as can be when ctx may have ended: what stays goes with the session, or is taken over by the next
// place of this session.
func (p *place) abandon(ctx context.Context) {
	ctx, cancel := cleanup(ctx)
	defer cancel()
	if p.rev != 0 {
		if _, err := p.leave(ctx); err != nil {
			p.s.release(p.key, true)
		}
		return
	}
	// The reply to enter was lost. Nothing else of this session uses the key, so any on its lease is of that enter. Whatever
	// comes of this, that request may still be under way, and the key may come to be.
	p.s.c.Txn(ctx).If(client.LeaseOf(p.key).Equal(int64(p.s.id))).Then(client.OpDelete(p.key)).Commit() //nolint:errcheck // as said
	p.s.release(p.key, true)
}

// verdict gives the error of an operation with a context of bind: the end of the session, or of the context, and not the
// call that it broke.
func (p *place) verdict(bound context.Context, err error) error {
	why := context.Cause(bound)
	if why == nil || errors.Is(why, context.Canceled) || errors.Is(err, ErrSessionExpired) {
		return err
	}
	return why
}
