package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/coordd/coordd/api/coorddpb"
	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/lockpb"
)

// stream is a Hold in the background.
type stream struct {
	news   chan *coorddpb.HoldResponse
	done   chan error
	cancel context.CancelFunc
}

func (m *member) hold(r *coorddpb.HoldRequest) *stream {
	ctx, cancel := context.WithCancel(context.Background())
	s := &stream{make(chan *coorddpb.HoldResponse, 1000), make(chan error, 1), cancel}
	m.t.Cleanup(cancel)
	go func() {
		s.done <- m.Hold(ctx, r, func(h *coorddpb.HoldResponse) error { s.news <- h; return nil })
	}()
	return s
}

// want returns the next message, other than a repetition, and checks where the caller stands.
func (s *stream) want(t *testing.T, state coorddpb.HoldState, why coorddpb.HoldReason) *coorddpb.HoldResponse {
	t.Helper()
	for {
		h := await(t, s.news)
		if h.State == coorddpb.HoldState_HOLD_HELD && state == coorddpb.HoldState_HOLD_LOST {
			continue
		}
		if h.State != state || h.Reason != why {
			t.Fatalf("%v, want %v %v", h, state, why)
		}
		return h
	}
}

const (
	waiting = coorddpb.HoldState_HOLD_WAITING
	held    = coorddpb.HoldState_HOLD_HELD
	lost    = coorddpb.HoldState_HOLD_LOST
	none    = coorddpb.HoldReason_HOLD_REASON_NONE
)

func TestHold(t *testing.T) {
	ms := cluster(t, 3)
	m := ms[0]
	first := m.hold(&coorddpb.HoldRequest{Name: []byte("l"), Ttl: 5})
	h := first.want(t, held, none)
	if h.Lease == 0 || h.FencingToken == 0 || h.RemainingTtlMs <= 0 || h.RemainingTtlMs > 5000 {
		t.Errorf("%v", h)
	}
	id := ms[1].lease(600)
	second := ms[1].hold(&coorddpb.HoldRequest{Name: []byte("l"), Lease: id})
	if w := second.want(t, waiting, none); w.Ahead != 1 || w.Lease != id {
		t.Errorf("%v", w)
	}
	busy := ms[2].hold(&coorddpb.HoldRequest{Name: []byte("l"), Try: true})
	busy.want(t, lost, coorddpb.HoldReason_HOLD_REASON_BUSY)
	if err := await(t, busy.done); err != nil {
		t.Error(err)
	}
	first.cancel() // gives the lock back
	if err := await(t, first.done); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	h = second.want(t, held, none)
	ms[2].revoke(id)
	second.want(t, lost, coorddpb.HoldReason_HOLD_REASON_LEASE_ENDED)
	if err := await(t, second.done); err != nil {
		t.Error(err)
	}
	m.untilQueue("l", 0)
	_ = h
}

// A stream on an earlier lock tells when that is lost, how, and does not give it back itself.
func TestHoldFollowsKey(t *testing.T) {
	m := one(t)
	id := m.lease(600)
	r := m.mustLock(ask1("l", id))
	s := m.hold(&coorddpb.HoldRequest{Key: r.Key, FencingToken: r.FencingToken})
	s.want(t, held, none)
	s.cancel()
	await(t, s.done)
	if len(m.keys("l")) != 1 {
		t.Fatal("the end of the stream gave the lock back")
	}
	s = m.hold(&coorddpb.HoldRequest{Key: r.Key})
	s.want(t, held, none)
	m.mustUnlock(r)
	s.want(t, lost, coorddpb.HoldReason_HOLD_REASON_UNLOCKED)
	m.mustLock(ask1("l", id))
	m.hold(&coorddpb.HoldRequest{Key: r.Key, FencingToken: r.FencingToken}).want(t, lost, coorddpb.HoldReason_HOLD_REASON_REPLACED)
	gone := m.lease(600)
	m.revoke(gone)
	m.hold(&coorddpb.HoldRequest{Key: keyOf([]byte("l"), gone)}).want(t, lost, coorddpb.HoldReason_HOLD_REASON_LEASE_ENDED)
	m.put("data", "v")
	for _, r := range []*coorddpb.HoldRequest{{Key: []byte("data")}, {Key: r.Key, Name: []byte("l")}} {
		if err := m.Hold(bg(t), r, func(*coorddpb.HoldResponse) error { return nil }); !errors.Is(err, errs.ErrNotLock) && !errors.Is(err, errs.ErrLockRequest) {
			t.Errorf("%v: %v", r, err)
		}
	}
}

