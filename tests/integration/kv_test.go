package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func putGetDelete(t *testing.T, s served) {
	c, ctx, k := s.Etcd(t), limited(t), key(t, "k")
	if got := must(c.Get(ctx, k))(t); len(got.Kvs) != 0 || got.Count != 0 {
		t.Fatalf("before the first put: %v", got)
	}
	first := must(c.Put(ctx, k, "one", clientv3.WithPrevKV()))(t)
	second := must(c.Put(ctx, k, "two", clientv3.WithPrevKV()))(t)
	if first.PrevKv != nil || string(second.PrevKv.Value) != "one" || second.Header.Revision != first.Header.Revision+1 {
		t.Errorf("puts: %v, %v", first, second)
	}
	// Every member has it, a linearizable read at once.
	for i := range s.Size() {
		got := must(s.Etcd(t, i).Get(ctx, k))(t)
		if len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "two" || got.Kvs[0].Version != 2 ||
			got.Kvs[0].CreateRevision != first.Header.Revision || got.Kvs[0].ModRevision != second.Header.Revision {
			t.Errorf("member %d: %v", i, got)
		}
	}
	if got := must(c.Get(ctx, k, clientv3.WithRev(first.Header.Revision)))(t); string(got.Kvs[0].Value) != "one" {
		t.Errorf("at the first revision: %v", got)
	}
	if _, err := c.Get(ctx, k, clientv3.WithRev(second.Header.Revision+1000)); !errors.Is(err, rpctypes.ErrFutureRev) {
		t.Errorf("at a revision that has not come: %v", err)
	}
	if got := must(c.Delete(ctx, k, clientv3.WithPrevKV()))(t); got.Deleted != 1 || string(got.PrevKvs[0].Value) != "two" {
		t.Errorf("delete: %v", got)
	}
	if got := must(c.Delete(ctx, k))(t); got.Deleted != 0 || got.Header.Revision != second.Header.Revision+1 {
		t.Errorf("the second delete: %v", got)
	}
	if _, err := c.Put(ctx, "", "x"); !errors.Is(err, rpctypes.ErrEmptyKey) {
		t.Errorf("an empty key: %v", err)
	}
	if _, err := c.Put(ctx, key(t, "none"), "", clientv3.WithIgnoreValue()); !errors.Is(err, rpctypes.ErrKeyNotFound) {
		t.Errorf("ignore_value of a missing key: %v", err)
	}
}

func ranges(t *testing.T, s served) {
	c, ctx := s.Etcd(t), limited(t)
	for i := range 10 {
		must(c.Put(ctx, key(t, fmt.Sprint(i)), strings.Repeat("x", 10-i)))(t)
	}
	prefix := key(t, "")
	names := func(opts ...clientv3.OpOption) string {
		var b strings.Builder
		got := must(c.Get(ctx, prefix, opts...))(t)
		for _, kv := range got.Kvs {
			b.WriteString(strings.TrimPrefix(string(kv.Key), prefix))
		}
		if got.More {
			b.WriteString("+")
		}
		return b.String()
	}
	for _, x := range []struct {
		want string
		opts []clientv3.OpOption
	}{
		{"0123456789", []clientv3.OpOption{clientv3.WithPrefix()}},
		{"012+", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(3)}},
		{"987+", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(3), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend)}},
		{"98+", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(2), clientv3.WithSort(clientv3.SortByValue, clientv3.SortAscend)}},
		{"0123", []clientv3.OpOption{clientv3.WithRange(key(t, "4"))}},
		{"", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithCountOnly()}},
		{"0123456789", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithSerializable()}},
	} {
		if got := names(x.opts...); got != x.want {
			t.Errorf("%d options: %q, want %q", len(x.opts), got, x.want)
		}
	}
	lease := must(c.Grant(ctx, 600))(t)
	must(c.Put(ctx, key(t, "0"), "leased", clientv3.WithLease(lease.ID)))(t)
	got := must(c.Get(ctx, key(t, "0"), clientv3.WithKeysOnly()))(t)
	if len(got.Kvs) != 1 || len(got.Kvs[0].Value) != 0 || got.Kvs[0].Lease != int64(lease.ID) || got.Kvs[0].Version != 2 {
		t.Errorf("keys only: %v", got.Kvs)
	}
}

