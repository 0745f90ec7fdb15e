package lock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/coordd/coordd/api/electionpb"
	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/mvcc/query"
)

func (m *member) campaign(name, value string, lease int64) *electionpb.LeaderKey {
	m.t.Helper()
	r, err := m.Campaign(bg(m.t), Connection{Alive: context.Background()}, &electionpb.CampaignRequest{Name: []byte(name), Lease: lease, Value: []byte(value)})
	if err != nil {
		m.t.Fatal(err)
	}
	if r.GetLeader().GetRev() == 0 || r.GetRemainingTtlMs() <= 0 {
		m.t.Errorf("%v", r)
	}
	return r.GetLeader()
}

func (m *member) proclaim1(l *electionpb.LeaderKey, value string) error {
	_, err := m.Proclaim(bg(m.t), &electionpb.ProclaimRequest{Leader: l, Value: []byte(value)})
	return err
}

func (m *member) resign(l *electionpb.LeaderKey) error {
	_, err := m.Resign(bg(m.t), &electionpb.ResignRequest{Leader: l})
	return err
}

// observe collects news until the test ends.
func (m *member) observe(name string) <-chan News {
	ctx, cancel := context.WithCancel(context.Background())
	c := make(chan News, 10000)
	done := make(chan error, 1)
	go func() {
		done <- m.Observe(ctx, []byte(name), func(n News) error { c <- n; return nil })
	}()
	m.t.Cleanup(func() {
		cancel()
		if err := await(m.t, done); !errors.Is(err, context.Canceled) {
			m.t.Errorf("observe: %v", err)
		}
	})
	return c
}

func TestElection(t *testing.T) {
	ms := cluster(t, 3)
	m := ms[0]
	if _, err := m.Leader(bg(t), &electionpb.LeaderRequest{Name: []byte("e")}); !errors.Is(err, errs.ErrElectionNoLeader) {
		t.Errorf("leader of nothing: %v", err)
	}
	news := ms[2].observe("e")
	if n := await(t, news); n.Leader != nil || n.Elected {
		t.Fatalf("%+v, want that nobody leads", n)
	}
	want := func(value string, elected bool) {
		t.Helper()
		if n := await(t, news); string(n.Leader.GetValue()) != value || n.Elected != elected || n.Leader == nil || n.Revision < n.Leader.GetModRevision() {
			t.Fatalf("%+v, want %s", n, value)
		}
	}
	id := m.lease(600)
	a := m.campaign("e", "a1", id)
	want("a1", true)
	if err := ms[1].proclaim1(a, "a2"); err != nil {
		t.Fatal(err)
	}
	want("a2", false)
	if again := ms[1].campaign("e", "a3", id); again.GetRev() != a.GetRev() {
		t.Errorf("%v then %v", a, again)
	}
	want("a3", false)
	won := make(chan *electionpb.LeaderKey, 1)
	go func() { won <- ms[1].campaign("e", "b", ms[1].lease(600)) }()
	m.untilQueue("e", 2)
	try, err := m.Campaign(bg(t), Connection{}, &electionpb.CampaignRequest{Name: []byte("e"), Try: true})
	if err != nil || try.GetLeader() != nil {
		t.Errorf("try: %v %v", try, err)
	}
	if err := m.resign(a); err != nil {
		t.Fatal(err)
	}
	want("b", true)
	b := await(t, won)
	for _, err := range []error{m.proclaim1(a, "late"), m.proclaim1(&electionpb.LeaderKey{Key: a.GetKey()}, "forged"), m.proclaim1(&electionpb.LeaderKey{Key: b.GetKey(), Rev: b.GetRev(), Lease: 7}, "x")} {
		if !errors.Is(err, errs.ErrElectionNotLeader) {
			t.Errorf("proclaim of one who does not lead: %v", err)
		}
	}
	if err := m.resign(a); err != nil {
		t.Errorf("late resign: %v", err)
	}
	if err := errors.Join(m.resign(nil)); !errors.Is(err, errs.ErrElectionLeaderMissing) {
		t.Errorf("no field: %v", err)
	}
	l, err := m.Leader(bg(t), &electionpb.LeaderRequest{Name: []byte("e")})
	if err != nil || string(l.GetKv().GetValue()) != "b" {
		t.Errorf("%v %v", l, err)
	}
	m.revoke(b.GetLease())
	if n := await(t, news); n.Leader != nil {
		t.Fatalf("%+v, want that nobody leads", n)
	}
}

