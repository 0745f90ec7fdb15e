package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/client"
)

// Conditions.
var (
	// ErrClosed: the cache was closed.
	ErrClosed = errors.New("cache: closed")
	// ErrOutside: what is asked for is not all below the prefix.
	ErrOutside = errors.New("cache: keys outside of the prefix of the cache")
)

// DefaultHistory is how many revisions a history holds unless History says otherwise.
const DefaultHistory = 2048

// askInterval is how long a Get that waits for a revision leaves the server alone before it asks again how far it is.
const askInterval = 100 * time.Millisecond

// Option shapes a cache.
type Option func(*Cache)

// History sets how many revisions with changes below the prefix the history holds; at least 1. Default: DefaultHistory.
func History(revisions int) Option {
	return func(c *Cache) { c.history = newRingBuffer[batch](revisions) }
}

// batch is the changes of one revision.
type batch struct {
	rev    int64
	events []*kvpb.Event
}

// Cache has the keys below a prefix. Any number of goroutines may use it. Make it with New and end it with Close.
type Cache struct {
	c           *client.Client
	prefix, end string
	stop        context.CancelCauseFunc
	ended       chan struct{}

	mu    sync.RWMutex // guards the rest
	keys  []string     // sorted
	pairs map[string]*kvpb.KeyValue
	// rev is up to where everything was seen; 0 before the first read.
	rev int64
	// floor is the revision after which the history begins.
	floor   int64
	history *ringBuffer[batch]
	changed chan struct{} // closed and replaced whenever something here changes
	watch   *client.Watcher
	err     error // why the cache has ended
}

// New gives a cache of the keys below a prefix, all keys for "". It returns at once and begins to read.
func New(c *client.Client, prefix string, opts ...Option) *Cache {
	k := &Cache{
		c: c, prefix: prefix, end: string(client.PrefixEnd([]byte(prefix))),
		ended: make(chan struct{}), changed: make(chan struct{}),
		pairs: map[string]*kvpb.KeyValue{}, history: newRingBuffer[batch](DefaultHistory),
	}
	for _, o := range opts {
		o(k)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	k.stop = stop
	go k.run(ctx)
	return k
}

// Close ends the cache and what waits on it, with ErrClosed, and waits for its goroutine. It may be called more than once.
func (k *Cache) Close() {
	k.stop(ErrClosed)
	<-k.ended
}

// Err tells why the cache has ended: ErrClosed, or an error of the cluster that does not go away, such as
// errs.ErrPermissionDenied; nil while it has not.
func (k *Cache) Err() error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.err
}

// run follows the cluster until the cache ends.
func (k *Cache) run(ctx context.Context) {
	defer close(k.ended)
	for {
		err := k.load(ctx)
		if err == nil {
			err = k.follow(ctx)
		}
		if errors.Is(err, errs.ErrCompacted) {
			continue
		}
		if why := context.Cause(ctx); why != nil {
			err = why
		}
		k.update(func() { k.err = err })
		return
	}
}

// update changes what is there and wakes all who wait.
func (k *Cache) update(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
	close(k.changed)
	k.changed = make(chan struct{})
}

// load reads all keys, and begins a new history.
func (k *Cache) load(ctx context.Context) error {
	scan, err := k.c.Scan(ctx, k.prefix, client.WithPrefix())
	if err != nil {
		return fmt.Errorf("cache: reading %q: %w", k.prefix, err)
	}
	var keys []string
	pairs := map[string]*kvpb.KeyValue{}
	for kv, err := range scan.All() {
		if err != nil {
			return fmt.Errorf("cache: reading %q: %w", k.prefix, err)
		}
		keys = append(keys, string(kv.Key))
		pairs[string(kv.Key)] = kv
	}
	k.update(func() {
		k.keys, k.pairs, k.rev, k.floor = keys, pairs, scan.Revision(), scan.Revision()
		k.history.clear()
	})
	return nil
}

// follow takes in what changes, until the watch ends.
func (k *Cache) follow(ctx context.Context) error {
	w := k.c.Watch(ctx, k.prefix, client.WithPrefix(), client.WithRev(k.Revision()+1), client.WithProgressNotify())
	defer w.Close()
	k.update(func() { k.watch = w })
	for r, err := range w.All() {
		if err != nil {
			return fmt.Errorf("cache: watching %q: %w", k.prefix, err)
		}
		k.update(func() {
			for events := r.Events; len(events) > 0; {
				n := 1
				for n < len(events) && events[n].Kv.ModRevision == events[0].Kv.ModRevision {
					n++
				}
				k.applyLocked(batch{events[0].Kv.ModRevision, events[:n:n]})
				events = events[n:]
			}
			k.rev = max(k.rev, r.Revision)
		})
	}
	return nil // not reached: the last pair has an error
}

