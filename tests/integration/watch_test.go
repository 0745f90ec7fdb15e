package integration

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coordd/tests/cluster"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// collect waits for n events.
func collect(t *testing.T, ch clientv3.WatchChan, n int) []*clientv3.Event {
	t.Helper()
	var events []*clientv3.Event
	limit := time.After(30 * time.Second)
	for len(events) < n {
		select {
		case r, ok := <-ch:
			if !ok || r.Err() != nil {
				t.Fatalf("the watch ended after %d of %d events: %v", len(events), n, r.Err())
			}
			events = append(events, r.Events...)
		case <-limit:
			t.Fatalf("%d of %d events have come", len(events), n)
		}
	}
	return events
}

func watchChanges(t *testing.T, s served) {
	ctx := limited(t)
	writer := s.Etcd(t)
	k := key(t, "k")
	var channels []clientv3.WatchChan
	for i := range s.Size() {
		ch := s.Etcd(t, i).Watch(clientv3.WithRequireLeader(ctx), key(t, ""), clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
		if r := <-ch; !r.Created {
			t.Errorf("member %d did not say that the watch is made: %v", i, r)
		}
		channels = append(channels, ch)
	}
	must(writer.Put(ctx, k, "one"))(t)
	must(writer.Txn(ctx).Then(clientv3.OpPut(k, "two"), clientv3.OpPut(key(t, "other"), "x")).Commit())(t)
	must(writer.Delete(ctx, key(t, ""), clientv3.WithPrefix()))(t)
	for i, ch := range channels {
		events := collect(t, ch, 5)
		var got string
		for _, e := range events {
			got += fmt.Sprintf("%s %d %q; ", e.Type, e.Kv.ModRevision-events[0].Kv.ModRevision, e.PrevKv.GetValue())
		}
		if want := `PUT 0 ""; PUT 1 "one"; PUT 1 ""; DELETE 2 "two"; DELETE 2 "x"; `; got != want {
			t.Errorf("member %d: %s, want %s", i, got, want)
		}
		if !events[0].IsCreate() || !events[1].IsModify() {
			t.Errorf("member %d: the first put is no creation, or the second no change: %v", i, events)
		}
	}
}

func watchHistory(t *testing.T, s served) {
	ctx, c := limited(t), s.Etcd(t)
	first := must(c.Put(ctx, key(t, "k"), "0"))(t).Header.Revision
	for i := range 199 {
		must(c.Put(ctx, key(t, "k"), fmt.Sprint(i+1)))(t)
	}
	for i := range s.Size() {
		for n, e := range collect(t, s.Etcd(t, i).Watch(ctx, key(t, "k"), clientv3.WithRev(first)), 200) {
			if e.Kv.ModRevision != first+int64(n) || string(e.Kv.Value) != fmt.Sprint(n) {
				t.Fatalf("member %d: event %d is %v", i, n, e)
			}
		}
	}
	puts := c.Watch(ctx, key(t, "k"), clientv3.WithRev(first), clientv3.WithFilterDelete())
	deletes := c.Watch(ctx, key(t, "k"), clientv3.WithRev(first), clientv3.WithFilterPut())
	must(c.Delete(ctx, key(t, "k")))(t)
	must(c.Put(ctx, key(t, "k"), "200"))(t)
	if e := collect(t, puts, 201)[200]; string(e.Kv.Value) != "200" {
		t.Errorf("the last put is %v", e)
	}
	if e := collect(t, deletes, 1)[0]; e.Type != clientv3.EventTypeDelete {
		t.Errorf("the first deletion is %v", e)
	}
}

func watchOddities(t *testing.T, s served) {
	ctx, c := limited(t), s.Etcd(t)
	now := must(c.Put(ctx, key(t, "k"), "now"))(t).Header.Revision
	// A revision that has not come is waited for, without what comes before.
	ahead := c.Watch(ctx, key(t, "k"), clientv3.WithRev(now+3), clientv3.WithCreatedNotify())
	<-ahead
	for i := range 4 {
		must(c.Put(ctx, key(t, "k"), fmt.Sprint(i)))(t)
	}
	if e := collect(t, ahead, 1)[0]; e.Kv.ModRevision != now+3 {
		t.Errorf("a watch from revision %d on begins with %v", now+3, e)
	}
	// A negative one is refused.
	select {
	case r := <-c.Watch(ctx, key(t, "k"), clientv3.WithRev(-1)):
		if !r.Canceled || r.Err() == nil {
			t.Errorf("a watch from revision -1: %v", r)
		}
	case <-time.After(20 * time.Second):
		t.Error("a watch from revision -1 is neither refused nor served")
	}
	// An empty range is none.
	select {
	case r := <-c.Watch(ctx, "b", clientv3.WithRange("a")):
		if !r.Canceled {
			t.Errorf("a watch of an empty range: %v", r)
		}
	case <-time.After(20 * time.Second):
		t.Error("a watch of an empty range is neither refused nor served")
	}
}

// A watcher that has had no event is told how far it is when it asks.
func watchProgress(t *testing.T, s served) {
	ctx, c := limited(t), s.Etcd(t)
	rev := must(c.Put(ctx, key(t, "other"), "x"))(t).Header.Revision
	ch := c.Watch(ctx, key(t, "k"), clientv3.WithRev(rev))
	cluster.Eventually(t, 20*time.Second, func() error {
		if err := c.RequestProgress(ctx); err != nil {
			return err
		}
		select {
		case r := <-ch:
			if !r.IsProgressNotify() || r.Header.Revision < rev {
				t.Fatalf("got %v", r)
			}
			return nil
		case <-time.After(100 * time.Millisecond):
			return errors.New("no notice of progress")
		}
	})
}

// Many watchers share a stream with a reader that takes its time and with large reads; all get everything.
func manyWatchers(t *testing.T, s served) {
	ctx, c := limited(t), s.Etcd(t)
	const watchers, puts = 200, 50
	slow := c.Watch(ctx, key(t, "k"))
	var got sync.WaitGroup
	var channels []clientv3.WatchChan
	for range watchers {
		ch := c.Watch(ctx, key(t, "k"), clientv3.WithCreatedNotify())
		<-ch
		channels = append(channels, ch)
	}
	for _, ch := range channels {
		got.Go(func() {
			for n := 0; n < puts; {
				r, ok := <-ch
				if !ok || r.Err() != nil {
					t.Errorf("a watch ended: %v", r.Err())
					return
				}
				for _, e := range r.Events {
					if string(e.Kv.Value[:3]) != fmt.Sprintf("%03d", n) {
						t.Errorf("event %d is %.3s", n, e.Kv.Value)
						return
					}
					n++
				}
			}
		})
	}
	pad := string(make([]byte, 10_000))
	for i := range puts {
		must(c.Put(ctx, key(t, "k"), fmt.Sprintf("%03d", i)+pad))(t)
		must(c.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithLimit(1000)))(t)
	}
	got.Wait()
	if e := collect(t, slow, puts)[puts-1]; string(e.Kv.Value[:3]) != fmt.Sprintf("%03d", puts-1) {
		t.Errorf("the slow reader's last event is %.3s", e.Kv.Value)
	}
}
