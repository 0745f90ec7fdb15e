package scenarios

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/tests/cluster"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Report 52: under the alarm NOSPACE all that frees space works, and so do reads; when space is free again, writes go on by themselves,
// without anybody clearing the alarm or rewriting a file. A request that could not be carried out at any time is refused for that,
// before and under the alarm, and does not raise it.
func TestNoSpaceHealsItself(t *testing.T) {
	t.Parallel()
	const quota = 6 << 20
	cl := cluster.New(t, 3, "--quota-backend-bytes", fmt.Sprint(quota))
	c := cl.Etcd(t)
	lease := must(c.Grant(limited(t), 600))(t).ID
	must(c.Put(limited(t), "leased", "v", clientv3.WithLease(lease)))(t)
	value := strings.Repeat("v", 100_000)
	n := 0
	put := func() error {
		n++
		_, err := c.Put(limited(t), fmt.Sprintf("fill/%03d", n), value)
		return err
	}
	inUse := func() (least int64) {
		for i, url := range cl.Endpoints() {
			if st := must(c.Status(limited(t), url))(t); i == 0 || st.DbSizeInUse < least {
				least = st.DbSizeInUse
			}
		}
		return least
	}
	for tooLargeRoom := int64(quota - 3<<19); inUse() < tooLargeRoom; { // less is free than the largest request
		if err := put(); err != nil {
			t.Fatal(err)
		}
	}
	refuseMalformed(t, c)
	if got := must(c.AlarmList(limited(t)))(t); len(got.Alarms) != 0 {
		t.Errorf("malformed requests have raised %v", got.Alarms)
	}
	var err error
	for err == nil {
		err = put()
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatal(err)
	}
	underAlarm(t, c, lease)
	refuseMalformed(t, c)
	must(c.Delete(limited(t), "fill/", clientv3.WithRange(fmt.Sprintf("fill/%03d", n*2/3))))(t)
	now := must(c.Get(limited(t), "fill/", clientv3.WithPrefix(), clientv3.WithCountOnly()))(t).Header.Revision
	must(c.Compact(limited(t), now, clientv3.WithCompactPhysical()))(t)
	cluster.Eventually(t, cluster.StartLimit, func() error {
		_, err := c.Put(limited(t), "after", "v")
		return err
	})
	cluster.Eventually(t, cluster.StartLimit, func() error {
		if got := must(c.AlarmList(limited(t)))(t); len(got.Alarms) != 0 {
			return fmt.Errorf("alarms %v", got.Alarms)
		}
		return nil
	})
}

// underAlarm does what must work under the alarm, and what must not.
func underAlarm(t *testing.T, c *clientv3.Client, lease clientv3.LeaseID) {
	t.Helper()
	ctx := limited(t)
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := c.Put(ctx, "k", "v")
	refused("a put", err)
	_, err = c.Grant(ctx, 60)
	refused("a lease", err)
	_, err = c.Txn(ctx).Then(clientv3.OpGet("fill/001"), clientv3.OpPut("k", "v")).Commit()
	refused("a transaction that puts", err)
	if got := must(c.Get(ctx, "fill/001"))(t); len(got.Kvs) != 1 {
		t.Errorf("a read: %v", got)
	}
	if r := must(c.Txn(ctx).Then(clientv3.OpGet("fill/001")).Commit())(t); len(r.Responses[0].GetResponseRange().Kvs) != 1 {
		t.Errorf("a transaction that reads: %v", r)
	}
	if r := must(c.Delete(ctx, "fill/001"))(t); r.Deleted != 1 {
		t.Errorf("a deletion: %v", r)
	}
	if r := must(c.Txn(ctx).Then(clientv3.OpDelete("fill/002")).Commit())(t); r.Responses[0].GetResponseDeleteRange().Deleted != 1 {
		t.Errorf("a transaction that deletes: %v", r)
	}
	must(c.KeepAliveOnce(ctx, lease))(t)
	must(c.Revoke(ctx, lease))(t)
	if got := must(c.Get(ctx, "leased"))(t); len(got.Kvs) != 0 {
		t.Error("the key of a lease that was revoked is there")
	}
	must(c.Compact(ctx, 3))(t)
}

// refuseMalformed sends requests that are refused for what they are.
func refuseMalformed(t *testing.T, c *clientv3.Client) {
	t.Helper()
	ctx := limited(t)
	for _, x := range []struct {
		op   clientv3.Op
		want error
	}{
		{clientv3.OpPut("", strings.Repeat("v", 1<<20)), rpctypes.ErrEmptyKey},
		{clientv3.OpPut("k", "v", clientv3.WithIgnoreValue()), rpctypes.ErrValueProvided},
		{clientv3.OpPut("k", strings.Repeat("v", 3<<19)), rpctypes.ErrRequestTooLarge},
		{clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("k", "v"), clientv3.OpPut("k", "v")}, nil), rpctypes.ErrDuplicateKey},
	} {
		if _, err := c.Do(ctx, x.op); !errors.Is(err, x.want) {
			t.Errorf("got %v, want %v", err, x.want)
		}
	}
}
