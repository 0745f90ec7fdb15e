package lock

import (
	"context"
	"errors"
	"testing"

	"github.com/coordd/coordd/api/electionpb"
	"github.com/coordd/coordd/api/errs"
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
	id := m.lease(60)
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
	go func() { won <- ms[1].campaign("e", "b", ms[1].lease(60)) }()
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
		l1, l2 := m.lease(60), m.lease(60)
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