// Count is of all keys of the range, whatever filters and limit leave of them.
func countIgnoresFilters(t *testing.T, s served) {
	c, ctx := s.Etcd(t), limited(t)
	must(c.Put(ctx, key(t, "1"), ""))(t)
	must(c.Put(ctx, key(t, "2"), ""))(t)
	last := must(c.Put(ctx, key(t, "3"), ""))(t).Header.Revision
	for name, opts := range map[string][]clientv3.OpOption{
		"filter":           {clientv3.WithMinModRev(last)},
		"filter and count": {clientv3.WithMinModRev(last), clientv3.WithCountOnly()},
		"limit":            {clientv3.WithLimit(1)},
	} {
		got := must(c.Get(ctx, key(t, ""), append(opts, clientv3.WithPrefix())...))(t)
		if got.Count != 3 || name == "filter" && (len(got.Kvs) != 1 || got.Kvs[0].ModRevision != last) || name == "limit" && (!got.More || len(got.Kvs) != 1) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Pages at one revision, taken the way Kubernetes does, give what one range gives, while the keys change.
func pages(t *testing.T, s served) {
	c, ctx := s.Etcd(t), limited(t)
	const keys, limit = 250, 40
	for i := 0; i < keys; i += 50 {
		var ops []clientv3.Op
		for n := i; n < i+50; n++ {
			ops = append(ops, clientv3.OpPut(key(t, fmt.Sprintf("%04d", n)), fmt.Sprint(n)))
		}
		must(c.Txn(ctx).Then(ops...).Commit())(t)
	}
	prefix := key(t, "")
	end := clientv3.GetPrefixRangeEnd(prefix)
	all := must(c.Get(ctx, prefix, clientv3.WithRange(end)))(t)
	var got []string
	for from, more := prefix, true; more; {
		page := must(c.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(limit), clientv3.WithRev(all.Header.Revision)))(t)
		if want := int64(keys - len(got)); page.Count != want {
			t.Fatalf("from %s: count %d, want %d", from, page.Count, want)
		}
		for _, kv := range page.Kvs {
			got = append(got, string(kv.Key)+"="+string(kv.Value))
		}
		from, more = string(page.Kvs[len(page.Kvs)-1].Key)+"\x00", page.More
		must(c.Put(ctx, key(t, fmt.Sprintf("%04d", len(got))), "changed"))(t)
		must(c.Delete(ctx, key(t, fmt.Sprintf("%04d", len(got)+1))))(t)
	}
	for i, kv := range all.Kvs {
		if i >= len(got) || got[i] != string(kv.Key)+"="+string(kv.Value) {
			t.Fatalf("pair %d of %d in pages differs from that in one range, %s=%s", i, len(got), kv.Key, kv.Value)
		}
	}
}

func txn(t *testing.T, s served) {
	c, ctx, k := s.Etcd(t), limited(t), key(t, "k")
	create := func(v string) *clientv3.TxnResponse {
		return must(c.Txn(ctx).If(clientv3.Compare(clientv3.Version(k), "=", 0)).
			Then(clientv3.OpPut(k, v), clientv3.OpGet(k)).Else(clientv3.OpGet(k)).Commit())(t)
	}
	first, second := create("one"), create("two")
	if kv := first.Responses[1].GetResponseRange().Kvs; !first.Succeeded || len(kv) != 1 || string(kv[0].Value) != "one" || kv[0].ModRevision != first.Header.Revision {
		t.Errorf("a get does not see the put before it in its transaction: %v", first)
	}
	if second.Succeeded || string(second.Responses[0].GetResponseRange().Kvs[0].Value) != "one" || second.Header.Revision != first.Header.Revision {
		t.Errorf("the second create: %v", second)
	}
	nested := must(c.Txn(ctx).If(clientv3.Compare(clientv3.Value(k), "=", "one")).Then(
		clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(k), "=", first.Header.Revision)},
			[]clientv3.Op{clientv3.OpPut(k, "nested")}, nil),
		clientv3.OpDelete(key(t, "none")),
	).Commit())(t)
	if !nested.Succeeded || !nested.Responses[0].GetResponseTxn().Succeeded || nested.Header.Revision != first.Header.Revision+1 {
		t.Errorf("nested: %v", nested)
	}
	for _, x := range []struct {
		cmp  clientv3.Cmp
		want bool
	}{
		{clientv3.Compare(clientv3.Value(k), "=", "nested"), true},
		{clientv3.Compare(clientv3.Value(k), ">", "nestes"), false},
		{clientv3.Compare(clientv3.Value(key(t, "none")), "!=", "x"), false}, // no value, so nothing holds of it
		{clientv3.Compare(clientv3.Version(k), "=", 2), true},
		{clientv3.Compare(clientv3.LeaseValue(key(t, "none")), ">", 0), false},
		{clientv3.Compare(clientv3.Version(key(t, "")), ">", 1).WithPrefix(), true},
		{clientv3.Compare(clientv3.CreateRevision(key(t, "")), "<", first.Header.Revision).WithPrefix(), false},
	} {
		// With a read in it the transaction is linearizable; one that only compares is answered from what one member has.
		if got := must(c.Txn(ctx).If(x.cmp).Then(clientv3.OpGet(k)).Else(clientv3.OpGet(k)).Commit())(t); got.Succeeded != x.want {
			t.Errorf("%v: %v", x.cmp, got.Succeeded)
		}
	}
	var many []clientv3.Op
	for i := range 129 {
		many = append(many, clientv3.OpPut(key(t, fmt.Sprint(i)), ""))
	}
	if _, err := c.Txn(ctx).Then(many...).Commit(); !errors.Is(err, rpctypes.ErrTooManyOps) {
		t.Errorf("129 operations: %v", err)
	}
	must(c.Txn(ctx).Then(many[:128]...).Commit())(t)
}

