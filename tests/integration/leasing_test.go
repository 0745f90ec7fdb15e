package integration

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/leasing"
	"github.com/coordd/coordd/tests/cluster"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdleasing "go.etcd.io/etcd/client/v3/leasing"
)

// Package leasing of both clients hold keys below one prefix, and give them up to each other.
func TestLeasings(t *testing.T) {
	s := cluster.Embed(t, 3)
	ctx, native := limited(t), s.Native(t)
	const prefix = "leases/"
	theirs, end, err := etcdleasing.NewKV(s.Etcd(t), prefix)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	ours := must(leasing.New(ctx, native, prefix, leasing.WithRest(0)))(t)
	defer ours.Close()

	must(theirs.Get(ctx, "a"))(t)
	must(ours.Get(ctx, "b"))(t)
	for _, k := range []string{"a", "b"} {
		if r := must(native.Get(ctx, prefix+k))(t); r.Count != 1 {
			t.Errorf("%s is not held", k)
		}
	}
	if must(ours.Get(ctx, "a"))(t); ours.Holds("a") || !ours.Holds("b") {
		t.Error("we hold what they do, or not what we do")
	}
	for i := range 5 { // each writes what the other holds
		mine, yours := fmt.Sprint("ours ", i), fmt.Sprint("theirs ", i)
		must(ours.Put(ctx, "a", mine))(t)
		if r := must(theirs.Get(ctx, "a"))(t); string(r.Kvs[0].Value) != mine {
			t.Errorf("they read %v, want %s", r.Kvs, mine)
		}
		must(ours.Get(ctx, "b"))(t)
		must(theirs.Put(ctx, "b", yours))(t)
		if r := must(ours.Get(ctx, "b"))(t); string(r.Kvs[0].Value) != yours {
			t.Errorf("we read %v, want %s", r.Kvs, yours)
		}
	}
	must(theirs.Get(ctx, "a"))(t)
	if r := must(ours.Delete(ctx, "a", client.WithRange("c")))(t); r.Deleted != 2 {
		t.Errorf("deleted %d, want 2", r.Deleted)
	}
	if r := must(theirs.Get(ctx, "a"))(t); r.Count != 0 {
		t.Errorf("they read %v", r.Kvs)
	}
	count(t, ctx, ours, theirs)
}

// increment is one attempt to increment a counter; it tells whether it was done.
type increment func() (bool, error)

// count has both increment one counter.
func count(t *testing.T, ctx context.Context, ours *leasing.KV, theirs clientv3.KV) {
	const each = 20
	next := func(value []byte) string {
		n, _ := strconv.Atoi(string(value)) // 0 if there is none
		return strconv.Itoa(n + 1)
	}
	var wg sync.WaitGroup
	for name, once := range map[string]increment{
		"ours": func() (bool, error) {
			r, err := ours.Get(ctx, "n")
			if err != nil {
				return false, err
			}
			pair := append(r.Kvs, new(kvpb.KeyValue))[0]
			tx, err := ours.Txn(ctx).If(client.ModRevision("n").Equal(pair.ModRevision)).Then(client.OpPut("n", next(pair.Value))).Commit()
			return tx.GetSucceeded(), err
		},
		"theirs": func() (bool, error) {
			r, err := theirs.Get(ctx, "n")
			if err != nil {
				return false, err
			}
			pair := append(r.Kvs, new(mvccpb.KeyValue))[0]
			tx, err := theirs.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision("n"), "=", pair.ModRevision)).Then(clientv3.OpPut("n", next(pair.Value))).Commit()
			return err == nil && tx.Succeeded, err
		},
	} {
		wg.Go(func() {
			for n := 0; n < each; {
				ok, err := once()
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				if ok {
					n++
				}
			}
		})
	}
	wg.Wait()
	if r := must(ours.Get(ctx, "n"))(t); string(r.Kvs[0].Value) != strconv.Itoa(2*each) {
		t.Errorf("counted to %s, want %d", r.Kvs[0].Value, 2*each)
	}
}
