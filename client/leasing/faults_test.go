package leasing_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/leasing"
)

// A holder that is cut off never answers what has been overwritten, and comes back.
func TestCutOff(t *testing.T) {
	run(t, func(w *world) {
		a, cc := w.party(leasing.WithTTL(8*time.Second), leasing.WithRest(time.Second))
		b, _ := w.party()
		_, err := w.plain.Put(w.ctx, "k", "old")
		must(w, err)
		w.hold(a, "k")
		cc.cut()
		w.want(a, "k", "old") // nobody can have changed it
		start, written := time.Now(), make(chan time.Duration, 1)
		go func() {
			_, err := b.Put(w.ctx, "k", "new")
			if err != nil {
				t.Error(err)
			}
			written <- time.Since(start)
		}()
		for range 200 {
			ctx, cancel := context.WithTimeout(w.ctx, 100*time.Millisecond)
			r, err := a.Get(ctx, "k")
			cancel()
			switch {
			case err == nil && string(r.Kvs[0].Value) != "old":
				t.Fatalf("%v from nowhere", r)
			case err == nil && len(written) > 0:
				t.Fatal("what was overwritten is read")
			}
			if err == nil {
				time.Sleep(100 * time.Millisecond)
			}
		}
		if took := <-written; took < 4*time.Second || took > 12*time.Second {
			t.Errorf("a writer waited for %v for a holder with a time to live of 8s", took)
		}
		cc.heal()
		w.want(a, "k", "new")
		w.hold(a, "k")
		w.want(a, "k", "new")
	})
}

// What holders know is lost with their client, and their keys are free when the lease has ended.
func TestDead(t *testing.T) {
	run(t, func(w *world) {
		cc := &conn{ClientConnInterface: w.node.Conn(), calls: map[string]int{}, open: make(chan struct{})}
		close(cc.open)
		c, err := client.NewFromConn(cc)
		must(w, err)
		a, err := leasing.New(w.ctx, c, prefix)
		must(w, err)
		b, _ := w.party()
		w.hold(a, "k")
		must(w, c.Close())
		synctest.Wait()
		if _, err := a.Get(w.ctx, "k"); !errors.Is(err, client.ErrClosed) {
			t.Errorf("%v, want client.ErrClosed", err)
		}
		_, err = b.Put(w.ctx, "k", "v")
		must(w, err)
		a.Close()
		a.Close()
	})
}

// A lease that somebody revokes is replaced.
func TestRevoked(t *testing.T) {
	run(t, func(w *world) {
		kv, _ := w.party(leasing.WithRest(0))
		w.hold(kv, "k")
		leases, err := w.plain.Leases(w.ctx)
		must(w, err)
		_, err = w.plain.Revoke(w.ctx, client.LeaseID(leases.Leases[0].ID))
		must(w, err)
		synctest.Wait()
		if kv.Holds("k") {
			t.Error("held without a leasing key")
		}
		time.Sleep(leasing.DefaultTTL) // until a renewal has failed
		w.hold(kv, "k")
		if w.leasingKeys() != 1 {
			t.Error("held without a leasing key")
		}
	})
}

// puts picks transactions that write a value to a key if their conditions hold.
func puts(key, value string) func(method string, req any) bool {
	var has func(ops []*rpcpb.RequestOp) bool
	has = func(ops []*rpcpb.RequestOp) bool {
		for _, op := range ops {
			p := op.GetRequestPut()
			if p != nil && string(p.Key) == key && string(p.Value) == value || has(op.GetRequestTxn().GetSuccess()) {
				return true
			}
		}
		return false
	}
	return func(_ string, req any) bool {
		t, ok := req.(*rpcpb.TxnRequest)
		return ok && has(t.Success)
	}
}

// once gives the first call that is picked a fate.
func once(pick func(string, any) bool, f fate) func(string, any) fate {
	over := false
	return func(method string, req any) fate {
		if over || !pick(method, req) {
			return done
		}
		over = true
		return f
	}
}

// While a write of the holder's is under way it does not answer what the key was before: others may have seen what it is now.
func TestWriteUnderWay(t *testing.T) {
	run(t, func(w *world) {
		a, cc := w.party()
		_, err := w.plain.Put(w.ctx, "k", "old")
		must(w, err)
		w.hold(a, "k")
		write := puts("k", "new")
		cc.fates(func(method string, req any) fate {
			if write(method, req) {
				cc.open = make(chan struct{}) // the reply does not get through
			}
			return done
		})
		written := make(chan error, 1)
		go func() {
			_, err := a.Put(w.ctx, "k", "new")
			written <- err
		}()
		synctest.Wait()
		r, err := w.plain.Get(w.ctx, "k")
		must(w, err)
		if string(r.Kvs[0].Value) != "new" {
			t.Fatal("not written")
		}
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		if r, err := a.Get(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("read %v %v, although others have seen what came after", r, err)
		}
		cc.heal()
		must(w, <-written)
		w.want(a, "k", "new")
		if !a.Holds("k") {
			t.Error("given up")
		}
	})
}