// No put may fall into a range that the same transaction deletes, however range and nesting are written; two deletes of a key are one.
func txnOverlap(t *testing.T, s served) {
	c, ctx := s.Etcd(t), limited(t)
	k := key(t, "b")
	nest := func(op clientv3.Op) clientv3.Op { return clientv3.OpTxn(nil, []clientv3.Op{op}, nil) }
	put := clientv3.OpPut(k, "new")
	for name, del := range map[string]clientv3.Op{
		"key":      clientv3.OpDelete(k),
		"range":    clientv3.OpDelete(key(t, "a"), clientv3.WithRange(key(t, "c"))),
		"at start": clientv3.OpDelete(k, clientv3.WithRange(key(t, "c"))),
		"prefix":   clientv3.OpDelete(key(t, ""), clientv3.WithPrefix()),
		"from key": clientv3.OpDelete(key(t, "a"), clientv3.WithFromKey()),
		"all":      clientv3.OpDelete("\x00", clientv3.WithFromKey()),
	} {
		must(c.Put(ctx, k, "old"))(t)
		for _, ops := range [][]clientv3.Op{{put, del}, {del, put}, {nest(put), del}, {del, nest(put)}, {put, nest(del)}, {nest(del), put}, {nest(put), nest(del)}} {
			if _, err := c.Txn(ctx).Then(ops...).Commit(); !errors.Is(err, rpctypes.ErrDuplicateKey) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := must(c.Get(ctx, k))(t); len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "old" {
			t.Errorf("%s: afterwards %v", name, got.Kvs)
		}
	}
	if _, err := c.Txn(ctx).Then(put, put).Commit(); !errors.Is(err, rpctypes.ErrDuplicateKey) {
		t.Errorf("two puts: %v", err)
	}
	twice := must(c.Txn(ctx).Then(clientv3.OpDelete(k), clientv3.OpDelete(key(t, ""), clientv3.WithPrefix())).Commit())(t)
	events := collect(t, c.Watch(ctx, k, clientv3.WithRev(twice.Header.Revision)), 1)
	if n := twice.Responses[1].GetResponseDeleteRange().Deleted; n != 0 || events[0].Type != clientv3.EventTypeDelete {
		t.Errorf("two deletes: the second deleted %d; %v", n, events)
	}
	must(c.Put(ctx, k, "after"))(t)
	if events = collect(t, c.Watch(ctx, k, clientv3.WithRev(twice.Header.Revision)), 2); events[1].Type != clientv3.EventTypePut {
		t.Errorf("two deletes gave two events: %v", events)
	}
}

// A create that was cut off has happened or not, and never twice.
func createOnce(t *testing.T, s served) {
	c, ctx := s.Etcd(t), limited(t)
	var wait sync.WaitGroup
	for i := range 100 {
		k := key(t, fmt.Sprint(i))
		wait.Go(func() {
			short, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(20_000))*time.Microsecond)
			defer cancel()
			create := func(ctx context.Context) (*clientv3.TxnResponse, error) {
				return c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(k), "=", 0)).Then(clientv3.OpPut(k, "x")).Commit()
			}
			first, err := create(short)
			second, err2 := create(ctx)
			if err2 != nil {
				t.Error(err2)
			} else if err == nil && first.Succeeded == second.Succeeded {
				t.Errorf("%s was created twice, or not at all", k)
			}
		})
	}
	wait.Wait()
	got := must(c.Get(ctx, key(t, ""), clientv3.WithPrefix()))(t)
	for _, kv := range got.Kvs {
		if kv.Version != 1 {
			t.Errorf("%s has version %d", kv.Key, kv.Version)
		}
	}
	if len(got.Kvs) != 100 {
		t.Errorf("%d keys", len(got.Kvs))
	}
}

