package scenarios

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Report 11: a compaction at the revision of a deletion leaves its event: a watch from there on gets it, and what comes after.
func TestDeleteEventSurvivesCompaction(t *testing.T) {
	t.Parallel()
	_, c := single(t)
	ctx := limited(t)
	for i := range 3 {
		must(c.Put(ctx, "k", fmt.Sprint(i)))(t)
	}
	deleted := must(c.Delete(ctx, "k"))(t).Header.Revision
	put := must(c.Put(ctx, "k", "again"))(t).Header.Revision
	must(c.Compact(ctx, deleted, clientv3.WithCompactPhysical()))(t)
	var got []string
	for r := range c.Watch(ctx, "k", clientv3.WithRev(deleted)) {
		if err := r.Err(); err != nil {
			t.Fatal(err)
		}
		for _, e := range r.Events {
			got = append(got, fmt.Sprintf("%s@%d", e.Type, e.Kv.ModRevision))
		}
		if len(got) >= 2 {
			break
		}
	}
	if want := fmt.Sprintf("DELETE@%d PUT@%d", deleted, put); strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// Report 21 (without TLS): 500 watchers on one stream all get every event, in order, though large lists keep the same connection busy
// and nobody reads half of them until the end.
func TestManyWatchersBesideLargeReads(t *testing.T) {
	t.Parallel()
	_, c := single(t)
	ctx := limited(t)
	load(t, c, 1000, func(i int) string { return fmt.Sprintf("large/%04d", i) }, strings.Repeat("v", 1000))
	const watchers, writes = 500, 100
	var channels []clientv3.WatchChan
	for range watchers {
		ch := c.Watch(ctx, "w", clientv3.WithCreatedNotify())
		channels = append(channels, ch)
	}
	for _, ch := range channels {
		if r := <-ch; !r.Created {
			t.Fatalf("%v", r)
		}
	}
	var reads, early sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		reads.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got, err := c.Get(ctx, "large/", clientv3.WithPrefix()); err != nil || len(got.Kvs) != 1000 {
					t.Errorf("a list of %d keys: %v", len(got.Kvs), err)
					return
				}
			}
		})
	}
	first := must(c.Get(ctx, "w"))(t).Header.Revision + 1
	read := func(ch clientv3.WatchChan) {
		for next := first; next < first+writes; {
			r, ok := <-ch
			if !ok || r.Err() != nil {
				t.Errorf("the watch has ended before revision %d: %v", next, r.Err())
				return
			}
			for _, e := range r.Events {
				if e.Kv.ModRevision != next {
					t.Errorf("revision %d, want %d", e.Kv.ModRevision, next)
					return
				}
				next++
			}
		}
	}
	for _, ch := range channels[:watchers/2] {
		early.Go(func() { read(ch) })
	}
	for range writes {
		must(c.Put(ctx, "w", strings.Repeat("w", 100)))(t)
	}
	early.Wait()
	close(stop)
	reads.Wait()
	for _, ch := range channels[watchers/2:] {
		read(ch)
	}
}
