package leasing_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/leasing"
	"github.com/coordd/coordd/internal/testnode"
)

// Whatever is asked of keys that are held is answered as the server would, without asking it.
func TestFromMemory(t *testing.T) {
	run(t, func(w *world) {
		kv, cc := w.party()
		for _, v := range []string{"1", "2"} {
			_, err := w.plain.Put(w.ctx, "there", v)
			must(w, err)
		}
		w.hold(kv, "there")
		w.hold(kv, "missing")
		cc.counted(get)
		for _, key := range []string{"there", "missing"} {
			for i, opts := range [][]client.GetOption{
				{}, {client.WithKeysOnly()}, {client.WithCountOnly()}, {client.WithLimit(1)}, {client.WithSerializable()},
				{client.WithSort(client.SortByValue, client.SortDescend)},
			} {
				got, err := kv.Get(w.ctx, key, opts...)
				must(w, err)
				want, err := w.plain.Get(w.ctx, key, opts...)
				must(w, err)
				want.Header.RaftTerm = got.Header.RaftTerm
				if !proto.Equal(got, want) {
					w.Errorf("%s %d: %v, want %v", key, i, got, want)
				}
			}
		}
		if n := cc.counted(get); n != 0 {
			w.Errorf("the server was asked %d times", n)
		}
		for _, o := range []client.GetOption{client.WithRev(2), client.WithPrefix(), client.WithModRevBetween(3, 0), client.WithCreateRevBetween(0, 1)} {
			got, err := kv.Get(w.ctx, "there", o)
			must(w, err)
			want, err := w.plain.Get(w.ctx, "there", o)
			must(w, err)
			if n := cc.counted(get); n != 1 || !proto.Equal(got, want) {
				w.Errorf("%v, want %v; the server was asked %d times", got, want, n)
			}
		}
	})
}

// conditions are on keys, of which the first two are held in TestTxnFromMemory.
func conditions() []client.Cmp {
	var list []client.Cmp
	for _, key := range []string{"a", "b"} {
		for n := range int64(4) {
			for _, number := range []client.Number{client.Version(key), client.CreateRevision(key), client.ModRevision(key), client.LeaseOf(key)} {
				list = append(list, number.Equal(n), number.NotEqual(n), number.Greater(n), number.Less(n))
			}
		}
		for _, v := range []string{"", "1", "2", "3"} {
			list = append(list, client.Value(key).Equal(v), client.Value(key).NotEqual(v), client.Value(key).Greater(v), client.Value(key).Less(v))
		}
	}
	return list
}

// Transactions on keys that are held are answered as the server would, without asking it.
func TestTxnFromMemory(t *testing.T) {
	run(t, func(w *world) {
		kv, cc := w.party()
		for range 2 {
			_, err := w.plain.Put(w.ctx, "a", "2")
			must(w, err)
		}
		w.hold(kv, "a")
		w.hold(kv, "b")
		then := []client.Op{client.OpGet("a"), client.OpTxn([]client.Cmp{client.KeyExists("b")}, nil, []client.Op{client.OpGet("b"), client.OpGet("a")})}
		otherwise := []client.Op{client.OpGet("b", client.WithCountOnly())}
		for _, c := range conditions() {
			cc.counted(txn)
			got, err := kv.Txn(w.ctx).If(client.KeyExists("a"), c).Then(then...).Else(otherwise...).Commit()
			must(w, err)
			if n := cc.counted(txn); n != 0 {
				w.Fatalf("the server was asked %d times", n)
			}
			want, err := w.plain.Txn(w.ctx).If(client.KeyExists("a"), c).Then(then...).Else(otherwise...).Commit()
			must(w, err)
			if text(got) != text(want) {
				w.Errorf("%v: %s, want %s", client.OpTxn([]client.Cmp{c}, nil, nil).Request(), text(got), text(want))
			}
		}
		for i, tx := range []*leasing.Txn{
			kv.Txn(w.ctx).Then(client.OpGet("a"), client.OpGet("c")),
			kv.Txn(w.ctx).Then(client.OpGet("a", client.WithPrefix())),
			kv.Txn(w.ctx).If(client.KeyMissing("c")).Then(client.OpGet("a")),
			kv.Txn(w.ctx).If(client.Version("a", client.WithPrefix()).Greater(0)).Then(client.OpGet("a")),
			kv.Txn(w.ctx).Then(client.OpTxn(nil, []client.Op{client.OpGet("c")}, nil)),
			kv.Txn(w.ctx).If(client.KeyMissing("b")).Then(client.OpPut("b", "")),
		} {
			r, err := tx.Commit()
			must(w, err)
			if n := cc.counted(txn); n != 1 || !r.Succeeded || len(r.Responses) == 0 {
				w.Errorf("%d: asked %d times: %v", i, n, r)
			}
		}
		r, err := kv.Txn(w.ctx).If(client.KeyMissing("b")).Then(client.OpPut("b", "x")).Else(client.OpGet("b")).Commit()
		must(w, err)
		if n := cc.counted(txn); n != 0 || r.Succeeded || len(r.Responses[0].GetResponseRange().Kvs) != 1 {
			w.Errorf("a condition that does not hold: asked %d times: %v", n, r)
		}
	})
}

