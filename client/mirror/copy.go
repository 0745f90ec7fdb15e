package mirror

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/client"
)

// compare makes the copy equal to the source at one revision, which it gives.
func (r *run) compare(ctx context.Context, cluster uint64) (int64, error) {
	r.m.compare.Add(1)
	// The copy is in between from here on: without this a run after a failure would follow from where it was complete before.
	if err := r.write(ctx, nil, r.noteAt(cluster, 0)); err != nil {
		return 0, err
	}
	source, err := r.m.from.Scan(ctx, r.m.source, client.WithPrefix())
	if err != nil {
		return 0, fmt.Errorf("mirror: reading the source: %w", err)
	}
	copied, err := r.m.to.Scan(ctx, *r.m.copy, client.WithPrefix())
	if err != nil {
		return 0, fmt.Errorf("mirror: reading the copy: %w", err)
	}
	b := r.newBatch()
	for c, err := range r.differences(source, copied) {
		if err == nil && b.bytes+len(c.key)+len(c.value) > batchBytes {
			err = b.flush(ctx, "")
		}
		if err == nil {
			err = b.add(ctx, c, "")
		}
		if err != nil {
			return 0, err
		}
	}
	return source.Revision(), b.flush(ctx, r.noteAt(cluster, source.Revision()))
}

// differences gives what is to be done to the copy, by going through both sides in the order of keys, which is the same.
func (r *run) differences(source, copied *client.Scan) iter.Seq2[change, error] {
	return func(yield func(change, error) bool) {
		nextSource, stop := iter.Pull2(source.All())
		defer stop()
		nextCopy, stop := iter.Pull2(copied.All())
		defer stop()
		asIs := func(key []byte) string { return string(key) }
		s, err := r.pull(nextSource, "source", r.copied)
		c, err2 := r.pull(nextCopy, "copy", asIs)
		for err == nil && err2 == nil && (s != nil || c != nil) {
			order := 0
			switch {
			case s == nil:
				order = 1
			case c == nil:
				order = -1
			default:
				order = strings.Compare(r.copied(s.Key), string(c.Key))
			}
			if order > 0 {
				if !r.m.keep && !yield(change{key: string(c.Key), remove: true}, nil) {
					return
				}
			} else if order < 0 || string(s.Value) != string(c.Value) {
				if !yield(change{key: r.copied(s.Key), value: string(s.Value)}, nil) {
					return
				}
			}
			if order <= 0 {
				s, err = r.pull(nextSource, "source", r.copied)
			}
			if order >= 0 {
				c, err2 = r.pull(nextCopy, "copy", asIs)
			}
		}
		for _, err := range []error{err, err2} {
			if err != nil {
				yield(change{}, err)
				return
			}
		}
	}
}

// pull takes the next pair of a side, nil at its end. What has the name of the note is passed over, on both sides.
func (r *run) pull(next func() (*kvpb.KeyValue, error, bool), side string, name func([]byte) string) (*kvpb.KeyValue, error) {
	for {
		kv, err, ok := next()
		if err != nil {
			return nil, fmt.Errorf("mirror: reading the %s: %w", side, err)
		}
		if !ok {
			return nil, nil
		}
		if r.m.key == "" || name(kv.Key) != r.m.key {
			return kv, nil
		}
	}
}

// follow does what changes at the source after a revision, until it fails.
func (r *run) follow(ctx context.Context, cluster uint64, rev int64) error {
	w := r.m.from.Watch(ctx, r.m.source, client.WithPrefix(), client.WithRev(rev+1), client.WithProgressNotify())
	defer w.Close()
	for {
		resp, err := w.Next(ctx)
		if err != nil {
			return fmt.Errorf("mirror: watching the source: %w", err)
		}
		if err := r.events(ctx, cluster, rev, resp.Events); err != nil {
			return err
		}
		if resp.Revision > rev { // a notice of progress keeps the note from growing old while nothing changes
			if len(resp.Events) == 0 {
				if err := r.write(ctx, nil, r.noteAt(cluster, resp.Revision)); err != nil {
					return err
				}
			}
			rev = resp.Revision
			r.m.rev.Store(rev)
		}
	}
}

// events does the changes of one response, revision by revision. rev is up to where the copy is complete.
func (r *run) events(ctx context.Context, cluster uint64, rev int64, events []*kvpb.Event) error {
	b := r.newBatch()
	for len(events) > 0 {
		n := 1
		for n < len(events) && events[n].Kv.ModRevision == events[0].Kv.ModRevision {
			n++
		}
		if !b.fits(events[:n]) && len(b.changes) > 0 {
			if err := b.flush(ctx, r.noteAt(cluster, rev)); err != nil {
				return err
			}
		}
		for _, e := range events[:n] {
			key := r.copied(e.Kv.Key)
			if key == r.m.key {
				continue
			}
			c := change{key, string(e.Kv.Value), e.Type == kvpb.Event_DELETE}
			// If one revision is too large for a transaction, the copy is complete only up to the one before it until the end.
			if err := b.add(ctx, c, r.noteAt(cluster, rev)); err != nil {
				return err
			}
		}
		rev = events[0].Kv.ModRevision
		events = events[n:]
	}
	if len(b.changes) == 0 {
		return nil
	}
	return b.flush(ctx, r.noteAt(cluster, rev))
}
