package server

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/peerpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/lease"
	"github.com/coordd/coordd/mvcc"
	"github.com/coordd/coordd/peer"
)

func putRequest(key, value string) *rpcpb.PutRequest {
	return &rpcpb.PutRequest{Key: []byte(key), Value: []byte(value)}
}

func grant(t *testing.T, n *Node, ttl int64) int64 {
	t.Helper()
	r, err := n.LeaseGrant(t.Context(), &rpcpb.LeaseGrantRequest{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return r.ID
}

// A lease granted through one member is renewed and asked for through each, and
// takes its keys with it when it ends.
func TestLeaseThroughEveryMember(t *testing.T) {
	c := newCluster(t, 3).run()
	id := grant(t, c.nodes[0], 3)
	if _, err := c.nodes[1].Put(t.Context(), &rpcpb.PutRequest{Key: []byte("k"), Lease: id}); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.nodes {
		if ttl, err := n.LeaseRenew(t.Context(), id); err != nil || ttl != 3 {
			t.Errorf("renewal: %d, %v", ttl, err)
		}
		r, err := n.LeaseTimeToLive(t.Context(), &rpcpb.LeaseTimeToLiveRequest{ID: id, Keys: true})
		if err != nil || r.GrantedTTL != 3 || r.TTL > 3 || len(r.Keys) != 1 {
			t.Errorf("time to live: %v, %v", r, err)
		}
	}
	n := c.nodes[2]
	if err := n.LinearizableWait(t.Context()); err != nil { // it has heard of the lease, or an empty list says nothing
		t.Fatal(err)
	}
	for {
		next := n.applied.Wait(n.appliedIndex.Load() + 1)
		if len(n.machine.Load().Leases.List()) == 0 {
			break
		}
		select {
		case <-next:
		case <-within(t, testWait).Done():
			t.Fatal("the lease does not end")
		}
	}
	if got, err := n.machine.Load().KV.Range([]byte("k"), nil, mvcc.RangeOptions{}, func([]byte) error { return nil }); err != nil || got.Count != 0 {
		t.Errorf("the lease's key is there: %v, %v", got, err)
	}
	for _, n := range c.nodes {
		if _, err := n.LeaseRenew(t.Context(), id); !errors.Is(err, errs.ErrLeaseNotFound) {
			t.Errorf("renewal of a lease that ended: %v", err)
		}
		if r, err := n.LeaseTimeToLive(t.Context(), &rpcpb.LeaseTimeToLiveRequest{ID: id}); err != nil || r.TTL != -1 {
			t.Errorf("time to live of a lease that ended: %v, %v", r, err)
		}
	}
}

// What is left of a lease outlives planned changes of leader.
func TestLeaseAgeOutlivesMoves(t *testing.T) {
	c := newCluster(t, 3).run()
	id := grant(t, c.nodes[0], 600)
	leader := c.leader()
	leader.expirer.Settle(func(uint64, []lease.Checkpoint) { t.Error("a fresh lease is checkpointed") })
	for range 3 {
		leader = c.leader()
		to := leader.successor(t.Context())
		if err := leader.MoveLeader(within(t, testWait), to); err != nil {
			t.Fatal(err)
		}
		for _, n := range c.nodes {
			r, err := n.LeaseTimeToLive(t.Context(), &rpcpb.LeaseTimeToLiveRequest{ID: id})
			if err != nil || r.TTL > 600 || r.TTL < 590 {
				t.Errorf("%v, %v", r, err)
			}
		}
	}
}

// A leader knows whom to hand over to from its first moment on, before any other has answered it.
func TestSuccessorOfAFreshLeader(t *testing.T) {
	c := newCluster(t, 3).run()
	for range 10 {
		leader := c.leader()
		i := slices.IndexFunc(c.nodes, func(n *Node) bool { return n != leader })
		next, moved := c.nodes[i], make(chan error, 1)
		go func() { moved <- leader.MoveLeader(within(t, testWait), next.ID()) }()
		for next.Leader() != next.ID() {
			runtime.Gosched()
		}
		if next.successor(within(t, testWait)) == 0 {
			t.Error("no successor, though all members are there")
		}
		if err := <-moved; err != nil {
			t.Fatal(err)
		}
	}
}

// A confirmation of leadership says nothing in a later term: what another leader committed between is perhaps not known here.
func TestConfirmationEndsWithItsTerm(t *testing.T) {
	c := newCluster(t, 3)
	for i := range c.cfgs {
		c.cfgs[i].Tick = 500 * time.Millisecond // so that the leader does not step down during the test
	}
	c.run()
	leader := c.leader()
	id := grant(t, leader, 60)
	for i, n := range c.nodes {
		if n != leader {
			c.nodes[i].transport.Close() // the member is cut off; it is closed at the end of the test
		}
	}
	ask := func(term uint64) error {
		leader.confirmed.Store(&confirmation{term: term, begin: time.Since(leader.started)})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := leader.LeaseTimeToLive(ctx, &rpcpb.LeaseTimeToLiveRequest{ID: id})
		return err
	}
	if err := ask(leader.Term()); err != nil {
		t.Errorf("with a confirmation of this term: %v", err)
	}
	if err := ask(leader.Term() - 1); err == nil {
		t.Error("answered with a confirmation of an earlier term")
	}
}

// A lease whose end another member has shown is not said to live by a leader that has not applied that end yet: it
// waits until it has, also while its leadership is known to be confirmed.
func TestLeaseAnswersWaitForWhatIsCommitted(t *testing.T) {
	c := newCluster(t, 3).run()
	leader := c.leader()
	other := c.nodes[0]
	if other == leader {
		other = c.nodes[1]
	}
	id := grant(t, leader, 60)
	held, free := make(chan struct{}), make(chan struct{})
	go func() {
		_ = leader.onApplyLoop(context.Background(), func() error { close(held); <-free; return nil }) // fails after the end only
	}()
	<-held
	if _, err := other.LeaseRevoke(within(t, testWait), &rpcpb.LeaseRevokeRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	leader.confirmed.Store(&confirmation{term: leader.Term(), begin: time.Since(leader.started) + time.Minute})
	ctx := within(t, testWait)
	lives := make(chan bool, 2) // an error says nothing: it waits for a second only
	go func() {
		r, err := leader.LeaseTimeToLive(ctx, &rpcpb.LeaseTimeToLiveRequest{ID: id})
		lives <- err == nil && r.TTL >= 0
	}()
	go func() {
		_, err := leader.LeaseRenew(ctx, id)
		lives <- err == nil
	}()
	select {
	case l := <-lives:
		t.Error("answered before the end of the lease was applied")
		lives <- l
	case <-time.After(2 * leader.ElectionTimeout()):
	}
	close(free)
	if a, b := <-lives, <-lives; a || b {
		t.Error("the lease is said to live")
	}
}

// The alarm NOSPACE refuses what adds data, lets everything else through, and
// goes by itself when there is room.
func TestNoSpaceClearsItself(t *testing.T) {
	c := newCluster(t, 1)
	c.cfgs[0].QuotaBytes = 1 << 20
	c.run()
	n := c.nodes[0]
	value := string(make([]byte, 50_000))
	var err error
	for i := 0; err == nil && i < 100; i++ {
		_, err = n.Put(t.Context(), putRequest(string(rune('a'+i%26)), value))
		if i%5 == 4 && err == nil {
			err = n.onApplyLoop(t.Context(), func() error { return n.machine.Load().Commit(true) })
		}
	}
	if !errors.Is(err, errs.ErrNoSpace) || !n.Alarmed(rpcpb.AlarmType_NOSPACE) {
		t.Fatalf("the quota is not kept: %v", err)
	}
	if _, err := n.LeaseGrant(t.Context(), &rpcpb.LeaseGrantRequest{TTL: 10}); !errors.Is(err, errs.ErrNoSpace) {
		t.Errorf("grant under the alarm: %v", err)
	}
	if _, err := n.DeleteRange(t.Context(), &rpcpb.DeleteRangeRequest{Key: []byte("a"), RangeEnd: []byte{0}}); err != nil {
		t.Errorf("delete under the alarm: %v", err)
	}
	if _, err := n.Compact(t.Context(), &rpcpb.CompactionRequest{Revision: n.Revision(), Physical: true}); err != nil {
		t.Errorf("compaction under the alarm: %v", err)
	}
	for n.Alarmed(rpcpb.AlarmType_NOSPACE) {
		select {
		case <-n.applied.Wait(n.appliedIndex.Load() + 1):
		case <-within(t, testWait).Done():
			t.Fatal("the alarm stays")
		}
	}
	put(t, n, "k", "v")
}

// A leader that has lost the others acknowledges renewals no longer than it may trust the last confirmation of its
// leadership, though it believes to lead for much longer: the next leader does not know of them.
func TestLeaderAloneStopsRenewing(t *testing.T) {
	c := newCluster(t, 3)
	for i := range c.cfgs {
		c.cfgs[i].Tick = 100 * time.Millisecond // so that the leader steps down long after confirmFor
	}
	c.run()
	leader := c.leader()
	id := grant(t, leader, 60)
	if _, err := leader.LeaseRenew(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for i, n := range c.nodes {
		if n != leader {
			c.nodes[i].transport.Close() // the member is cut off; it is closed at the end of the test
		}
	}
	alone := time.Now()
	refused := 0
	for leader.Leader() == leader.ID() {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := leader.LeaseRenew(ctx, id)
		cancel()
		switch {
		case err != nil:
			refused++
		case begin.Sub(alone) > 2*leader.confirmFor():
			t.Fatalf("renewed %v after the last contact with the others", begin.Sub(alone))
		}
	}
	if refused == 0 {
		t.Error("the leader stepped down before it was asked without a confirmation: the test shows nothing")
	}
}

// hanging is a transport whose renewals with one member never come back, as those with a stopped process.
type hanging struct {
	Transport
	member  *atomic.Uint64
	entered chan struct{}
}

func (h hanging) LeaseKeepAlive(ctx context.Context, to uint64, r *peerpb.LeaseKeepAliveRequest) (*peerpb.LeaseKeepAliveResponse, error) {
	if to != h.member.Load() {
		return h.Transport.LeaseKeepAlive(ctx, to, r)
	}
	select {
	case h.entered <- struct{}{}:
	default: // told already
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// A renewal that hangs at a leader goes on with the next one as soon as there is one, not when the request times out:
// the lease would not last as long.
func TestRenewalLeavesAHeldLeader(t *testing.T) {
	c := newCluster(t, 3)
	held, entered := new(atomic.Uint64), make(chan struct{}, 1)
	for i := range c.cfgs {
		c.cfgs[i].NewTransport = func(p peer.Config) (Transport, error) {
			inner, err := peer.New(p)
			return hanging{inner, held, entered}, err
		}
	}
	c.run()
	leader := c.leader()
	i := slices.IndexFunc(c.nodes, func(n *Node) bool { return n != leader })
	follower := c.nodes[i]
	id := grant(t, leader, 60)
	held.Store(leader.ID())
	renewed := make(chan error, 1)
	go func() {
		_, err := follower.LeaseRenew(t.Context(), id)
		renewed <- err
	}()
	<-entered
	if err := leader.MoveLeader(within(t, testWait), follower.ID()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-renewed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(follower.cfg.requestTimeout() / 2):
		t.Error("the renewal waits for the leader that is held")
	}
}
