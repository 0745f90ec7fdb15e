package concurrency

import (
	"context"
	"errors"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

// Isolation is what a transaction promises about others that run at the same time.
type Isolation int

// The levels, from strict to loose.
const (
	// SerializableSnapshot: all reads are of one revision, and at the commit nothing that was read or is written has
	// changed since. The outcome is as if transactions ran one after the other.
	SerializableSnapshot Isolation = iota
	// Serializable: all reads are of one revision, and at the commit nothing that was read has changed since. Keys that are
	// written without having been read are overwritten whatever happened to them.
	Serializable
	// RepeatableReads: a key that is read again has the same value, and at the commit nothing that was read has changed since. The
	// function may see keys of different revisions together, which it must bear, but then the commit fails and it runs anew.
	RepeatableReads
	// ReadCommitted: each read is of the present, and nothing is checked. The writes are done together, and updates of
	// others may be lost under them.
	ReadCommitted
)

// snapshot tells whether all reads are of one revision.
func (i Isolation) snapshot() bool { return i == SerializableSnapshot || i == Serializable }

// TransactOption shapes a Transact.
type TransactOption func(*transactConfig)

// transactConfig is the sum of the options.
type transactConfig struct {
	level    Isolation
	prefetch []string
}

// WithIsolation sets the level. Default: SerializableSnapshot.
func WithIsolation(level Isolation) TransactOption {
	return func(c *transactConfig) { c.level = level }
}

// WithPrefetch reads these keys together before the function runs, which saves it the time of reading one by one. Keys that
// it does not read then are not part of the transaction. It has no effect under ReadCommitted.
func WithPrefetch(keys ...string) TransactOption {
	return func(c *transactConfig) { c.prefetch = append(c.prefetch, keys...) }
}

// Committed tells of a transaction that was done.
type Committed struct {
	// Revision is that of its writes. If it wrote nothing it is the one its reads are of or, where they are not of one
	// revision, one at which they were all true; 0 under ReadCommitted.
	Revision int64
	// Attempts is how often the function ran.
	Attempts int
}

// Transact runs a function that reads and writes keys, and then does its writes together (software transactional memory). If
// something else came between, it runs the function anew, after a pause that is random and doubles, until
// it succeeds or ctx ends: so the function must have no other effects. It runs on the caller's goroutine.
//
// Reads in the function do not return errors: one that fails ends the function there, by a panic that Transact recovers, and
// Transact returns the error. An error that the function returns is returned, too. In both cases nothing is written. Other panics
// of the function go through.
//
// client.ErrUnknownOutcome: the writes may or may not have been done. The transaction may hold as many conditions as the
// server allows operations in one (128 unless set otherwise): one for each key read, and for a Range one more.
func Transact(ctx context.Context, c *client.Client, f func(tx *Tx) error, opts ...TransactOption) (Committed, error) {
	var cfg transactConfig
	for _, o := range opts {
		o(&cfg)
	}
	var known *fetched
	if len(cfg.prefetch) > 0 && cfg.level != ReadCommitted {
		var err error
		if known, err = fetch(ctx, c, cfg.prefetch); err != nil {
			return Committed{}, err
		}
	}
	for n := 1; ; n++ {
		tx := newTx(ctx, c, cfg.level, known)
		rev, err := tx.run(f)
		if err == nil {
			return Committed{Revision: rev, Attempts: n}, nil
		}
		if !errors.Is(err, errConflict) {
			return Committed{}, err
		}
		if known, err = tx.again(n); err != nil {
			return Committed{}, err
		}
	}
}

// again gives what to start the next run with: after the first conflict what the commit has read, after others a pause and what
// the keys are then.
func (tx *Tx) again(attempt int) (*fetched, error) {
	if attempt == 1 {
		return tx.refetched, nil
	}
	if err := pause(tx.ctx, attempt); err != nil {
		return nil, err
	}
	if keys := tx.readKeys(); len(keys) > 0 {
		return fetch(tx.ctx, tx.c, keys)
	}
	return nil, nil
}

// errConflict has the function run anew.
var errConflict = errors.New("concurrency: transaction met another")

// thrown carries an error out of the function.
type thrown struct{ err error }

// run runs the function once and does its writes.
func (tx *Tx) run(f func(*Tx) error) (rev int64, err error) {
	if err := tx.call(f); err != nil {
		return 0, err
	}
	if len(tx.order) == 0 && tx.level != RepeatableReads {
		return tx.rev, nil // the reads are true as they are
	}
	return tx.commit()
}

// call runs the function alone.
func (tx *Tx) call(f func(*Tx) error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case thrown:
			err = r.err
		default:
			panic(r)
		}
	}()
	return f(tx)
}

// fail ends the function. That a revision cannot be read is no fault of the function: the snapshot was compacted
// meanwhile, or belongs to a member ahead of the one asked.
func (tx *Tx) fail(err error) {
	if errors.Is(err, errs.ErrCompacted) || errors.Is(err, errs.ErrFutureRev) {
		err = errConflict
	}
	panic(thrown{err})
}

// commit does the writes if the conditions hold.
func (tx *Tx) commit() (int64, error) {
	keys := tx.readKeys()
	again := make([]client.Op, 0, len(keys))
	for _, k := range keys {
		again = append(again, client.OpGet(k))
	}
	resp, err := tx.c.Txn(tx.ctx).If(tx.conditions()...).Then(tx.writes()...).Else(again...).Commit()
	if err != nil {
		return 0, err
	}
	if !resp.Succeeded {
		tx.refetched = newFetched(keys, resp)
		return 0, errConflict
	}
	return resp.Header.Revision, nil
}

// conditions are what must hold at the commit.
func (tx *Tx) conditions() []client.Cmp {
	if tx.level == ReadCommitted {
		return nil
	}
	var list []client.Cmp
	for key, r := range tx.reads {
		list = append(list, client.ModRevision(key).Equal(r.mod))
	}
	for _, s := range tx.spans {
		// Nothing there is newer; that nothing was deleted is in the conditions of the keys.
		list = append(list, client.ModRevision(s.key, s.keys).Less(s.rev+1))
	}
	if tx.level == SerializableSnapshot && tx.rev > 0 {
		for _, key := range tx.order {
			if _, read := tx.reads[key]; !read {
				list = append(list, client.ModRevision(key).Less(tx.rev+1))
			}
		}
	}
	return list
}

// fetched are keys read together.
type fetched struct {
	rev int64
	kvs map[string]value
}

// fetch reads keys together.
func fetch(ctx context.Context, c *client.Client, keys []string) (*fetched, error) {
	ops := make([]client.Op, 0, len(keys))
	for _, k := range keys {
		ops = append(ops, client.OpGet(k))
	}
	resp, err := c.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, err
	}
	return newFetched(keys, resp), nil
}

// newFetched takes the keys from the answer to a transaction that read them in this order.
func newFetched(keys []string, resp *rpcpb.TxnResponse) *fetched {
	f := &fetched{rev: resp.Header.Revision, kvs: make(map[string]value, len(keys))}
	for i, r := range resp.Responses {
		f.kvs[keys[i]] = valueOf(r.GetResponseRange().GetKvs())
	}
	return f
}
