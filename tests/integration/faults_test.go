package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/tests/cluster"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// quick are arguments that make elections short.
var quick = []string{"--heartbeat-interval", "50", "--election-timeout", "500"}

// writer puts 0, 1, 2 … into keys of its own, one at a time, and knows which were acknowledged.
type writer struct {
	name  string
	acked []int
	next  int
}

// run writes until the context ends.
func (w *writer) run(ctx context.Context, kv clientv3.KV) {
	for ctx.Err() == nil {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		if _, err := kv.Put(short, w.key(w.next), fmt.Sprint(w.next)); err == nil {
			w.acked = append(w.acked, w.next)
		}
		cancel()
		w.next++
	}
}

func (w *writer) key(n int) string { return fmt.Sprintf("%s/%06d", w.name, n) }

// check fails if a write that was acknowledged is not there.
func (w *writer) check(ctx context.Context, c clientv3.KV) error {
	got, err := c.Get(ctx, w.name+"/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	have := map[string]string{}
	for _, kv := range got.Kvs {
		have[string(kv.Key)] = string(kv.Value)
	}
	for _, n := range w.acked {
		if v := have[w.key(n)]; v != fmt.Sprint(n) {
			return fmt.Errorf("%s was acknowledged with %d and is %q now", w.key(n), n, v)
		}
	}
	return nil
}

// All members are killed again and again while clients write; what was acknowledged stays.
func TestKillAll(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, 3, quick...)
	writers := []*writer{{name: "a"}, {name: "b"}, {name: "c"}, {name: "d"}}
	for round := range 5 {
		before := 0
		ctx, cancel := context.WithCancel(limited(t))
		var busy sync.WaitGroup
		for i, w := range writers {
			before += len(w.acked)
			kv := c.Etcd(t, i%3)
			busy.Go(func() { w.run(ctx, kv) })
		}
		select { // the length of a round only says how much is written
		case <-ctx.Done():
		case <-time.After(400 * time.Millisecond):
		}
		c.Kill()
		cancel()
		busy.Wait()
		c.Start(t)
		after := 0
		for _, w := range writers {
			if err := w.check(limited(t), c.Etcd(t)); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
			after += len(w.acked)
		}
		if after == before {
			t.Errorf("round %d: nothing was written", round)
		}
	}
	c.SameHash(t, 20*time.Second)
}

// One member is killed right after each acknowledgement.
func TestKillAfterEachWrite(t *testing.T) {
	t.Parallel()
	m := cluster.NewMember(t, "only")
	m.Restart(t)
	for i := range 12 {
		c := memberClient(t, m)
		put, err := c.Put(limited(t), fmt.Sprint(i), "v")
		m.Kill()
		if err != nil {
			t.Fatal(err)
		}
		m.Restart(t)
		got := must(memberClient(t, m).Get(limited(t), "\x00", clientv3.WithFromKey()))(t)
		if len(got.Kvs) != i+1 || got.Header.Revision != put.Header.Revision {
			t.Fatalf("after %d writes, the last at revision %d, there are %d keys at revision %d", i+1, put.Header.Revision, len(got.Kvs), got.Header.Revision)
		}
	}
	if err := m.Crashed(); err != nil {
		t.Error(err)
	}
}

func memberClient(t *testing.T, m *cluster.Member) *clientv3.Client {
	t.Helper()
	return (&cluster.Cluster{Members: []*cluster.Member{m}}).Etcd(t)
}

