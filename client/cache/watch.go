package cache

import (
	"context"
	"iter"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/client"
)

// Watcher follows changes. It is for one goroutine, holds nothing, and need not be closed.
type Watcher struct {
	k    *Cache
	span span
	rev  int64 // the next revision it has not seen; 0 before the cache has read for the first time
}

// Watch follows the changes of one key, or of those that keys says, from revision rev on, 0 for from the next change on. ErrOutside:
// they are not all below the prefix.
func (k *Cache) Watch(rev int64, key string, keys ...client.KeysOption) (*Watcher, error) {
	s, err := k.span(key, keys)
	if err != nil {
		return nil, err
	}
	if rev == 0 {
		if now := k.Revision(); now > 0 {
			rev = now + 1
		}
	}
	return &Watcher{k: k, span: s, rev: rev}, nil
}

// Changes is what a watcher has seen.
type Changes struct {
	// Events are all those of one revision. They are shared: do not change them.
	Events []*kvpb.Event
	// Revision is theirs.
	Revision int64
}

// Next waits for the next revision with changes. Its error is the cause of ctx, which leaves the watcher as it is; a
// [client.CompactedError] if changes it has not seen are not in the history any more; or why the cache has ended.
func (w *Watcher) Next(ctx context.Context) (Changes, error) {
	if err := w.k.WaitReady(ctx); err != nil {
		return Changes{}, err
	}
	for {
		c, changed, err := w.take()
		if err != nil || len(c.Events) > 0 {
			return c, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Changes{}, context.Cause(ctx)
		}
	}
}

// All gives the changes until Next fails; the last pair is why.
func (w *Watcher) All(ctx context.Context) iter.Seq2[Changes, error] {
	return func(yield func(Changes, error) bool) {
		for {
			c, err := w.Next(ctx)
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

// take gives the next changes in the history, or what to wait on for more.
func (w *Watcher) take() (Changes, <-chan struct{}, error) {
	k := w.k
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.err != nil {
		return Changes{}, nil, k.err
	}
	if w.rev == 0 {
		w.rev = k.rev + 1
	}
	if w.rev <= k.floor {
		return Changes{}, nil, &client.CompactedError{NextRevision: w.rev, CompactRevision: k.floor + 1}
	}
	for pos := k.history.search(func(b batch) bool { return b.rev >= w.rev }); pos < k.history.next; pos++ {
		b := k.history.at(pos)
		w.rev = b.rev + 1
		var events []*kvpb.Event
		for _, e := range b.events {
			if w.span.has(string(e.Kv.Key)) {
				events = append(events, e)
			}
		}
		if len(events) > 0 {
			return Changes{events, b.rev}, nil, nil
		}
	}
	w.rev = max(w.rev, k.rev+1) // nothing up to here is of interest, however long the history will be
	return Changes{}, k.changed, nil
}