// A holder's stream goes on telling how long the lease lives, and that it has ended when nobody renews it.
func TestHoldTellsExpiry(t *testing.T) {
	m := one(t)
	begin := time.Now()
	s := m.hold(&coorddpb.HoldRequest{Name: []byte("l"), Lease: m.lease(5)})
	s.want(t, held, none)
	h := await(t, s.news)
	if h.State != held || h.RemainingTtlMs > 5000 {
		t.Errorf("%v, want a newer time left", h)
	}
	s.want(t, lost, coorddpb.HoldReason_HOLD_REASON_LEASE_ENDED)
	if d := time.Since(begin); d < 3*time.Second {
		t.Errorf("told after %v", d)
	}
}

// A member cut off from the others tells its holders that the lock is lost before anybody else can have it.
func TestHoldOnMemberWithoutQuorum(t *testing.T) {
	ms := cluster(t, 3)
	s := ms[0].hold(&coorddpb.HoldRequest{Name: []byte("l"), Ttl: 3})
	s.want(t, held, none)
	for _, m := range ms[1:] {
		if err := m.node.Close(); err != nil {
			t.Error(err)
		}
	}
	longer, last := 0, &coorddpb.HoldResponse{RemainingTtlMs: 3000}
	for len(s.news) > 0 && last.State != lost { // said before they had ended
		last = <-s.news
	}
	for last.State != lost {
		h := await(t, s.news)
		if h.RemainingTtlMs > last.RemainingTtlMs {
			longer++
		}
		last = h
	}
	if longer > 1 { // one renewal may have been under way
		t.Errorf("the time left has grown %d times although nobody can renew the lease", longer)
	}
}

func TestList(t *testing.T) {
	ms := cluster(t, 3)
	m := ms[0]
	shared := &lockpb.LockRequest{Name: []byte("l"), Lease: m.lease(600), Shared: true, LockDelayMs: 60_000}
	m.mustLock(shared)
	m.mustLock(&lockpb.LockRequest{Name: []byte("l"), Lease: m.lease(600), Shared: true})
	ctx, cancel := context.WithCancel(context.Background())
	var waits []<-chan outcome
	for i := range 3 {
		waits = append(waits, m.later(ctx, ask1("l", m.lease(1000))))
		m.untilQueue("l", 4+i)
	}
	for _, m := range ms {
		r, err := m.List(bg(t), &coorddpb.ListLocksRequest{Name: []byte("l"), Limit: 2})
		if err != nil || len(r.Holders) != 2 || len(r.Waiters) != 2 || r.Waiting != 3 {
			t.Fatalf("%v %v", r, err)
		}
		for _, h := range r.Holders {
			if !h.Shared || h.FencingToken == 0 || h.GrantedTtlMs != 600_000 || h.RemainingTtlMs < 300_000 {
				t.Errorf("%v", h)
			}
		}
		if w := r.Waiters; w[0].FencingToken >= w[1].FencingToken || w[0].Shared || w[0].GrantedTtlMs != 1000_000 {
			t.Errorf("%v", w)
		}
	}
	cancel()
	for _, c := range waits {
		await(t, c)
	}
}

// One who waits on a Hold stream is told how many are ahead, again whenever one near the front leaves.
func TestHoldCountsThoseAhead(t *testing.T) {
	ms := cluster(t, 3)
	const n = 12
	queue := []*lockpb.LockResponse{ms[0].mustLock(ask1("l", ms[0].lease(600)))}
	var waits []<-chan outcome
	for i := 1; i < n; i++ {
		m := ms[i%3]
		waits = append(waits, m.later(bg(t), ask1("l", m.lease(600))))
		ms[0].untilQueue("l", i+1)
	}
	id := ms[1].lease(600)
	last := ms[1].hold(&coorddpb.HoldRequest{Name: []byte("l"), Lease: id})
	first := last.want(t, waiting, none)
	if first.Ahead != n {
		t.Fatalf("%v, want %d ahead", first, n)
	}
	follower := ms[2].hold(&coorddpb.HoldRequest{Key: first.Key, FencingToken: first.FencingToken})
	follower.want(t, waiting, none)
	for ahead := int64(n); ahead > 0; {
		ms[0].mustUnlock(queue[n-ahead])
		if ahead--; ahead > 0 {
			queue = append(queue, await(t, waits[n-ahead-1]).resp)
		}
		if ahead > nearFront || ahead == 0 {
			continue
		}
		for _, s := range []*stream{last, follower} {
			for h := s.want(t, waiting, none); h.Ahead != ahead; h = s.want(t, waiting, none) {
				if h.Ahead < ahead || !milestone(h.Ahead) && s == last {
					t.Fatalf("told of %d ahead, there are %d", h.Ahead, ahead)
				}
			}
		}
	}
	last.want(t, held, none)
	for h := await(t, follower.news); h.State != held; h = await(t, follower.news) {
		if h.State == lost {
			t.Fatalf("%v", h)
		}
	}
}
