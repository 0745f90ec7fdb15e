package integration

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coordd/tests/cluster"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func leases(t *testing.T, s served) {
	ctx, c := limited(t), s.Etcd(t)
	short := must(c.Grant(ctx, 2))(t)
	granted := time.Now()
	put := must(c.Put(ctx, key(t, "k"), "v", clientv3.WithLease(short.ID)))(t)
	ch := c.Watch(ctx, key(t, "k"), clientv3.WithRev(put.Header.Revision+1))
	if r := must(c.TimeToLive(ctx, short.ID, clientv3.WithAttachedKeys()))(t); r.GrantedTTL != short.TTL || len(r.Keys) != 1 || string(r.Keys[0]) != key(t, "k") {
		t.Errorf("time to live: %v", r)
	}
	e := collect(t, ch, 1)[0]
	if took, least := time.Since(granted), time.Duration(short.TTL)*time.Second; e.Type != clientv3.EventTypeDelete || took < least-50*time.Millisecond || took > least+5*time.Second {
		t.Errorf("a lease of %v ended after %v with %v", least, took, e)
	}
	if r := must(c.TimeToLive(ctx, short.ID))(t); r.TTL != -1 {
		t.Errorf("%d s are left of a lease that is over", r.TTL)
	}
	if _, err := c.Put(ctx, key(t, "k"), "v", clientv3.WithLease(short.ID)); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("put with a lease that is over: %v", err)
	}
	if _, err := c.KeepAliveOnce(ctx, short.ID); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("keep alive of a lease that is over: %v", err)
	}
	long := must(c.Grant(ctx, 600))(t)
	must(c.Put(ctx, key(t, "a"), "", clientv3.WithLease(long.ID)))(t)
	must(c.Put(ctx, key(t, "b"), "", clientv3.WithLease(long.ID)))(t)
	must(c.Put(ctx, key(t, "b"), ""))(t) // takes it off the lease
	must(c.Revoke(ctx, long.ID))(t)
	if got := must(c.Get(ctx, key(t, ""), clientv3.WithPrefix()))(t); len(got.Kvs) != 1 || string(got.Kvs[0].Key) != key(t, "b") {
		t.Errorf("after the revoke: %v", got.Kvs)
	}
	if _, err := c.Revoke(ctx, long.ID); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
}

// A lease just granted at one member is there at all others, and one just revoked is not.
func leaseEverywhere(t *testing.T, s served) {
	ctx := limited(t)
	var clients []*clientv3.Client
	for i := range s.Size() {
		clients = append(clients, s.Etcd(t, i))
	}
	var wait sync.WaitGroup
	for i := range 100 {
		wait.Go(func() {
			for range 3 {
				lease, err := clients[i%3].Grant(ctx, 60)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := clients[(i+1)%3].KeepAliveOnce(ctx, lease.ID); err != nil {
					t.Errorf("keep alive elsewhere: %v", err)
				}
				if r, err := clients[(i+2)%3].TimeToLive(ctx, lease.ID); err != nil || r.TTL <= 0 {
					t.Errorf("time to live elsewhere: %v %v", r, err)
				}
				if _, err := clients[(i+1)%3].Revoke(ctx, lease.ID); err != nil {
					t.Errorf("revoke elsewhere: %v", err)
				}
				if r, err := clients[i%3].TimeToLive(ctx, lease.ID); err != nil || r.TTL != -1 {
					t.Errorf("time to live of a lease that was revoked elsewhere: %d s, %v", r.TTL, err)
				}
				if _, err := clients[(i+2)%3].KeepAliveOnce(ctx, lease.ID); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
					t.Errorf("keep alive of a lease that was revoked elsewhere: %v", err)
				}
			}
		})
	}
	wait.Wait()
}

// A negative id is either used by all members or refused by all.
func negativeLease(t *testing.T, s served) {
	ctx := limited(t)
	granted, err := s.Native(t).Grant(ctx, 60, nativeLeaseID(-5))
	if err != nil {
		t.Logf("refused: %v", err)
		return
	}
	for i := range s.Size() {
		c := s.Etcd(t, i)
		if r := must(c.TimeToLive(ctx, clientv3.LeaseID(granted.ID)))(t); r.TTL <= 0 {
			t.Errorf("member %d: %v", i, r)
		}
		must(c.Put(ctx, key(t, fmt.Sprint(i)), "", clientv3.WithLease(clientv3.LeaseID(granted.ID))))(t)
	}
	must(s.Etcd(t).Revoke(ctx, clientv3.LeaseID(granted.ID)))(t)
	if got := must(s.Etcd(t).Get(ctx, key(t, ""), clientv3.WithPrefix()))(t); len(got.Kvs) != 0 {
		t.Errorf("after the revoke: %v", got.Kvs)
	}
}

// Changes of the leader do not make a lease young again, nor older than it is.
func leaseAge(t *testing.T, s served) {
	ctx, c := limited(t), s.Etcd(t)
	lease := must(c.Grant(ctx, 100))(t)
	begin := time.Now()
	cluster.Eventually(t, 20*time.Second, func() error { // let it age
		if r := must(c.TimeToLive(ctx, lease.ID))(t); r.TTL > 96 {
			return fmt.Errorf("%d s left", r.TTL)
		}
		return nil
	})
	for range 3 {
		moveLeader(t, s)
	}
	age := time.Since(begin)
	for i := range s.Size() {
		r := must(s.Etcd(t, i).TimeToLive(ctx, lease.ID))(t)
		// A planned move writes down what is left, so little is added; what an election takes is not counted.
		if left := time.Duration(r.TTL) * time.Second; left > 98*time.Second || left < 100*time.Second-age-2*time.Second {
			t.Errorf("member %d: %v left of 100 s after %v and three moves", i, left, age)
		}
	}
}

// moveLeader hands the leadership to the member after the one that has it.
func moveLeader(t *testing.T, s served) {
	t.Helper()
	ctx, c := limited(t), s.Etcd(t)
	cluster.Eventually(t, 20*time.Second, func() error {
		var ids []uint64
		for _, url := range s.Endpoints() {
			st, err := c.Status(ctx, url)
			if err != nil {
				return err
			}
			ids = append(ids, st.Header.MemberId)
		}
		for i, url := range s.Endpoints() {
			st, err := c.Status(ctx, url)
			if err != nil || st.Leader != ids[i] {
				continue
			}
			_, err = s.Etcd(t, i).MoveLeader(ctx, ids[(i+1)%len(ids)])
			return err
		}
		return errors.New("nobody leads")
	})
}