// Watches of both clients go on over the death of every member, without a gap and without anything twice.
func TestWatchOverRestarts(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, 3, quick...)
	ctx := limited(t)
	first := must(c.Etcd(t).Put(ctx, "w/start", ""))(t).Header.Revision + 1
	etcd := c.Etcd(t).Watch(ctx, "w/", clientv3.WithPrefix(), clientv3.WithRev(first))
	native := c.Native(t).Watch(ctx, "w/", client.WithPrefix(), client.WithRev(first))
	defer native.Close()

	w := &writer{name: "w"}
	writing, stop := context.WithCancel(ctx)
	var busy sync.WaitGroup
	kv := c.Etcd(t)
	busy.Go(func() { w.run(writing, kv) })
	for _, m := range c.Members {
		m.Kill()
		m.Restart(t)
		c.Leader(t)
	}
	stop()
	busy.Wait()
	all := must(c.Etcd(t).Get(ctx, "w/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend)))(t).Kvs[1:]
	if len(w.acked) < 10 || len(all) < len(w.acked) {
		t.Fatalf("%d writes were acknowledged, %d are there", len(w.acked), len(all))
	}
	for n, e := range collect(t, etcd, len(all)) {
		if e.Kv.ModRevision != all[n].ModRevision || string(e.Kv.Key) != string(all[n].Key) {
			t.Fatalf("etcd's client: event %d of %d is %v, not %v", n, len(all), e, all[n])
		}
	}
	for n := 0; n < len(all); {
		for _, e := range must(native.Next(ctx))(t).Events {
			if e.Kv.ModRevision != all[n].ModRevision || string(e.Kv.Key) != string(all[n].Key) {
				t.Fatalf("our client: event %d of %d is %v, not %v", n, len(all), e, all[n])
			}
			n++
		}
	}
	if err := w.check(ctx, c.Etcd(t)); err != nil {
		t.Error(err)
	}
}

// Leases kept alive by both clients live on when the leader is killed, and end in time when they are not kept any more.
func TestKeepAliveOverKill(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, 3, quick...)
	ctx := limited(t)
	etcd, native := c.Etcd(t), c.Native(t)
	const ttl = 4
	a, b, left := must(etcd.Grant(ctx, ttl))(t), must(etcd.Grant(ctx, ttl))(t), must(etcd.Grant(ctx, ttl))(t)
	for name, id := range map[string]clientv3.LeaseID{"a": a.ID, "b": b.ID, "left": left.ID} {
		must(etcd.Put(ctx, "l/"+name, "", clientv3.WithLease(id)))(t)
	}
	kept, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := must(etcd.KeepAlive(kept, a.ID))(t)
	keeper := native.KeepAlive(ctx, client.LeaseID(b.ID))
	defer keeper.Close()
	for end, kills := time.Now().Add(3*ttl*time.Second), 0; time.Now().Before(end); {
		if kills < 2 {
			leader := c.Leader(t)
			leader.Kill()
			leader.Restart(t)
			kills++
		}
		select {
		case r, ok := <-answers:
			if !ok || r.TTL <= 0 {
				t.Fatalf("etcd's client lost its lease: %v", r)
			}
		case <-keeper.Done():
			t.Fatalf("our client lost its lease: %v", keeper.Err())
		case <-time.After(time.Until(end)):
		}
	}
	if got := must(etcd.Get(ctx, "l/", clientv3.WithPrefix()))(t); len(got.Kvs) != 2 || string(got.Kvs[0].Key) != "l/a" || string(got.Kvs[1].Key) != "l/b" {
		t.Errorf("there are left %v", got.Kvs)
	}
	cancel()
	keeper.Close()
	cluster.Eventually(t, 3*ttl*time.Second, func() error {
		if got := must(etcd.Get(ctx, "l/", clientv3.WithPrefix()))(t); len(got.Kvs) > 0 {
			return fmt.Errorf("there are left %v", got.Kvs)
		}
		return nil
	})
}

// A leader that is held while its leases are renewed elsewhere must not revoke them when it goes on.
func TestHeldLeaderRevokesNothing(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, 3, quick...)
	ctx := limited(t)
	old := c.Leader(t)
	var others []int
	for i, m := range c.Members {
		if m != old {
			others = append(others, i)
		}
	}
	cl := c.Etcd(t, others...)
	lease := must(cl.Grant(ctx, 4))(t)
	must(cl.Put(ctx, "k", "v", clientv3.WithLease(lease.ID)))(t)
	answers := must(cl.KeepAlive(ctx, lease.ID))(t)
	old.Pause()
	begin := time.Now()
	for time.Since(begin) < 8*time.Second { // twice its time to live
		if r, ok := <-answers; !ok || r.TTL <= 0 {
			t.Fatalf("the lease was lost while the leader was held: %v", r)
		}
	}
	old.Resume()
	for time.Since(begin) < 12*time.Second {
		if r, ok := <-answers; !ok || r.TTL <= 0 {
			t.Fatalf("the lease was lost when the leader went on: %v", r)
		}
	}
	if got := must(c.Etcd(t).Get(ctx, "k"))(t); len(got.Kvs) != 1 {
		t.Error("the key of the lease is gone")
	}
}

