package robustness

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/coordd/coordd/tests/cluster"
	"github.com/coordd/coordd/tests/history"
	"github.com/coordd/coordd/tests/load"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	groups     = 4
	perGroup   = 5 // clients: two at each of two members, of which one only reads, and one that knows all members
	meanPause  = 25 * time.Millisecond
	checkLimit = time.Minute // for each group; it takes far below one second
	holders    = 6
)

// Requests, watches and leases under all faults.
func TestStore(t *testing.T) {
	t.Parallel()
	var cut [][]string
	for i := range groups * perGroup {
		cut = append(cut, []string{clientName(i)})
	}
	r := newRun(t, cut)
	r.watch(history.Root, history.Prefix(0)[:len(history.Root)+4], leasePrefix)
	r.compareContents()
	r.busy.Go(r.compact)
	workers := r.requests()
	leases := r.leases()
	r.faults()
	r.end()
	if r.failed() {
		return
	}
	r.site.Cluster.Start(t)
	r.awaitLeases(leases)
	r.compareLast()
	if r.failed() {
		return
	}
	last := r.site.Cluster.SameHash(t, settle)
	r.ledgerUpTo(last)
	if r.failed() {
		return
	}
	r.known(last, history.Root, leasePrefix)
	r.checkContents(last)
	r.checkLeases(leases)
	r.checkRequests(workers, last)
}

func clientName(i int) string { return fmt.Sprintf("client%d", i) }

// requests starts the clients of the registers.
func (r *run) requests() []*load.Worker {
	var values atomic.Int64
	var all []*load.Worker
	for i := range groups * perGroup {
		n := i / groups
		var members []int
		if n < perGroup-1 {
			members = []int{(i%groups + n/2) % 3}
		}
		w := &load.Worker{
			ID: i, Group: i % groups, Reader: n%2 == 1, KV: r.etcd(clientName(i), members...), Begin: r.site.Begin(), Values: &values, Rand: r.rand(uint64(i)), Pause: meanPause,
		}
		all = append(all, w)
		r.busy.Go(func() {
			for e := 0; r.ctx.Err() == nil; e++ {
				if e > 0 {
					w.Enter(i%groups + e*groups)
				}
				ctx, cancel := context.WithDeadline(r.ctx, r.site.Begin().Add(time.Duration(e+1)*epoch))
				w.Run(ctx)
				cancel()
			}
		})
	}
	return all
}

// checkContents reads everything at each member and holds it against the ledger: what was acknowledged is there.
func (r *run) checkContents(last int64) {
	want := r.ledger.All(last)
	for i, m := range r.site.Cluster.Members {
		ctx, cancel := context.WithTimeout(r.t.Context(), settle)
		got, err := r.etcd("reader", i).Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithSerializable(), clientv3.WithRev(last))
		cancel()
		if err != nil {
			r.violate("reading all of %s: %v", m.Name, err)
			continue
		}
		have := map[string]history.Pair{}
		for _, kv := range got.Kvs {
			have[string(kv.Key)] = history.Pair{Value: string(kv.Value), Create: kv.CreateRevision, Mod: kv.ModRevision, Version: kv.Version, Lease: kv.Lease}
		}
		for key, p := range want {
			if have[key] != p {
				r.violate("%s has %+v in %s at revision %d, must have %+v", m.Name, have[key], key, last, p)
			}
		}
		if len(have) != len(want) {
			r.violate("%s has %d keys at revision %d, must have %d", m.Name, len(have), last, len(want))
		}
	}
}

// checkRequests judges the requests.
func (r *run) checkRequests(workers []*load.Worker, last int64) {
	var ops []porcupine.Operation
	for _, w := range workers {
		ops = append(ops, w.Ops...)
	}
	events, err := history.Events(r.ledger.Changes(history.Root, history.FirstRevision, last))
	r.check(err, "the events of the registers")
	r.check(history.CheckChanges(ops, events), "acknowledged writes and events")
	settled, err := history.Resolve(ops, events)
	r.check(err, "requests without answer")
	answered := 0
	for _, op := range settled {
		if op.Output.(history.Output).Known {
			answered++
		}
	}
	r.count("requests", len(ops))
	r.count("requests answered", answered)
	if answered == 0 {
		r.violate("no request was answered")
	}
	for _, v := range history.Check(settled, checkLimit) {
		r.count("histories", 1)
		if v.Result == porcupine.Ok {
			continue
		}
		v.Info.AddAnnotations(r.annotations())
		page := filepath.Join(cluster.Artifacts(r.t), fmt.Sprintf("group%d.html", v.Group))
		r.check(porcupine.VisualizePath(history.Model(), v.Info, page), "drawing")
		r.violate("group %d, of %d requests, is not linearizable (%s, after %v); see %s", v.Group, v.Size, v.Result, v.Took, page)
	}
}

// known fails for keys that nobody writes.
func (r *run) known(last int64, prefixes ...string) {
	for _, c := range r.ledger.Changes("", history.FirstRevision, last) {
		if !slices.ContainsFunc(prefixes, func(p string) bool { return len(c.Key) > len(p) && c.Key[:len(p)] == p }) {
			r.violate("nobody writes %+v", c)
			return
		}
	}
}
