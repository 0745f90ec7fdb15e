package leasing_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/leasing"
)

const (
	accounts = 5
	opening  = 100
)

func account(i int) string { return fmt.Sprint("account/", i) }

// transfer moves an amount if nothing has come between, and tells whether it did.
func (w *world) transfer(kv *leasing.KV, from, to, amount int) bool {
	var balance [2]int
	var conditions []client.Cmp
	for i, n := range []int{from, to} {
		r, err := kv.Get(w.ctx, account(n))
		if err != nil {
			w.Error(err)
			return false
		}
		balance[i], _ = strconv.Atoi(string(r.Kvs[0].Value))
		conditions = append(conditions, client.ModRevision(account(n)).Equal(r.Kvs[0].ModRevision))
	}
	r, err := kv.Txn(w.ctx).If(conditions...).Then(
		client.OpPut(account(from), strconv.Itoa(balance[0]-amount)), client.OpPut(account(to), strconv.Itoa(balance[1]+amount)),
	).Commit()
	if err != nil && !errors.Is(err, client.ErrUnknownOutcome) {
		w.Error(err)
	}
	return err == nil && r.Succeeded
}

// Parties move money between accounts, with replies lost and requests late. The total is the same whenever it is read.
func TestBank(t *testing.T) {
	seed := seed(t)
	run(t, func(w *world) {
		for i := range accounts {
			_, err := w.plain.Put(w.ctx, account(i), strconv.Itoa(opening))
			must(w, err)
		}
		var conns []*conn
		var wg sync.WaitGroup
		for i := range 4 {
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			kv, cc := w.party(leasing.WithTTL(4*time.Second), leasing.WithRest(100*time.Millisecond))
			cc.bad(rand.New(rand.NewPCG(seed, uint64(10+i))))
			conns = append(conns, cc)
			wg.Go(func() {
				for moved := 0; moved < 30 && !w.Failed(); {
					from := rnd.IntN(accounts)
					if w.transfer(kv, from, (from+1+rnd.IntN(accounts-1))%accounts, 1+rnd.IntN(20)) {
						moved++
					}
					w.total(kv)
					elapse(time.Duration(rnd.IntN(200)) * time.Millisecond)
					if rnd.IntN(5) == 0 {
						cc.arrive()
					}
				}
			})
		}
		wg.Wait()
		for _, cc := range conns {
			cc.arrive()
		}
		kv, _ := w.party()
		w.total(kv)
	})
}

// total adds the accounts up, as they are together.
func (w *world) total(kv *leasing.KV) {
	ops := make([]client.Op, accounts)
	for i := range ops {
		ops[i] = client.OpGet(account(i))
	}
	r, err := kv.Txn(w.ctx).Then(ops...).Commit()
	if err != nil {
		w.Error(err)
		return
	}
	sum := 0
	for _, op := range r.Responses {
		n, err := strconv.Atoi(string(op.GetResponseRange().Kvs[0].Value))
		if err != nil {
			w.Error(err)
		}
		sum += n
	}
	if sum != accounts*opening {
		w.Errorf("the accounts hold %d, want %d", sum, accounts*opening)
	}
}