// A negative lease id means the same before and after a restart.
func TestNegativeLeaseOverRestart(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, 3, quick...)
	granted, err := c.Native(t).Grant(limited(t), 600, nativeLeaseID(-5))
	usable := err == nil
	if usable {
		must(c.Native(t).Put(limited(t), "k", "v", client.WithLease(client.LeaseID(granted.ID))))(t)
	}
	c.Kill()
	c.Start(t)
	for i := range c.Members {
		r := must(c.Etcd(t, i).TimeToLive(limited(t), -5))(t)
		if (r.TTL > 0) != usable {
			t.Errorf("member %d after the restart: %v; granted before: %v", i, r, usable)
		}
	}
	c.SameHash(t, 20*time.Second)
}

// A member that was away while the others forgot their logs gets a snapshot, by SIGKILL and by SIGSTOP.
func TestCatchUpBySnapshot(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, 3, append([]string{"--snapshot-count", "100", "--snapshot-catchup-entries", "50"}, quick...)...)
	ctx := limited(t)
	for round, away := range []func(m *cluster.Member){(*cluster.Member).Kill, (*cluster.Member).Pause} {
		victim := c.Members[0]
		if c.Leader(t) == victim {
			victim = c.Members[1]
		}
		away(victim)
		var others []int
		for i, m := range c.Members {
			if m != victim {
				others = append(others, i)
			}
		}
		cl := c.Etcd(t, others...)
		for i := range 1000 {
			must(cl.Put(ctx, fmt.Sprintf("s/%d/%d", round, i%700), strings.Repeat("v", 1000)))(t)
		}
		must(cl.Delete(ctx, fmt.Sprintf("s/%d/1", round), clientv3.WithPrefix()))(t)
		rev := must(cl.Get(ctx, "s/"))(t).Header.Revision
		must(cl.Compact(ctx, rev-500))(t)
		victim.Resume()
		if !victim.Running() {
			victim.Restart(t)
		}
		c.SameHash(t, 30*time.Second)
		if n := strings.Count(victim.Log(), `"applied snapshot"`); n == 0 {
			t.Errorf("round %d: %s has caught up, and without a snapshot", round, victim.Name)
		}
		own := (&cluster.Cluster{Members: []*cluster.Member{victim}}).Etcd(t)
		if got := must(own.Get(ctx, "s/", clientv3.WithPrefix(), clientv3.WithCountOnly()))(t); got.Count == 0 {
			t.Errorf("round %d: %s has no keys", round, victim.Name)
		}
	}
	// What came by snapshot outlives the next kill.
	c.Kill()
	c.Start(t)
	c.SameHash(t, 20*time.Second)
}

// A member without majority answers what it can, refuses the rest, and goes on when the others are back.
func TestNoMajority(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, 3, quick...)
	ctx := limited(t)
	must(c.Etcd(t).Put(ctx, "k", "v"))(t)
	c.SameHash(t, 20*time.Second)
	c.Members[1].Kill()
	c.Members[2].Kill()
	alone := c.Etcd(t, 0)
	if got := must(alone.Get(ctx, "k", clientv3.WithSerializable()))(t); len(got.Kvs) != 1 {
		t.Errorf("a serializable read: %v", got)
	}
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := alone.Put(short, "k", "lost"); err == nil {
		t.Error("a put without majority was acknowledged")
	}
	if _, err := alone.Get(short, "k"); err == nil {
		t.Error("a linearizable read without majority was answered")
	}
	watch := alone.Watch(clientv3.WithRequireLeader(ctx), "k")
	select {
	case r, ok := <-watch:
		if ok && r.Err() == nil {
			t.Errorf("a watch that requires a leader got %v", r)
		}
	case <-time.After(20 * time.Second):
		t.Error("a watch that requires a leader does not end without one")
	}
	c.Start(t)
	cluster.Eventually(t, 30*time.Second, func() error {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := alone.Put(short, "k", "back")
		return err
	})
	if !c.Members[0].Running() {
		t.Error("the member has ended")
	}
}

// A member that is killed at some moment of its first start founds its cluster at the next one.
func TestKillWhileFounding(t *testing.T) {
	t.Parallel()
	for delay := 5 * time.Millisecond; delay < 120*time.Millisecond; delay += 5 * time.Millisecond {
		m := cluster.NewMember(t, "m")
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-t.Context().Done():
		case <-time.After(delay):
		}
		m.Kill()
		m.Restart(t)
		must(memberClient(t, m).Put(limited(t), "k", "v"))(t)
		m.Kill()
	}
}