// text gives an answer without headers.
func text(r *rpcpb.TxnResponse) string {
	var b strings.Builder
	fmt.Fprint(&b, r.Succeeded)
	for _, op := range r.Responses {
		if in := op.GetResponseTxn(); in != nil {
			b.WriteString(text(in))
		}
		if d := op.GetResponseDeleteRange(); d != nil {
			fmt.Fprint(&b, " del ", d.Deleted, d.PrevKvs)
		}
		fmt.Fprint(&b, " ", op.GetResponseRange().GetKvs(), op.GetResponseRange().GetCount(), op.GetResponsePut().GetPrevKv())
	}
	return b.String()
}

// One party alone sees its writes of every kind, and so do others.
func TestLikeAClient(t *testing.T) {
	seed := seed(t)
	run(t, func(w *world) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		kv, _ := w.party(leasing.WithMaxKeys(3), leasing.WithRest(time.Second))
		l, err := w.plain.Grant(w.ctx, 3600)
		must(w, err)
		key := func() string { return string("abcde"[rnd.IntN(5)]) }
		ops := func() []client.Op {
			k := key()
			return [][]client.Op{
				{client.OpPut(k, fmt.Sprint(rnd.IntN(9)))},
				{client.OpPut(k, "on a lease", client.WithLease(client.LeaseID(l.ID)), client.WithPrevKV())},
				{client.OpDelete(k, client.WithPrevKV()), client.OpGet(k)},
				{client.OpDelete(k, client.WithRange("d"))},
				{client.OpGet(k), client.OpTxn([]client.Cmp{client.Version(k).Less(3)}, []client.Op{client.OpPut(k, "few")}, []client.Op{client.OpDelete(k)})},
				{client.OpGet("a", client.WithFromKey())},
			}[rnd.IntN(6)]
		}
		for i := range 400 {
			k := key()
			switch rnd.IntN(4) {
			case 0:
				_, err = kv.Put(w.ctx, k, fmt.Sprint("put ", i))
			case 1:
				_, err = kv.Delete(w.ctx, k, client.WithRange("c"))
			case 2:
				_, err = kv.Txn(w.ctx).If(client.KeyExists(k)).Then(ops()...).Else(ops()...).Commit()
			case 3:
				time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
			}
			must(w, err)
			for _, k := range []string{"a", "b", "c", "d", "e"} {
				got, err := kv.Get(w.ctx, k)
				must(w, err)
				want, err := w.plain.Get(w.ctx, k)
				must(w, err)
				if fmt.Sprint(got.Kvs, got.Count) != fmt.Sprint(want.Kvs, want.Count) {
					w.Fatalf("step %d: %v, want %v", i, got, want)
				}
			}
			synctest.Wait() // what is given up is gone
			if n := w.leasingKeys(); n > 3 {
				w.Fatalf("%d keys held", n)
			}
		}
	})
}