// Reads that are cancelled in the middle do no harm.
func cancelledReads(t *testing.T, s served) {
	c, ctx := s.Etcd(t), limited(t)
	value := strings.Repeat("v", 500)
	for i := 0; i < 5000; i += 100 {
		var ops []clientv3.Op
		for n := range 100 {
			ops = append(ops, clientv3.OpPut(key(t, fmt.Sprintf("%05d", i+n)), value))
		}
		must(c.Txn(ctx).Then(ops...).Commit())(t)
	}
	full := clientv3.OpGet(key(t, ""), clientv3.WithPrefix(), clientv3.WithSerializable())
	cut := 0
	for i := range 60 {
		short, cancel := context.WithTimeout(ctx, time.Duration(i%6)*500*time.Microsecond)
		_, err := c.Txn(short).Then(full, full).Commit()
		cancel()
		if err != nil {
			cut++
			if !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "deadline") {
				t.Errorf("cut off: %v", err)
			}
		}
	}
	if cut == 0 {
		t.Error("no read was cut off")
	}
	if got := must(c.Get(ctx, key(t, ""), clientv3.WithPrefix(), clientv3.WithCountOnly()))(t); got.Count != 5000 {
		t.Errorf("afterwards there are %d keys", got.Count)
	}
}

// RangeStream, by etcd's client: the chunks together are the range, at one revision.
func streams(t *testing.T, s served) {
	c, ctx := s.Etcd(t), limited(t)
	value := strings.Repeat("v", 2000)
	for i := 0; i < 3000; i += 100 {
		var ops []clientv3.Op
		for n := range 100 {
			ops = append(ops, clientv3.OpPut(key(t, fmt.Sprintf("%05d", i+n)), value))
		}
		must(c.Txn(ctx).Then(ops...).Commit())(t)
	}
	want := must(c.Get(ctx, key(t, ""), clientv3.WithPrefix()))(t)
	chunks, n, last := 0, 0, int64(0)
	for chunk := range must(c.GetStream(ctx, key(t, ""), clientv3.WithPrefix()))(t) {
		if err := chunk.Err(); err != nil {
			t.Fatal(err)
		}
		for _, kv := range chunk.Kvs {
			if n >= len(want.Kvs) || string(kv.Key) != string(want.Kvs[n].Key) || string(kv.Value) != value {
				t.Fatalf("pair %d is %s", n, kv.Key)
			}
			n++
		}
		chunks++
		if chunk.Header != nil {
			last = chunk.Header.Revision
			if chunk.Count != 3000 || chunk.More {
				t.Errorf("the last chunk says count %d, more %v", chunk.Count, chunk.More)
			}
		}
	}
	if n != 3000 || chunks < 2 || last != want.Header.Revision {
		t.Errorf("%d pairs in %d chunks, at revision %d, not %d", n, chunks, last, want.Header.Revision)
	}
	whole, err := clientv3.GetStreamToGetResponse(must(c.GetStream(ctx, key(t, ""), clientv3.WithPrefix(), clientv3.WithLimit(700)))(t))
	if err != nil || len(whole.Kvs) != 700 || !whole.More || whole.Count != 3000 {
		t.Errorf("with a limit: %v, %d pairs", err, len(whole.Kvs))
	}
	if _, err := clientv3.GetStreamToGetResponse(must(c.GetStream(ctx, key(t, ""), clientv3.WithRev(last+1000)))(t)); !errors.Is(err, rpctypes.ErrFutureRev) {
		t.Errorf("at a revision that has not come: %v", err)
	}
	// Our own client reads the same stream.
	scan := must(s.Native(t).Scan(ctx, key(t, ""), nativePrefix))(t)
	n = 0
	for kv, err := range scan.All() {
		if err != nil || string(kv.Key) != string(want.Kvs[n].Key) {
			t.Fatalf("pair %d: %v %v", n, kv, err)
		}
		n++
	}
	if n != 3000 {
		t.Errorf("our client scans %d pairs", n)
	}
}