// Whatever happens, an observer is told exactly who is first, change by change, and the last thing it is told is the truth.
func TestObserveFastChanges(t *testing.T) {
	m := one(t)
	news := m.observe("e")
	await(t, news)
	const rounds = 40
	for range rounds {
		l1, l2 := m.lease(600), m.lease(600)
		a := m.campaign("e", "a", l1)
		won := make(chan *electionpb.LeaderKey, 1)
		go func() { won <- m.campaign("e", "b", l2) }()
		m.untilQueue("e", 2)
		m.revoke(l1)
		_ = a
		if err := m.resign(await(t, won)); err != nil {
			t.Fatal(err)
		}
	}
	last := int64(0)
	for i := range 3 * rounds {
		n := await(t, news)
		if n.Revision <= last {
			t.Fatalf("news of %d after %d", n.Revision, last)
		}
		last = n.Revision
		if value := []string{"a", "b", ""}[i%3]; string(n.Leader.GetValue()) != value || (n.Leader == nil) != (value == "") {
			t.Fatalf("news %d: %+v, want %q", i, n, value)
		}
	}
}

// gated is a store whose next linearizable read, once done, is kept back until the test opens the gate.
type gated struct {
	Store
	next atomic.Bool
	read chan struct{} // closed when it is done
	open chan struct{}
}

func (g *gated) Range(ctx context.Context, r *rpcpb.RangeRequest, visit func([]byte) error) (query.Result, error) {
	res, err := g.Store.Range(ctx, r, visit)
	if !r.GetSerializable() && g.next.CompareAndSwap(true, false) {
		close(g.read)
		<-g.open
	}
	return res, err
}

// What happens between an observer's first look and its first news is neither lost nor mixed up: only leaders are named, in order.
func TestObserveDelayed(t *testing.T) {
	m := one(t)
	g := &gated{Store: m.node, read: make(chan struct{}), open: make(chan struct{})}
	m.Service = New(Options{Store: g, Hub: m.node.Hub()}) // before anybody has used the other one
	g.next.Store(true)
	news := m.observe("e")
	await(t, g.read)
	first := m.campaign("e", "1", m.lease(600))
	won := make(chan *electionpb.LeaderKey, 1)
	id := m.lease(600)
	go func() { won <- m.campaign("e", "2", id) }()
	m.untilQueue("e", 2)
	if err := m.resign(first); err != nil {
		t.Fatal(err)
	}
	second := await(t, won)
	m.settle()
	close(g.open)
	for _, want := range []string{"", "1", "2"} {
		if n := await(t, news); string(n.Leader.GetValue()) != want || (n.Leader == nil) != (want == "") {
			t.Fatalf("%+v, want %q", n, want)
		}
	}
	if err := m.resign(second); err != nil {
		t.Fatal(err)
	}
	if n := await(t, news); n.Leader != nil {
		t.Errorf("%+v, want that nobody leads", n)
	}
}

// Without a lease a candidate stands as long as its connection, be it leading or waiting.
func TestCampaignOfConnection(t *testing.T) {
	m := one(t)
	type ended struct {
		r   *electionpb.CampaignResponse
		err error
	}
	stand := func(value string) (<-chan ended, context.CancelFunc) {
		conn, hangUp := context.WithCancel(context.Background())
		t.Cleanup(hangUp)
		c := make(chan ended, 1)
		go func() {
			r, err := m.Campaign(bg(t), Connection{Alive: conn}, &electionpb.CampaignRequest{Name: []byte("e"), Value: []byte(value), Ttl: 600})
			c <- ended{r, err}
		}()
		return c, hangUp
	}
	leads, leave := stand("a")
	if e := await(t, leads); e.err != nil || e.r.GetLeader().GetLease() == 0 || e.r.GetRemainingTtlMs() <= 0 {
		t.Fatalf("%+v", e)
	}
	waits, quit := stand("b")
	m.untilQueue("e", 2)
	last, _ := stand("c")
	m.untilQueue("e", 3)
	quit()
	if e := await(t, waits); !errors.Is(e.err, errs.ErrSessionExpired) {
		t.Errorf("a candidate without its connection: %+v", e)
	}
	leave()
	if e := await(t, last); e.err != nil {
		t.Error(e.err)
	}
}

// A slow observer gets less, but the last.
func TestSlowObserver(t *testing.T) {
	o := &observer{wake: make(chan struct{}, 1)}
	for i := range 3*maxNews + 5 {
		o.see(int64(i+1), newKV("k", 1, int64(i+1)))
	}
	news, err := o.take()
	if err != nil || len(news) == 0 || len(news) > maxNews || news[len(news)-1].Revision != 3*maxNews+5 {
		t.Errorf("%d news, %v", len(news), err)
	}
	if !news[0].Elected {
		t.Error("that somebody was elected is forgotten")
	}
}
