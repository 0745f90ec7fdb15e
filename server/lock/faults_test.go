package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/coordd/coordd/api/coorddpb"
	"github.com/coordd/coordd/api/electionpb"
	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/lockpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/raftnode"
	"github.com/coordd/coordd/server"
)

// insist calls f until it succeeds, as a client does while the cluster has no leader.
func (m *member) insist(what string, f func(ctx context.Context) error) {
	m.t.Helper()
	ctx := bg(m.t)
	until(m.t, what, func() bool {
		err := f(ctx)
		if err != nil && errs.KindOf(err) != errs.Unavailable && !errors.Is(err, errs.ErrTimeout) {
			m.t.Fatalf("%s: %v", what, err)
		}
		return err == nil
	})
}

func (m *member) insistUnlock(r *lockpb.LockResponse) {
	m.t.Helper()
	m.insist("an unlock", func(ctx context.Context) error {
		_, err := m.Unlock(ctx, &lockpb.UnlockRequest{Key: r.GetKey(), FencingToken: r.GetFencingToken(), Lease: r.GetLease()})
		return err
	})
}

// candidate campaigns in the background.
func (m *member) candidate(name, value string) <-chan *electionpb.LeaderKey {
	id, won := m.lease(600), make(chan *electionpb.LeaderKey, 1)
	go func() { won <- m.campaign(name, value, id) }()
	return won
}

// untilElected reads an observer's news until value leads, and fails when one outside of allowed is named before.
func untilElected(t *testing.T, news <-chan News, value string, allowed ...string) {
	t.Helper()
	for {
		n := await(t, news)
		if got := string(n.Leader.GetValue()); got == value {
			return
		} else if n.Leader != nil && !slices.Contains(allowed, got) {
			t.Fatalf("%q is named, before %q", got, value)
		}
	}
}

// Waiting, holding, campaigning and observing go on over a leader that ends, or is cut off as one that is stopped is: nothing is lost,
// nobody is served twice or out of turn, and what is waited for at the member that was away comes when it is back.
func TestLeaderLost(t *testing.T) {
	for _, how := range []string{"ended", "cut off"} {
		t.Run(how, func(t *testing.T) {
			leader, rest := leading(t, cluster(t, 3))
			a, b := rest[0], rest[1]
			lock := a.mustLock(ask1("l", a.lease(600)))
			waiter := b.later(bg(t), ask1("l", b.lease(600)))
			a.untilQueue("l", 2)
			holder := a.hold(&coorddpb.HoldRequest{Name: []byte("h"), Ttl: 600})
			holder.want(t, held, none)
			next := b.hold(&coorddpb.HoldRequest{Name: []byte("h"), Lease: b.lease(600)})
			next.want(t, waiting, none)
			lead := a.campaign("e", "a", a.lease(600))
			won := b.candidate("e", "b")
			a.untilQueue("e", 2)
			var observers []<-chan News
			for _, m := range rest {
				observers = append(observers, m.observe("e"))
			}
			var atLeader <-chan outcome
			if how == "cut off" {
				atLeader = leader.later(bg(t), ask1("l", leader.lease(600)))
				a.untilQueue("l", 3)
				observers = append(observers, leader.observe("e"))
			}
			for _, news := range observers {
				untilElected(t, news, "a")
			}
			if how == "cut off" {
				leader.net.cut(leader, true)
			} else if err := leader.node.Close(); err != nil {
				t.Error(err)
			}

			a.insistUnlock(lock)
			second := await(t, waiter)
			if second.err != nil || second.resp.FencingToken <= lock.FencingToken {
				t.Fatalf("after %v: %+v", lock, second)
			}
			holder.cancel() // gives the lock back
			next.want(t, held, none)
			a.insist("a resignation", func(context.Context) error { return a.resign(lead) })
			if now := await(t, won); now.GetRev() <= lead.GetRev() {
				t.Fatalf("%v leads after %v", now, lead)
			}
			if how == "cut off" {
				b.insistUnlock(second.resp)
				if len(atLeader) > 0 {
					t.Fatalf("a member without the others gave a lock: %+v", <-atLeader)
				}
				leader.net.cut(leader, false)
				if o := await(t, atLeader); o.err != nil || o.resp.FencingToken <= second.resp.FencingToken {
					t.Fatalf("after %v: %+v", second.resp, o)
				}
			}
			for _, news := range observers {
				untilElected(t, news, "b", "a")
			}
		})
	}
}