// Replies to a holder's writes that come in another order than the writes were done in do not confuse it.
func TestReplyOvertaken(t *testing.T) {
	run(t, func(w *world) {
		a, cc := w.party()
		w.hold(a, "k")
		messages := 0
		slow := func() time.Duration {
			messages++
			return time.Duration(messages-1) * time.Second // the request none, the reply a second
		}
		cc.delays(slow)
		first := make(chan error, 1)
		go func() {
			_, err := a.Put(w.ctx, "k", "1")
			first <- err
		}()
		synctest.Wait()
		cc.delays(nil)
		_, err := a.Put(w.ctx, "k", "2")
		must(w, err)
		if len(first) > 0 {
			t.Fatal("not overtaken")
		}
		must(w, <-first)
		cc.counted(get)
		w.want(a, "k", "2")
		if cc.counted(get) != 0 {
			t.Error("not answered from memory")
		}
	})
}

// A holder's write whose outcome is unknown has it give the key up, and is void from then on.
func TestUnknownWrite(t *testing.T) {
	for _, f := range []fate{lost, late} {
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			run(t, func(w *world) {
				a, cc := w.party(leasing.WithRest(0))
				b, _ := w.party()
				w.hold(a, "k")
				cc.fates(once(puts("k", "unknown"), f))
				if _, err := a.Put(w.ctx, "k", "unknown"); !errors.Is(err, client.ErrUnknownOutcome) {
					t.Fatalf("%v, want ErrUnknownOutcome", err)
				}
				if a.Holds("k") {
					t.Error("held, but what the key is is not known")
				}
				w.want(a, "k", map[fate]string{lost: "unknown", late: ""}[f])
				_, err := b.Put(w.ctx, "k", "known")
				must(w, err)
				w.hold(a, "k")
				cc.arrive()
				w.want(a, "k", "known")
				w.want(b, "k", "known")
			})
		})
	}
}

// Nobody waits for a key that was taken without its holder's knowing.
func TestUnknownTake(t *testing.T) {
	for _, f := range []fate{lost, late} {
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			run(t, func(w *world) {
				a, cc := w.party(leasing.WithRest(0))
				b, _ := w.party()
				w.hold(a, "other")
				cc.fates(once(puts(prefix+"k", ""), f))
				w.want(a, "k", "")
				synctest.Wait()
				cc.arrive()
				start := time.Now()
				_, err := b.Put(w.ctx, "k", "v")
				must(w, err)
				if took := time.Since(start); took > time.Second {
					t.Errorf("a writer waited for %v", took)
				}
				w.want(a, "k", "v")
				w.hold(a, "other")
				w.hold(a, "k")
				w.want(a, "k", "v")
			})
		})
	}
}

// Giving a key up is repeated until it is known to be done.
func TestUnknownGiveUp(t *testing.T) {
	run(t, func(w *world) {
		a, cc := w.party()
		b, _ := w.party()
		w.hold(a, "k")
		n := 0
		cc.fates(func(_ string, req any) fate {
			if r, ok := req.(*rpcpb.TxnRequest); ok && r.Success[0].GetRequestDeleteRange() != nil && n < 3 {
				n++
				return []fate{late, late, lost}[n-1]
			}
			return done
		})
		_, err := b.Put(w.ctx, "k", "v")
		must(w, err)
		w.hold(b, "k")
		cc.arrive()
		if synctest.Wait(); n != 3 || !b.Holds("k") || w.leasingKeys() != 1 {
			t.Errorf("after %d failures: the hold of another was given up", n)
		}
	})
}

// The outcome of asking does not matter.
func TestUnknownAsk(t *testing.T) {
	run(t, func(w *world) {
		a, _ := w.party()
		b, cc := w.party()
		w.hold(a, "k1")
		w.hold(a, "k2")
		asks := 0
		cc.fates(func(_ string, req any) fate {
			if r, ok := req.(*rpcpb.TxnRequest); ok && len(r.Compare) == 0 && asks == 0 {
				asks++
				return late
			}
			return done
		})
		_, err := b.Delete(w.ctx, "k", client.WithPrefix())
		must(w, err)
		if asks != 1 {
			t.Error("nothing was lost")
		}
		w.hold(b, "k1")
		cc.arrive()
		w.hold(b, "k1")
		if synctest.Wait(); !b.Holds("k1") {
			t.Error("a late request asked for a hold that was taken after it")
		}
	})
}

// Reads that come while a key is being taken share that, and do not end with the one who began.
func TestTakeTogether(t *testing.T) {
	run(t, func(w *world) {
		kv, cc := w.party()
		cc.counted(txn)
		cc.cut()
		ctx, cancel := context.WithCancel(w.ctx)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := kv.Get(ctx, "k"); !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want Canceled", err)
			}
		})
		synctest.Wait()
		for range 10 {
			wg.Go(func() { w.want(kv, "k", "") })
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		cc.heal()
		wg.Wait()
		if n := cc.counted(txn); n != 1 || !kv.Holds("k") {
			t.Errorf("%d transactions to take a key, want 1", n)
		}
	})
}
