package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/concurrency"
	"github.com/coordd/coordd/internal/testnode"
)

func TestElection(t *testing.T) {
	c := testnode.Start(t).Client()
	ctx := within(t)
	s1, s2 := session(t, c), session(t, c)
	e1, e2 := concurrency.NewElection(s1, "e"), concurrency.NewElection(s2, "e")
	_, err := e1.Leader(ctx)
	wantIs(t, "leader", err, concurrency.ErrNoLeader)
	wantIs(t, "proclaim", e1.Proclaim(ctx, "x"), concurrency.ErrNotLeader)
	must(t, e1.Resign(ctx))
	must(t, e1.Campaign(ctx, "one"))
	won := make(chan error, 1)
	go func() { won <- e2.Campaign(ctx, "two") }()
	count(t, c, "e/", 2)
	leads := func(e *concurrency.Election, s *concurrency.Session, value string) {
		t.Helper()
		want := concurrency.Leader{Key: e.Key(), Value: value, Token: e.FencingToken(), Lease: s.Lease()}
		if got, err := e2.Leader(ctx); err != nil || got != want || want.Token == 0 {
			t.Errorf("leader %+v %v, want %+v", got, err, want)
		}
		r, err := c.Txn(ctx).If(e.IsLeader()).Commit()
		if err != nil || !r.Succeeded {
			t.Errorf("IsLeader does not hold: %v", err)
		}
	}
	leads(e1, s1, "one")
	wantIs(t, "proclaim of a candidate", e2.Proclaim(ctx, "x"), concurrency.ErrNotLeader)
	must(t, e1.Proclaim(ctx, "one more"))
	leads(e1, s1, "one more")
	must(t, e1.Campaign(ctx, "again"))
	leads(e1, s1, "again")
	must(t, e1.Resign(ctx))
	must(t, <-won)
	leads(e2, s2, "two")
	led, done := e2.WhileLeader(ctx)
	defer done()
	_, err = c.Revoke(ctx, s2.Lease())
	must(t, err)
	<-led.Done()
	wantIs(t, "leadership", context.Cause(led), concurrency.ErrSessionExpired)
	wantIs(t, "proclaim after the loss", e2.Proclaim(ctx, "x"), concurrency.ErrNotLeader)
	count(t, c, "e/", 0)
}

func TestResumeElection(t *testing.T) {
	c := testnode.Start(t).Client()
	ctx := within(t)
	before := session(t, c)
	e := concurrency.NewElection(before, "e")
	must(t, e.Campaign(ctx, "v"))
	token := e.FencingToken()
	before.Orphan()

	after := session(t, c, concurrency.WithLease(before.Lease()))
	_, err := concurrency.ResumeElection(ctx, after, "e", token+1)
	wantIs(t, "other token", err, concurrency.ErrNotLeader)
	_, err = concurrency.ResumeElection(ctx, session(t, c), "e", token)
	wantIs(t, "other session", err, concurrency.ErrNotLeader)
	_, err = concurrency.ResumeElection(ctx, after, "none", 0)
	wantIs(t, "no leader", err, concurrency.ErrNoLeader)
	r, err := concurrency.ResumeElection(ctx, after, "e", token)
	must(t, err)
	must(t, r.Proclaim(ctx, "w"))
	if l, err := r.Leader(ctx); err != nil || l.Token != token || l.Value != "w" {
		t.Errorf("leader %+v %v", l, err)
	}
	must(t, r.Resign(ctx))
	count(t, c, "e/", 0)
}

func TestObserve(t *testing.T) {
	c := testnode.Start(t).Client()
	ctx, end := context.WithCancel(within(t))
	o := concurrency.Observe(ctx, c, "e")
	next := func(change concurrency.Change, value string) {
		t.Helper()
		l, err := o.Next()
		if err != nil || l.Change != change || l.Leader.Value != value {
			t.Fatalf("saw %v %+v %v, want %v %q", l.Change, l, err, change, value)
		}
	}
	next(concurrency.Vacant, "")
	_, err := c.Put(ctx, "ea/no candidate", "x") // a name that begins alike
	must(t, err)
	s := session(t, c)
	e := concurrency.NewElection(s, "e")
	must(t, e.Campaign(ctx, "a"))
	next(concurrency.Elected, "a")
	must(t, e.Proclaim(ctx, "b"))
	must(t, e.Proclaim(ctx, "c"))
	next(concurrency.Proclaimed, "b")
	next(concurrency.Proclaimed, "c")
	must(t, e.Resign(ctx))
	must(t, e.Campaign(ctx, "d"))
	next(concurrency.Vacant, "")
	next(concurrency.Elected, "d")

	// While it does not look, history is compacted: it goes on with how things are, and tells the same only once.
	must(t, s.Close())
	r, err := c.Put(ctx, "x", "")
	must(t, err)
	_, err = c.Compact(ctx, r.Header.Revision)
	must(t, err)
	next(concurrency.Vacant, "")
	end()
	_, err = o.Next()
	wantIs(t, "end", err, context.Canceled)
}

