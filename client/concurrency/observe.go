package concurrency

import (
	"context"
	"errors"
	"iter"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/client"
)

// Change is what is told of an election.
type Change int

// The changes.
const (
	// Vacant: nobody leads.
	Vacant Change = iota
	// Elected: somebody leads who did not before, or who led when the observer began.
	Elected
	// Proclaimed: the same one leads and has a new value.
	Proclaimed
)

// String gives the name of the change.
func (c Change) String() string {
	switch c {
	case Vacant:
		return "vacant"
	case Elected:
		return "elected"
	case Proclaimed:
		return "proclaimed"
	}
	return "unknown"
}

// Leadership is what an observer has seen.
type Leadership struct {
	Change Change
	// Leader is who leads; the zero value when nobody does.
	Leader Leader
	// Revision is when it began to be so or, for the first, when it was looked.
	Revision int64
}

// Observer follows an election. It is for one goroutine. It has no goroutine of its own and holds nothing after
// its context has ended.
type Observer struct {
	c      *client.Client
	ctx    context.Context
	prefix string

	began bool
	rev   int64           // up to where everything was told
	now   *kvpb.KeyValue  // the leader, nil if there is none
	watch *client.Watcher // of its key or, without one, of all; nil if there is to be a new one
	queue []*kvpb.Event   // of watch, not yet looked at
}

// Observe follows an election until ctx ends, without taking part in it. It needs no session.
func Observe(ctx context.Context, c *client.Client, name string) *Observer {
	return newObserver(ctx, c, name+"/")
}

func newObserver(ctx context.Context, c *client.Client, prefix string) *Observer {
	return &Observer{c: c, ctx: ctx, prefix: prefix}
}

// All gives what Next gives, until the error, which comes with the zero Leadership.
func (o *Observer) All() iter.Seq2[Leadership, error] {
	return func(yield func(Leadership, error) bool) {
		for {
			l, err := o.Next()
			if !yield(l, err) || err != nil {
				return
			}
		}
	}
}

// Next tells at once how things are, and then waits for each change. It never names one who did not lead at
// the Revision of what it gives, and tells each leader, proclamation and vacancy there was, in their order, except for what was
// compacted before it could be read. Its error is the cause of the context, or that of a call.
func (o *Observer) Next() (Leadership, error) {
	if !o.began {
		return o.look(0)
	}
	for {
		e, err := o.event()
		if errors.Is(err, errs.ErrCompacted) {
			before := o.now
			l, err := o.look(0)
			if err != nil || changed(before, o.now, &l.Change) {
				return l, err
			}
			continue
		}
		if err != nil {
			return Leadership{}, err
		}
		if o.now == nil || e.Type == kvpb.Event_DELETE || e.Kv.CreateRevision != o.now.CreateRevision {
			l, err := o.look(e.Kv.ModRevision)
			if errors.Is(err, errs.ErrCompacted) {
				l, err = o.look(0)
			}
			return l, err
		}
		o.rev, o.now = e.Kv.ModRevision, e.Kv
		return Leadership{Proclaimed, leaderOf(e.Kv), o.rev}, nil
	}
}

// changed tells whether a look brought news after a gap in what could be watched; the same leader with another value is a
// proclamation.
func changed(before, now *kvpb.KeyValue, change *Change) bool {
	if before == nil || now == nil {
		return before != now
	}
	if before.CreateRevision == now.CreateRevision {
		*change = Proclaimed
		return before.ModRevision != now.ModRevision
	}
	return true
}

// look reads who leads at a revision, 0 for now.
func (o *Observer) look(rev int64) (Leadership, error) {
	o.stop()
	kv, at, err := firstAt(o.ctx, o.c, o.prefix, rev)
	if err != nil {
		return Leadership{}, o.cause(err)
	}
	if rev != 0 {
		at = rev
	}
	o.began, o.rev, o.now = true, at, kv
	if kv == nil {
		return Leadership{Change: Vacant, Revision: at}, nil
	}
	return Leadership{Elected, leaderOf(kv), at}, nil
}

// event waits for the next change of the leader's key or, if nobody leads, for the first key of a candidate.
func (o *Observer) event() (*kvpb.Event, error) {
	if o.watch == nil {
		if o.now != nil {
			o.watch = o.c.Watch(o.ctx, string(o.now.Key), client.WithRev(o.rev+1))
		} else {
			o.watch = o.c.Watch(o.ctx, o.prefix, client.WithPrefix(), client.WithRev(o.rev+1), client.WithoutDeletes())
		}
	}
	for len(o.queue) == 0 {
		r, err := o.watch.Next(o.ctx)
		if err != nil {
			return nil, o.cause(err)
		}
		o.queue = r.Events
	}
	e := o.queue[0]
	o.queue = o.queue[1:]
	return e, nil
}

// stop ends the watch.
func (o *Observer) stop() {
	if o.watch != nil {
		o.watch.Close()
	}
	o.watch, o.queue = nil, nil
}

// cause gives the end of the context in place of what it broke.
func (o *Observer) cause(err error) error {
	if why := context.Cause(o.ctx); why != nil {
		return why
	}
	return err
}

// firstAt gives the oldest key below a prefix at a revision, 0 for now, nil if there is none, and the present revision.
func firstAt(ctx context.Context, c *client.Client, prefix string, rev int64) (*kvpb.KeyValue, int64, error) {
	r, err := c.Get(ctx, prefix, client.WithPrefix(), client.WithRev(rev),
		client.WithSort(client.SortByCreateRevision, client.SortAscend), client.WithLimit(1))
	if err != nil {
		return nil, 0, err
	}
	if len(r.Kvs) == 0 {
		return nil, r.Header.Revision, nil
	}
	return r.Kvs[0], r.Header.Revision, nil
}