// Who waits, counts and observes at a member that falls so far behind that it gets the leader's snapshot, which has no history of what
// happened meanwhile, is told what came of it and goes on.
func TestSnapshotDuringWait(t *testing.T) {
	leader, rest := leading(t, clusterWith(t, 3, func(c *server.Config) {
		c.SnapshotCount, c.CatchUpEntries = 20, raftnode.NoCatchUp
	}))
	away, other := rest[0], rest[1]
	lock := other.mustLock(ask1("l", other.lease(600)))
	first := away.later(bg(t), ask1("l", away.lease(600)))
	other.untilQueue("l", 2)
	doomed := away.lease(600)
	unlucky := away.later(bg(t), ask1("l", doomed))
	other.untilQueue("l", 3)
	stream := away.hold(&coorddpb.HoldRequest{Name: []byte("l"), Lease: away.lease(600)})
	if h := stream.want(t, waiting, none); h.Ahead != 3 {
		t.Fatalf("%v", h)
	}
	lead := other.campaign("e", "a", other.lease(600))
	news := away.observe("e")
	untilElected(t, news, "a")
	away.settle()

	away.net.cut(away, true)
	other.insistUnlock(lock)
	other.insist("a revocation", func(ctx context.Context) error {
		_, err := other.node.LeaseRevoke(ctx, &rpcpb.LeaseRevokeRequest{ID: doomed})
		if errors.Is(err, errs.ErrLeaseNotFound) { // a try before had an unknown outcome
			return nil
		}
		return err
	})
	other.insist("a resignation", func(context.Context) error { return other.resign(lead) })
	last := other.campaign("e", "b", other.lease(600))
	forgetHistory(leader, other)
	if away.net.snapshots(away) != 0 || len(first)+len(unlucky) != 0 {
		t.Fatal("the member was not cut off")
	}

	away.net.cut(away, false)
	o := await(t, first)
	if o.err != nil {
		t.Fatal(o.err)
	}
	if away.net.snapshots(away) == 0 {
		t.Error("the member has caught up without a snapshot")
	}
	if o := await(t, unlucky); !errors.Is(o.err, errs.ErrSessionExpired) {
		t.Errorf("who lost its lease got %+v", o)
	}
	if h := stream.want(t, waiting, none); h.Ahead != 1 {
		t.Errorf("%v, want one ahead", h)
	}
	away.insistUnlock(o.resp)
	stream.want(t, held, none)
	untilElected(t, news, "b", "a")
	away.insist("a resignation", func(context.Context) error { return away.resign(last) })
	if n := await(t, news); n.Leader != nil {
		t.Errorf("%+v, want that nobody leads", n)
	}
}

// forgetHistory makes members drop the history of keys and the log up to now: the data file has them.
func forgetHistory(ms ...*member) {
	m := ms[0]
	m.t.Helper()
	for i := range 50 {
		m.insist("a put", func(ctx context.Context) error {
			_, err := m.node.Put(ctx, &rpcpb.PutRequest{Key: fmt.Appendf(nil, "other%d", i)})
			return err
		})
	}
	rev := m.node.Revision()
	for _, m := range ms {
		m.insist("a compaction", func(ctx context.Context) error {
			_, err := m.node.Compact(ctx, &rpcpb.CompactionRequest{Revision: rev, Physical: true})
			if errors.Is(err, errs.ErrCompacted) {
				return nil // by the member before
			}
			return err
		})
	}
	m.put("after", "") // with this the log is released
	for _, m := range ms {
		m.settle()
	}
}
