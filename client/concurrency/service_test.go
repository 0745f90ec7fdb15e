package concurrency_test

import (
	"testing"

	"github.com/coordd/coordd/api/coorddpb"
	"github.com/coordd/coordd/api/electionpb"
	"github.com/coordd/coordd/api/lockpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/client/concurrency"
	"github.com/coordd/coordd/internal/testnode"
)

// Callers of the services and users of this package have the same locks and elections.
func TestServices(t *testing.T) {
	n := testnode.Start(t)
	ctx := within(t)
	c := n.Client()
	locks, elections := services.NewLockClient(n.Conn()), services.NewElectionClient(n.Conn())
	lease := func() int64 {
		l, err := c.Grant(ctx, 60)
		must(t, err)
		return l.ID
	}
	m, w := concurrency.NewMutex(session(t, c), "m"), concurrency.NewRWMutex(session(t, c), "m")

	shared, err := locks.Lock(ctx, &lockpb.LockRequest{Name: []byte("m"), Lease: lease(), Shared: true})
	must(t, err)
	wantIs(t, "mutex beside a shared lock", m.TryLock(ctx), concurrency.ErrLocked)
	must(t, w.RLock(ctx))
	list, err := c.ListLocks(ctx, "m", 0)
	must(t, err)
	if len(list.Holders) != 2 || !list.Holders[1].Shared || list.Holders[1].FencingToken != w.Reader().FencingToken() {
		t.Errorf("holders %v", list.Holders)
	}
	done := make(chan error, 1)
	go func() { done <- m.Lock(ctx) }()
	count(t, c, "m/", 3)
	must(t, w.RUnlock(ctx))
	_, err = locks.Unlock(ctx, &lockpb.UnlockRequest{Key: shared.Key, FencingToken: shared.FencingToken})
	must(t, err)
	must(t, <-done)

	// The service waits for the package, and the package for the service.
	id := lease()
	got := make(chan *lockpb.LockResponse, 1)
	go func() {
		r, err := locks.Lock(ctx, &lockpb.LockRequest{Name: []byte("m"), Lease: id})
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	count(t, c, "m/", 2)
	token := m.FencingToken()
	must(t, m.Unlock(ctx))
	if r := <-got; r.GetFencingToken() <= token {
		t.Errorf("token %d after %d", r.GetFencingToken(), token)
	}
	wantIs(t, "mutex beside the service", m.TryLock(ctx), concurrency.ErrLocked)
	wantIs(t, "reader beside the service", w.TryRLock(ctx), concurrency.ErrLocked)

	e := concurrency.NewElection(session(t, c), "e")
	won, err := elections.Campaign(ctx, &electionpb.CampaignRequest{Name: []byte("e"), Lease: lease(), Value: []byte("service")})
	must(t, err)
	if l, err := e.Leader(ctx); err != nil || l.Value != "service" || l.Token != won.Leader.Rev {
		t.Errorf("leader %+v %v", l, err)
	}
	stream, err := services.NewElectionsClient(n.Conn()).Observe(ctx, &coorddpb.ObserveRequest{Name: []byte("e")})
	must(t, err)
	_, err = stream.Recv()
	must(t, err)
	go func() { done <- e.Campaign(ctx, "package") }()
	count(t, c, "e/", 2)
	_, err = elections.Resign(ctx, &electionpb.ResignRequest{Leader: won.Leader})
	must(t, err)
	must(t, <-done)
	if r, err := stream.Recv(); err != nil || string(r.Leader.GetValue()) != "package" || r.Leader.CreateRevision != e.FencingToken() {
		t.Errorf("the service observed %v %v", r, err)
	}
}