func TestHandOver(t *testing.T) {
	run(t, func(w *world) {
		a, _ := w.party()
		b, cc := w.party()
		w.hold(a, "k")
		w.want(b, "k", "")
		cc.counted(txn)
		_, err := b.Put(w.ctx, "k", "1")
		must(w, err)
		if n := cc.counted(txn); n != 2 {
			t.Errorf("a write that had to ask took %d transactions, want 2", n)
		}
		if a.Holds("k") {
			t.Error("still held by the one who was asked")
		}
		w.want(a, "k", "1") // and does not take it at once
		w.want(b, "k", "1")
		if a.Holds("k") || b.Holds("k") {
			t.Error("taken right after it was given up, or found held")
		}
		time.Sleep(2 * leasing.DefaultRest)
		w.want(b, "k", "1")
		if !b.Holds("k") {
			t.Error("not taken")
		}
		_, err = b.Put(w.ctx, "k", "2") // its own
		must(w, err)
		w.want(b, "k", "2")
		w.want(a, "k", "2")
		if !b.Holds("k") {
			t.Error("a write of the holder gave it up")
		}
		b.Close()
		if n := w.leasingKeys(); n != 0 {
			t.Errorf("%d leasing keys after all was given up", n)
		}
		_, err = b.Get(w.ctx, "k")
		_, err2 := b.Put(w.ctx, "k", "")
		_, err3 := b.Txn(w.ctx).Commit()
		for _, err := range []error{err, err2, err3} {
			if !errors.Is(err, leasing.ErrClosed) {
				t.Errorf("closed: %v", err)
			}
		}
	})
}

// Deleting a range asks the holders of all keys in it, and leaves leasing keys alone.
func TestDeleteRange(t *testing.T) {
	run(t, func(w *world) {
		a, _ := w.party()
		b, _ := w.party()
		for i := range 130 {
			key := fmt.Sprintf("k%03d", i)
			_, err := w.plain.Put(w.ctx, key, "v")
			must(w, err)
			w.hold([]*leasing.KV{a, b}[i%2], key)
		}
		_, err := w.plain.Put(w.ctx, "z", "v")
		must(w, err)
		w.hold(a, "z")
		w.hold(a, "k9") // missing, and in the range
		r, err := b.Delete(w.ctx, "k", client.WithRange("m"), client.WithPrevKV())
		must(w, err)
		if r.Deleted != 130 || len(r.PrevKvs) != 130 {
			t.Errorf("%d deleted, %d returned", r.Deleted, len(r.PrevKvs))
		}
		if n := w.leasingKeys(); n != 1 || !a.Holds("z") {
			t.Errorf("%d leasing keys, want that of z", n)
		}
		w.want(a, "k001", "")
		if _, err = b.Put(w.ctx, "m", "v"); err != nil {
			t.Error(err)
		}
		// The range has the leasing key of z, but not z.
		r, err = b.Delete(w.ctx, "k", client.WithRange("n"))
		must(w, err)
		if r.Deleted != 1 || w.leasingKeys() != 1 || !a.Holds("z") {
			t.Errorf("%d deleted, %d leasing keys", r.Deleted, w.leasingKeys())
		}
		r, err = b.Delete(w.ctx, "", client.WithPrefix())
		must(w, err)
		if r.Deleted != 1 || w.leasingKeys() != 0 {
			t.Errorf("%d deleted, %d leasing keys", r.Deleted, w.leasingKeys())
		}
		w.want(a, "z", "")
	})
}