// Sessions win, proclaim, resign and die; several observers see exactly what the history of the keys says.
func TestObserversSeeHistory(t *testing.T) {
	n := testnode.Start(t)
	c := n.Client()
	ctx := within(t)
	begin, err := c.Get(ctx, "x")
	must(t, err)
	var observers, wg sync.WaitGroup
	watching, end := context.WithCancel(ctx)
	defer end()
	seen := make([][]concurrency.Leadership, 3)
	saw := make(chan struct{}, 1000)
	for i := range seen {
		o := concurrency.Observe(watching, fresh(t, n.Conn()), "e")
		first, err := o.Next()
		must(t, err)
		seen[i] = append(seen[i], first)
		observers.Go(func() {
			for l, err := range o.All() {
				if err != nil {
					wantIs(t, "observer", err, context.Canceled)
					return
				}
				seen[i] = append(seen[i], l)
				if l.Leader.Value == "last" {
					saw <- struct{}{}
				}
			}
		})
	}
	for i := range 5 {
		wg.Go(func() {
			for j := range 6 {
				s, err := concurrency.NewSession(ctx, c)
				if err != nil {
					t.Error(err)
					return
				}
				e := concurrency.NewElection(s, "e")
				err = errors.Join(e.Campaign(ctx, fmt.Sprint(i, j)), e.Proclaim(ctx, fmt.Sprint(i, j, "more")))
				if j%2 == 0 {
					err = errors.Join(err, e.Resign(ctx))
				}
				if err := errors.Join(err, s.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	must(t, concurrency.NewElection(session(t, c), "e").Campaign(ctx, "last"))
	for range seen {
		<-saw
	}
	end()
	observers.Wait()
	want := replay(t, c, "e/", begin.Header.Revision+1)
	for i, got := range seen {
		if fmt.Sprint(got[1:]) != fmt.Sprint(want) || got[0].Change != concurrency.Vacant {
			t.Errorf("observer %d saw\n%v, want\n%v", i, got, want)
		}
	}
}

// replay tells what an observer must see, from every event there was.
func replay(t *testing.T, c *client.Client, prefix string, from int64) (all []concurrency.Leadership) {
	ctx := within(t)
	keys := map[string]*kvpb.KeyValue{}
	var now *kvpb.KeyValue
	last, err := c.Get(ctx, prefix, client.WithPrefix())
	must(t, err)
	w := c.Watch(ctx, prefix, client.WithPrefix(), client.WithRev(from))
	defer w.Close()
	for rev := int64(0); rev < last.Kvs[0].ModRevision; {
		r, err := w.Next(ctx)
		must(t, err)
		for _, e := range r.Events {
			rev = e.Kv.ModRevision
			if e.Type == kvpb.Event_DELETE {
				delete(keys, string(e.Kv.Key))
			} else {
				keys[string(e.Kv.Key)] = e.Kv
			}
			var first *kvpb.KeyValue
			for _, kv := range keys {
				if first == nil || kv.CreateRevision < first.CreateRevision {
					first = kv
				}
			}
			switch {
			case first == nil && now != nil:
				all = append(all, concurrency.Leadership{Change: concurrency.Vacant, Revision: rev})
			case first != nil && now != first:
				l := concurrency.Leadership{Change: concurrency.Elected, Revision: rev, Leader: concurrency.Leader{
					Key: string(first.Key), Value: string(first.Value), Token: first.CreateRevision, Lease: client.LeaseID(first.Lease),
				}}
				if now != nil && now.CreateRevision == first.CreateRevision {
					l.Change = concurrency.Proclaimed
				}
				all = append(all, l)
			}
			now = first
		}
	}
	return all
}