// Status, members, hashes and the move of the leader.
func memberCalls(t *testing.T, s served) {
	c, ctx := s.Etcd(t), limited(t)
	must(c.Put(ctx, key(t, "k"), "v"))(t)
	members := must(c.MemberList(ctx))(t).Members
	if len(members) != s.Size() {
		t.Fatalf("%d members", len(members))
	}
	var leader uint64
	var leads string
	for _, url := range s.Endpoints() {
		st := must(c.Status(ctx, url))(t)
		if !strings.HasPrefix(st.Version, "3.") || st.Leader == 0 || st.RaftIndex == 0 || st.DbSize == 0 || st.IsLearner {
			t.Errorf("status of %s: %v", url, st)
		}
		if st.Leader == st.Header.MemberId {
			leader, leads = st.Leader, url
		}
	}
	for _, m := range members {
		if m.ID != leader {
			alone := singleEndpoint(t, s, leads)
			must(alone.MoveLeader(ctx, m.ID))(t)
			if st := must(c.Status(ctx, leads))(t); st.Leader != m.ID {
				t.Errorf("after the move %x leads, not %x", st.Leader, m.ID)
			}
			break
		}
	}
	if alarms := must(c.AlarmList(ctx))(t); len(alarms.Alarms) != 0 {
		t.Errorf("alarms: %v", alarms)
	}
}

// singleEndpoint is a client of the member with this endpoint.
func singleEndpoint(t *testing.T, s served, url string) *clientv3.Client {
	t.Helper()
	for i := range s.Size() {
		if s.Endpoints(i)[0] == url {
			return s.Etcd(t, i)
		}
	}
	t.Fatalf("no member has the endpoint %s", url)
	return nil
}

func compaction(t *testing.T, s served) {
	c, ctx, k := s.Etcd(t), limited(t), key(t, "k")
	old := must(c.Put(ctx, k, "1"))(t).Header.Revision
	must(c.Put(ctx, k, "2"))(t)
	must(c.Put(ctx, k, "3"))(t)
	del := must(c.Delete(ctx, k))(t).Header.Revision
	after := must(c.Put(ctx, k, "4"))(t).Header.Revision
	must(c.Compact(ctx, del, clientv3.WithCompactPhysical()))(t)
	if _, err := c.Get(ctx, k, clientv3.WithRev(old)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("a read below the compaction: %v", err)
	}
	if _, err := c.Compact(ctx, del); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("compacted twice: %v", err)
	}
	if _, err := c.Compact(ctx, after+1000); !errors.Is(err, rpctypes.ErrFutureRev) {
		t.Errorf("compacted in future: %v", err)
	}
	// The deletion at the compacted revision itself is still to be watched, at every member.
	for i := range s.Size() {
		events := collect(t, s.Etcd(t, i).Watch(ctx, k, clientv3.WithRev(del)), 2)
		if events[0].Type != clientv3.EventTypeDelete || events[0].Kv.ModRevision != del || events[1].Kv.ModRevision != after {
			t.Errorf("member %d: %v", i, events)
		}
	}
	r := <-c.Watch(ctx, k, clientv3.WithRev(old))
	if !errors.Is(r.Err(), rpctypes.ErrCompacted) || r.CompactRevision != del {
		t.Errorf("a watch below the compaction: %v, compacted at %d", r.Err(), r.CompactRevision)
	}
	hash := map[uint32]bool{}
	for _, url := range s.Endpoints() {
		h := must(c.HashKV(ctx, url, after))(t)
		hash[h.Hash] = true
		if h.CompactRevision != del {
			t.Errorf("%s is compacted at %d", url, h.CompactRevision)
		}
	}
	if len(hash) != 1 {
		t.Errorf("the members have the hashes %v", hash)
	}
}