func TestReserved(t *testing.T) {
	run(t, func(w *world) {
		kv, cc := w.party()
		_, err := kv.Put(w.ctx, prefix+"k", "")
		_, err2 := kv.Delete(w.ctx, prefix+"k")
		_, err3 := kv.Delete(w.ctx, prefix+"k", client.WithPrefix())
		_, err4 := kv.Txn(w.ctx).If(client.KeyExists("k")).Else(client.OpTxn(nil, []client.Op{client.OpDelete("a", client.WithFromKey())}, nil)).Commit()
		for i, err := range []error{err, err2, err3, err4} {
			if !errors.Is(err, leasing.ErrReserved) {
				t.Errorf("%d: %v", i, err)
			}
		}
		if _, err := leasing.New(w.ctx, w.plain, ""); err == nil {
			t.Error("an empty leasing prefix")
		}
		w.want(kv, prefix+"k", "")
		if n := w.leasingKeys(); n != 0 || cc.counted(txn) != 0 {
			t.Errorf("%d leasing keys", n)
		}
	})
}

// A transaction that writes as many keys as it may, held or not.
func TestLargeTxn(t *testing.T) {
	run(t, func(w *world) {
		a, _ := w.party()
		b, _ := w.party()
		const most = 63
		var ops []client.Op
		for i := range most {
			key := fmt.Sprint("k", i)
			ops = append(ops, client.OpPut(key, "v"))
			w.hold(a, key)
		}
		for i, kv := range []*leasing.KV{a, b, a} { // its own keys, those of another, and keys nobody holds
			r, err := kv.Txn(w.ctx).Then(ops...).Commit()
			must(w, err)
			if len(r.Responses) != most || !r.Succeeded {
				t.Errorf("%d: %d responses", i, len(r.Responses))
			}
		}
		for _, kv := range []*leasing.KV{a, b} {
			w.want(kv, "k0", "v")
			_, err := kv.Txn(w.ctx).Then(append(ops, client.OpPut("more", "1"), client.OpPut("more still", "1"))...).Commit()
			if w.want(kv, "more", ""); !errors.Is(err, errs.ErrTooManyOps) {
				t.Errorf("more keys: %v", err)
			}
		}
	})
}

// A key on a lease can go at any time, so it is not held.
func TestKeyOnALease(t *testing.T) {
	run(t, func(w *world) {
		kv, _ := w.party(leasing.WithRest(0))
		l, err := w.plain.Grant(w.ctx, 3)
		must(w, err)
		w.hold(kv, "k")
		_, err = kv.Put(w.ctx, "k", "1", client.WithLease(client.LeaseID(l.ID)))
		must(w, err)
		w.want(kv, "k", "1")
		synctest.Wait()
		if kv.Holds("k") || w.leasingKeys() != 0 {
			t.Error("held although it is on a lease")
		}
		w.want(kv, "k", "1")
		time.Sleep(10 * time.Second)
		w.want(kv, "k", "")
		if !kv.Holds("k") {
			t.Error("not held although the lease is gone")
		}
	})
}

// A writer that gives up before a holder does has written nothing.
func TestHeld(t *testing.T) {
	run(t, func(w *world) {
		a, cc := w.party()
		b, _ := w.party()
		w.hold(a, "k")
		cc.cut()
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		_, err := b.Put(ctx, "k", "1")
		if !errors.Is(err, leasing.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrUnknownOutcome) {
			t.Errorf("%v, want ErrHeld", err)
		}
		cc.heal()
		time.Sleep(time.Second)
		w.want(a, "k", "")
		if a.Holds("k") {
			t.Error("not given up although it was asked for")
		}
	})
}

// BenchmarkGet reads one key, from memory and without package leasing.
func BenchmarkGet(b *testing.B) {
	c := testnode.Start(b).Client()
	ctx := context.Background()
	_, err := c.Put(ctx, "k", "value")
	must(b, err)
	kv, err := leasing.New(ctx, c, prefix)
	must(b, err)
	defer kv.Close()
	for name, s := range map[string]store{"held": of(kv), "plain": {get: c.Get}} {
		b.Run(name, func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if r, err := s.get(ctx, "k"); err != nil || r.Count != 1 {
						b.Errorf("%v %v", r, err)
					}
				}
			})
		})
	}
}