// applyLocked takes the changes of a revision in.
func (k *Cache) applyLocked(b batch) {
	for _, e := range b.events {
		key := string(e.Kv.Key)
		i, found := slices.BinarySearch(k.keys, key)
		switch {
		case e.Type == kvpb.Event_DELETE && found:
			k.keys = slices.Delete(k.keys, i, i+1)
			delete(k.pairs, key)
		case e.Type == kvpb.Event_PUT:
			if !found {
				k.keys = slices.Insert(k.keys, i, key)
			}
			k.pairs[key] = e.Kv
		}
	}
	if old, full := k.history.push(b); full {
		k.floor = old.rev
	}
	k.rev = b.rev
}

// Revision is the one up to which the cache has seen everything; 0 before it has read for the first time.
func (k *Cache) Revision() int64 {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.rev
}

// WaitReady waits until the cache has read for the first time. Its error is the cause of ctx, or why the cache has ended.
func (k *Cache) WaitReady(ctx context.Context) error { return k.WaitForRevision(ctx, 1) }

// WaitForRevision waits until the cache has seen everything up to a revision, and asks the server for it now and then: nothing
// may change below the prefix for long. Its error is the cause of ctx, or why the cache has ended.
func (k *Cache) WaitForRevision(ctx context.Context, rev int64) error {
	ask := time.NewTimer(0)
	defer ask.Stop()
	for {
		k.mu.RLock()
		now, err, changed, w := k.rev, k.err, k.changed, k.watch
		k.mu.RUnlock()
		if err != nil || now >= rev {
			return err
		}
		select {
		case <-changed:
		case <-ask.C:
			if w != nil {
				w.RequestProgress()
			}
			ask.Reset(askInterval)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Result is what a read found.
type Result struct {
	// Pairs are in the order of keys. They are shared: do not change them.
	Pairs []*kvpb.KeyValue
	// Revision is that of the state they are of.
	Revision int64
}

// Get reads one key, or those that keys says, as [client.Client.Get] does: it sees every write finished before it began. ErrOutside: they are not
// all below the prefix. Other errors are those of the cluster, the cause of ctx, and why the cache has ended.
func (k *Cache) Get(ctx context.Context, key string, keys ...client.KeysOption) (Result, error) {
	s, err := k.span(key, keys)
	if err != nil {
		return Result{}, err
	}
	now, err := k.c.Get(ctx, k.prefix+"\x00", client.WithCountOnly())
	if err != nil {
		return Result{}, err
	}
	if err := k.WaitForRevision(ctx, now.Header.Revision); err != nil {
		return Result{}, err
	}
	return k.read(s)
}

// Present reads without asking the cluster. It waits until the cache has read for the first time.
func (k *Cache) Present(ctx context.Context, key string, keys ...client.KeysOption) (Result, error) {
	s, err := k.span(key, keys)
	if err != nil {
		return Result{}, err
	}
	if err := k.WaitReady(ctx); err != nil {
		return Result{}, err
	}
	return k.read(s)
}

// read reads what is there.
func (k *Cache) read(s span) (Result, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.err != nil {
		return Result{}, k.err
	}
	r := Result{Revision: k.rev}
	if s.end == "" {
		if kv := k.pairs[s.from]; kv != nil {
			r.Pairs = []*kvpb.KeyValue{kv}
		}
		return r, nil
	}
	i, _ := slices.BinarySearch(k.keys, s.from)
	for ; i < len(k.keys) && s.has(k.keys[i]); i++ {
		r.Pairs = append(r.Pairs, k.pairs[k.keys[i]])
	}
	return r, nil
}

// span is one key or a range: end is as in the API.
type span struct{ from, end string }

// span gives the range of options, if it is all below the prefix.
func (k *Cache) span(key string, keys []client.KeysOption) (span, error) {
	opts := make([]client.GetOption, len(keys))
	for i, o := range keys {
		opts[i] = o
	}
	r := client.OpGet(key, opts...).Request().GetRequestRange()
	s := span{string(r.Key), string(r.RangeEnd)}
	inside := s.from >= k.prefix
	switch {
	case s.end == "":
		inside = strings.HasPrefix(s.from, k.prefix)
	case k.end != "\x00":
		inside = inside && s.end != "\x00" && s.end <= k.end
	}
	if !inside {
		return span{}, fmt.Errorf("%w: %q to %q, of a cache of %q", ErrOutside, s.from, s.end, k.prefix)
	}
	return s, nil
}

// has tells whether a key is in the span.
func (s span) has(key string) bool {
	switch s.end {
	case "":
		return key == s.from
	case "\x00":
		return key >= s.from
	}
	return key >= s.from && key < s.end
}
