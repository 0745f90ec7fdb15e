package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/concurrency"
	"github.com/coordd/coordd/internal/testnode"
)

// checked are the levels that look whether what they read has changed.
var checked = map[string]concurrency.Isolation{
	"SerializableSnapshot": concurrency.SerializableSnapshot,
	"Serializable":         concurrency.Serializable,
	"RepeatableReads":      concurrency.RepeatableReads,
}

func num(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// 32 clients move money; there is always as much as at first.
func TestBank(t *testing.T) {
	n := testnode.Start(t)
	for name, level := range checked {
		t.Run(name, func(t *testing.T) {
			ctx := within(t)
			const accounts, clients, moves = 10, 32, 6
			key := func(i int) string { return fmt.Sprintf("%s/%02d", name, i) }
			for i := range accounts {
				_, err := n.Client().Put(ctx, key(i), "100")
				must(t, err)
			}
			var wg sync.WaitGroup
			for i := range clients {
				c := fresh(t, n.Conn())
				r := rand.New(rand.NewPCG(uint64(i), 1))
				wg.Go(func() {
					for range moves {
						from, to, sum := r.IntN(accounts), r.IntN(accounts), 1+r.IntN(30)
						_, err := concurrency.Transact(ctx, c, func(tx *concurrency.Tx) error {
							a := num(tx.Get(key(from)))
							if a < sum || from == to {
								return nil
							}
							tx.Put(key(from), strconv.Itoa(a-sum))
							tx.Put(key(to), strconv.Itoa(num(tx.Get(key(to)))+sum))
							return nil
						}, concurrency.WithIsolation(level), concurrency.WithPrefetch(key(from)))
						if err != nil {
							t.Error(err)
						}
					}
				})
				wg.Go(func() { // one who adds up sees the whole at any time
					total, all := 0, 0
					_, err := concurrency.Transact(ctx, c, func(tx *concurrency.Tx) error {
						total, all = 0, 0
						for i := range accounts {
							total += num(tx.Get(key(i)))
						}
						for _, p := range tx.Range(name+"/", client.WithPrefix()) {
							all += num(p.Value)
						}
						return nil
					}, concurrency.WithIsolation(level))
					if err != nil || total != accounts*100 || all != total {
						t.Errorf("total %d and %d, %v", total, all, err)
					}
				})
			}
			wg.Wait()
			total := 0
			resp, err := n.Client().Get(ctx, name+"/", client.WithPrefix())
			must(t, err)
			for _, kv := range resp.Kvs {
				total += num(string(kv.Value))
			}
			if total != accounts*100 {
				t.Errorf("total %d", total)
			}
		})
	}
}

// between runs a transaction in whose first run something else happens after the function.
func between(t *testing.T, c *client.Client, level concurrency.Isolation, f func(tx *concurrency.Tx), other func()) concurrency.Committed {
	t.Helper()
	done := false
	r, err := concurrency.Transact(within(t), c, func(tx *concurrency.Tx) error {
		f(tx)
		if !done {
			done = true
			other()
		}
		return nil
	}, concurrency.WithIsolation(level))
	must(t, err)
	return r
}

// An update between read and write is lost under ReadCommitted, and under no other level.
func TestLostUpdate(t *testing.T) {
	c := testnode.Start(t).Client()
	ctx := within(t)
	put := func(v string) { _, err := c.Put(ctx, "k", v); must(t, err) }
	add := func(tx *concurrency.Tx) { tx.Put("k", strconv.Itoa(num(tx.Get("k"))+1)) }
	want := func(v string, attempts, got int) {
		t.Helper()
		r, err := c.Get(ctx, "k")
		must(t, err)
		if string(r.Kvs[0].Value) != v || attempts != got {
			t.Errorf("value %s after %d attempts, want %s after %d", r.Kvs[0].Value, got, v, attempts)
		}
	}
	for _, level := range checked {
		put("0")
		r := between(t, c, level, add, func() { put("10") })
		want("11", 2, r.Attempts)
	}
	put("0")
	r := between(t, c, concurrency.ReadCommitted, add, func() { put("10") })
	want("1", 1, r.Attempts) // 10 is lost
}

// Reads are of one revision under the snapshot levels; under the others the function may see two.
func TestSnapshotReads(t *testing.T) {
	c := testnode.Start(t).Client()
	ctx := within(t)
	for level := concurrency.SerializableSnapshot; level <= concurrency.ReadCommitted; level++ {
		_, err := c.Txn(ctx).Then(client.OpPut("a", "1"), client.OpPut("b", "1")).Commit()
		must(t, err)
		torn, runs := false, 0
		_, err = concurrency.Transact(ctx, c, func(tx *concurrency.Tx) error {
			runs++
			a := tx.Get("a")
			if runs == 1 {
				_, err := c.Txn(ctx).Then(client.OpPut("a", "2"), client.OpPut("b", "2")).Commit()
				must(t, err)
			}
			b := tx.Get("b")
			torn = torn || a != b
			if again := tx.Get("a"); again != a && level != concurrency.ReadCommitted {
				t.Errorf("level %d: %s, then %s", level, a, again)
			}
			return nil
		}, concurrency.WithIsolation(level))
		must(t, err)
		snapshot := level == concurrency.SerializableSnapshot || level == concurrency.Serializable
		if torn == snapshot {
			t.Errorf("level %d: saw two revisions: %v", level, torn)
		}
		if wantRuns := map[bool]int{true: 2, false: 1}[level == concurrency.RepeatableReads]; runs != wantRuns {
			t.Errorf("level %d: %d runs", level, runs)
		}
	}
}

// Two who each read what the other writes cannot both succeed.
func TestWriteSkew(t *testing.T) {
	c := testnode.Start(t).Client()
	ctx := within(t)
	for name, level := range checked {
		_, err := c.Txn(ctx).Then(client.OpPut("a", "1"), client.OpPut("b", "1")).Commit()
		must(t, err)
		leave := func(mine, others string) func(tx *concurrency.Tx) {
			return func(tx *concurrency.Tx) { // one of the two must stay
				if tx.Get(mine) == "1" && tx.Get(others) == "1" {
					tx.Put(mine, "0")
				}
			}
		}
		between(t, c, level, leave("a", "b"), func() { between(t, c, level, leave("b", "a"), func() {}) })
		a, err := c.Get(ctx, "a")
		must(t, err)
		if string(a.Kvs[0].Value) != "1" {
			t.Errorf("%s: both left", name)
		}
	}
}

// A key that comes to be in a range, is changed there, or goes, is a conflict; one beside it is none.
func TestRangeConflicts(t *testing.T) {
	c := testnode.Start(t).Client()
	ctx := within(t)
	put := func(k string) func() { return func() { _, err := c.Put(ctx, k, "x"); must(t, err) } }
	del := func(k string) func() { return func() { _, err := c.Delete(ctx, k); must(t, err) } }
	sum := func(tx *concurrency.Tx) { tx.Put("sum", fmt.Sprint(len(tx.Range("r/", client.WithPrefix())))) }
	for _, level := range checked {
		put("r/1")()
		put("r/2")()
		for _, kase := range []struct {
			name     string
			other    func()
			attempts int
		}{
			{"new", put("r/3"), 2}, {"changed", put("r/1"), 2}, {"deleted", del("r/2"), 2}, {"beside", put("s"), 1},
		} {
			if r := between(t, c, level, sum, kase.other); r.Attempts != kase.attempts {
				t.Errorf("%s: %d attempts, want %d", kase.name, r.Attempts, kase.attempts)
			}
		}
	}
}

// A key that is written without having been read is overwritten under Serializable, and a conflict under
// SerializableSnapshot.
func TestBlindWrite(t *testing.T) {
	c := testnode.Start(t).Client()
	ctx := within(t)
	for level, attempts := range map[concurrency.Isolation]int{concurrency.SerializableSnapshot: 2, concurrency.Serializable: 1} {
		r := between(t, c, level, func(tx *concurrency.Tx) { tx.Get("read"); tx.Put("blind", "1") },
			func() { _, err := c.Put(ctx, "blind", "2"); must(t, err) })
		if r.Attempts != attempts {
			t.Errorf("level %d: %d attempts, want %d", level, r.Attempts, attempts)
		}
	}
}

// The function sees what it has written.
func TestOwnWrites(t *testing.T) {
	c := testnode.Start(t).Client()
	ctx := within(t)
	_, err := c.Txn(ctx).Then(client.OpPut("r/1", "1"), client.OpPut("r/2", "2"), client.OpPut("s", "0")).Commit()
	must(t, err)
	done, err := concurrency.Transact(ctx, c, func(tx *concurrency.Tx) error {
		tx.Put("r/3", "3")
		tx.Put("r/1", "one")
		tx.Del("r/2")
		tx.Put("r/4", "4")
		tx.Del("r/4")
		if v, ok := tx.Lookup("r/2"); ok || v != "" {
			t.Errorf("deleted key is %q", v)
		}
		if v, ok := tx.Lookup("r/3"); !ok || v != "3" {
			t.Errorf("new key is %q", v)
		}
		if tx.Rev("r/3") != 0 || tx.Rev("s") == 0 {
			t.Error("revisions are not those of the store")
		}
		if got := fmt.Sprint(tx.Range("r/", client.WithPrefix())); got != "[{r/1 one} {r/3 3}]" {
			t.Error(got)
		}
		if got := fmt.Sprint(tx.Range("r/3", client.WithFromKey())); got != "[{r/3 3} {s 0}]" {
			t.Error(got)
		}
		if got := fmt.Sprint(tx.Range("r/1", client.WithRange("r/2"))); got != "[{r/1 one}]" {
			t.Error(got)
		}
		return nil
	})
	must(t, err)
	r, err := c.Get(ctx, "r/", client.WithPrefix())
	must(t, err)
	if r.Count != 2 || r.Kvs[0].ModRevision != done.Revision || string(r.Kvs[1].Key) != "r/3" {
		t.Errorf("stored %v at %d", r.Kvs, done.Revision)
	}
}

func TestTransactFails(t *testing.T) {
	n := testnode.Start(t)
	f, c := over(t, n)
	ctx := within(t)
	boom := errors.New("boom")
	_, err := concurrency.Transact(ctx, c, func(tx *concurrency.Tx) error { tx.Put("k", "1"); return boom })
	wantIs(t, "failed function", err, boom)

	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = concurrency.Transact(ended, c, func(tx *concurrency.Tx) error {
		tx.Get("k")
		t.Error("went on after a read that failed")
		return nil
	})
	wantIs(t, "failed read", err, context.Canceled)

	// Every run meets another, until the context ends.
	short, cancel := context.WithCancel(ctx)
	runs := 0
	_, err = concurrency.Transact(short, c, func(tx *concurrency.Tx) error {
		tx.Put("k", tx.Get("other"))
		if runs++; runs == 4 {
			cancel()
		}
		_, err := n.Client().Put(ctx, "other", fmt.Sprint(runs))
		return err
	})
	wantIs(t, "conflict for ever", err, context.Canceled)

	f.lose = []string{txnMethod}
	_, err = concurrency.Transact(ctx, c, func(tx *concurrency.Tx) error { tx.Put("once", "1"); return nil })
	wantIs(t, "lost reply", err, client.ErrUnknownOutcome)

	func() {
		defer func() {
			if r := recover(); r != boom {
				t.Errorf("panic of the function became %v", r)
			}
		}()
		_, _ = concurrency.Transact(ctx, c, func(*concurrency.Tx) error { panic(boom) })
	}()
	if r, err := c.Get(ctx, "k"); err != nil || r.Count != 0 {
		t.Errorf("a transaction that failed wrote %v %v", r, err)
	}
}

// A snapshot that is compacted while the function runs is taken anew.
func TestCompactedSnapshot(t *testing.T) {
	c := testnode.Start(t).Client()
	ctx := within(t)
	for i := range 3 {
		_, err := c.Put(ctx, "a", fmt.Sprint(i))
		must(t, err)
	}
	runs := 0
	_, err := concurrency.Transact(ctx, c, func(tx *concurrency.Tx) error {
		tx.Get("a")
		if runs++; runs == 1 {
			r, err := c.Put(ctx, "b", "1")
			must(t, err)
			_, err = c.Compact(ctx, r.Header.Revision)
			must(t, err)
		}
		tx.Put("c", tx.Get("b"))
		return nil
	})
	must(t, err)
	if r, err := c.Get(ctx, "c"); err != nil || string(r.Kvs[0].Value) != "1" || runs != 2 {
		t.Errorf("%v %v after %d runs", r, err, runs)
	}
}
