package integration

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/client"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

var nativePrefix = client.WithPrefix()

func nativeLeaseID(id int64) client.GrantOption { return client.WithLeaseID(client.LeaseID(id)) }

// Both clients in one program see each other's writes, and mean the same by errors.
func bothClients(t *testing.T, s served) {
	ctx, etcd, native := limited(t), s.Etcd(t), s.Native(t)
	k := key(t, "k")
	w := native.Watch(ctx, key(t, ""), client.WithPrefix(), client.WithCreatedNotify())
	defer w.Close()
	if r := must(w.Next(ctx))(t); !r.Created {
		t.Errorf("the watch begins with %v", r)
	}
	put := must(etcd.Put(ctx, k, "from etcd"))(t)
	if r := must(w.Next(ctx))(t); len(r.Events) != 1 || string(r.Events[0].Kv.Value) != "from etcd" || r.Revision != put.Header.Revision {
		t.Errorf("our watch tells of %v", r)
	}
	if got := must(native.Get(ctx, k))(t); string(got.Kvs[0].Value) != "from etcd" {
		t.Errorf("our client reads %v", got.Kvs)
	}
	swap := must(native.Txn(ctx).If(client.ModRevision(k).Equal(put.Header.Revision)).
		Then(client.OpPut(k, "from native"), client.OpGet(k)).Commit())(t)
	if !swap.Succeeded {
		t.Errorf("our transaction: %v", swap)
	}
	if got := must(etcd.Get(ctx, k))(t); string(got.Kvs[0].Value) != "from native" || got.Kvs[0].ModRevision != swap.Header.Revision {
		t.Errorf("etcd's client reads %v", got.Kvs)
	}
	_, err := native.Get(ctx, k, client.WithRev(swap.Header.Revision+1000))
	_, err2 := etcd.Get(ctx, k, clientv3.WithRev(swap.Header.Revision+1000))
	if !errors.Is(err, errs.ErrFutureRev) || !errors.Is(err2, rpctypes.ErrFutureRev) {
		t.Errorf("a future revision: %v and %v", err, err2)
	}
	if got := must(native.Delete(ctx, key(t, ""), client.WithPrefix()))(t); got.Deleted != 1 {
		t.Errorf("our delete: %v", got)
	}
}

// A lease granted by one client and kept alive by the other lives.
func bothKeepAlive(t *testing.T, s served) {
	ctx, etcd, native := limited(t), s.Etcd(t), s.Native(t)
	a := must(etcd.Grant(ctx, 2))(t)
	b := must(native.Grant(ctx, 2))(t)
	keeper := native.KeepAlive(ctx, client.LeaseID(a.ID))
	defer keeper.Close()
	kept, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := must(etcd.KeepAlive(kept, clientv3.LeaseID(b.ID)))(t)
	must(native.Put(ctx, key(t, "a"), "", client.WithLease(client.LeaseID(a.ID))))(t)
	must(etcd.Put(ctx, key(t, "b"), "", clientv3.WithLease(clientv3.LeaseID(b.ID))))(t)
	for end := time.Now().Add(2 * time.Duration(max(a.TTL, b.TTL)) * time.Second); time.Now().Before(end); {
		select {
		case r, ok := <-answers:
			if !ok || r.TTL <= 0 {
				t.Fatalf("etcd's client lost the lease: %v", r)
			}
		case <-keeper.Done():
			t.Fatalf("our client lost the lease: %v", keeper.Err())
		case <-time.After(time.Until(end)):
		}
	}
	if got := must(etcd.Get(ctx, key(t, ""), clientv3.WithPrefix()))(t); len(got.Kvs) != 2 {
		t.Errorf("of the keys of leases kept alive there are left %v", got.Kvs)
	}
	ch := etcd.Watch(ctx, key(t, ""), clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-ch
	cancel()
	keeper.Close()
	collect(t, ch, 2) // both end
}

// The mutex of etcd's client excludes.
func locks(t *testing.T, s served) {
	ctx := limited(t)
	var inside, total atomic.Int64
	var wait sync.WaitGroup
	for i := range 4 {
		c := s.Etcd(t, i%s.Size())
		wait.Go(func() {
			session, err := concurrency.NewSession(c, concurrency.WithTTL(30))
			if err != nil {
				t.Error(err)
				return
			}
			defer session.Close()
			for range 5 {
				m := concurrency.NewMutex(session, key(t, "lock"))
				if err := m.Lock(ctx); err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				total.Add(1)
				inside.Add(-1)
				if err := m.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if total.Load() != 20 {
		t.Errorf("it was held %d times, not 20", total.Load())
	}
}

func elections(t *testing.T, s served) {
	ctx := limited(t)
	first := must(concurrency.NewSession(s.Etcd(t, 0), concurrency.WithTTL(30)))(t)
	second := must(concurrency.NewSession(s.Etcd(t, 1), concurrency.WithTTL(30)))(t)
	defer second.Close()
	e1, e2 := concurrency.NewElection(first, key(t, "e")), concurrency.NewElection(second, key(t, "e"))
	if _, err := e1.Leader(ctx); !errors.Is(err, concurrency.ErrElectionNoLeader) {
		t.Errorf("before anybody stands: %v", err)
	}
	observed := e2.Observe(ctx)
	if err := e1.Campaign(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	won := make(chan error, 1)
	go func() { won <- e2.Campaign(ctx, "two") }()
	if r := <-observed; string(r.Kvs[0].Value) != "one" {
		t.Errorf("observed: %v", r)
	}
	if err := e1.Proclaim(ctx, "one again"); err != nil {
		t.Error(err)
	}
	if r := <-observed; string(r.Kvs[0].Value) != "one again" {
		t.Errorf("observed: %v", r)
	}
	first.Close() // revokes the lease, so the second one follows
	if err := <-won; err != nil {
		t.Fatal(err)
	}
	if r := must(e2.Leader(ctx))(t); string(r.Kvs[0].Value) != "two" {
		t.Errorf("leader: %v", r)
	}
	if err := e2.Resign(ctx); err != nil {
		t.Error(err)
	}
}

// Software transactional memory of etcd's client, at every level of isolation that keeps sums.
func stm(t *testing.T, s served) {
	ctx := limited(t)
	for _, level := range []concurrency.Isolation{concurrency.SerializableSnapshot, concurrency.Serializable, concurrency.RepeatableReads} {
		name := func(i int) string { return key(t, fmt.Sprintf("%d/%d", level, i)) }
		for i := range 3 {
			must(s.Etcd(t).Put(ctx, name(i), "100"))(t)
		}
		var wait sync.WaitGroup
		for w := range 3 {
			c := s.Etcd(t, w)
			wait.Go(func() {
				for n := range 8 {
					from, to := name(n%3), name((n+w+1)%3)
					_, err := concurrency.NewSTM(c, func(m concurrency.STM) error {
						a, err := strconv.Atoi(m.Get(from))
						b, err2 := strconv.Atoi(m.Get(to))
						if err := errors.Join(err, err2); err != nil || from == to {
							return err
						}
						m.Put(from, strconv.Itoa(a-7))
						m.Put(to, strconv.Itoa(b+7))
						return nil
					}, concurrency.WithIsolation(level), concurrency.WithAbortContext(ctx))
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wait.Wait()
		sum := 0
		for i := range 3 {
			sum += must(strconv.Atoi(string(must(s.Etcd(t).Get(ctx, name(i)))(t).Kvs[0].Value)))(t)
		}
		if sum != 300 {
			t.Errorf("isolation %d: the sum is %d", level, sum)
		}
	}
}
