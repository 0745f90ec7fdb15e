package rpc

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/coorddpb"
	"github.com/coordd/coordd/api/electionpb"
	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/errs/grpcerr"
	"github.com/coordd/coordd/api/lockpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// A lock without a lease is held as long as the connection of its holder lives, and no longer; over gRPC's own transport.
func TestLockOfConnection(t *testing.T) {
	m := serve(t, choosesIDs)
	defer m.Services.Close()
	g := m.NewServer()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(ln) })
	defer wg.Wait()
	defer g.Stop()
	dial := func() *grpc.ClientConn {
		c, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	holder, next := dial(), dial()
	r, err := services.NewLockClient(holder).Lock(with(t), &lockpb.LockRequest{Name: []byte("l"), Ttl: 600})
	if err != nil {
		t.Fatal(err)
	}
	if h := r.GetHeader(); h.GetMemberId() != testID || h.GetRevision() == 0 || r.GetLease() == 0 || r.GetFencingToken() == 0 || r.GetRemainingTtlMs() <= 0 {
		t.Errorf("%v", r)
	}
	got := make(chan error, 1)
	go func() {
		_, err := services.NewLockClient(next).Lock(with(t), &lockpb.LockRequest{Name: []byte("l")})
		got <- err
	}()
	waitForKeys(t, m, "l/", 2)
	select {
	case err := <-got:
		t.Fatalf("a second holder: %v", err)
	default:
	}
	holder.Close()
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testPatience):
		t.Fatal("the lock outlives the connection")
	}
	next.Close()
	waitForKeys(t, m, "l/", 0)
}

// granting is a test member that chooses the ids of leases, as a node does.
type granting struct {
	*testMember
	last atomic.Int64
}

func (g *granting) LeaseGrant(ctx context.Context, r *rpcpb.LeaseGrantRequest) (*rpcpb.LeaseGrantResponse, error) {
	if r.GetID() == 0 {
		r = &rpcpb.LeaseGrantRequest{ID: g.last.Add(1) + 1000, TTL: r.GetTTL()}
	}
	return g.testMember.LeaseGrant(ctx, r)
}

func choosesIDs(c *Config) { c.Node = &granting{testMember: c.Node.(*testMember)} }

// waitForKeys waits until so many keys have a prefix.
func waitForKeys(t *testing.T, m *served, prefix string, n int64) {
	t.Helper()
	end := []byte(prefix)
	end[len(end)-1]++
	var got int64
	eventually(t, func() bool {
		r, err := m.KV.Range(t.Context(), &rpcpb.RangeRequest{Key: []byte(prefix), RangeEnd: end, CountOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		got = r.GetCount()
		return got == n
	}, func() { t.Fatalf("%d keys of %s, want %d", got, prefix, n) })
}

// Sessions of callers whose connection nobody tracks are not renewed, as nobody could tell when to stop.
func TestUntrackedConnection(t *testing.T) {
	m := serve(t, choosesIDs, grpc.Creds(insecure.NewCredentials()))
	r, err := services.NewLockClient(m.conn).Lock(with(t), &lockpb.LockRequest{Name: []byte("l")})
	if err != nil || r.GetRemainingTtlMs() > 60_000 {
		t.Fatalf("%v %v", r, err)
	}
	m.Services.Close()
}

// The texts are the API's; the codes of what it has a text for are Unknown for its own services, and tell more for the others. A client
// tells the conditions apart by errors.Is, whatever the code, and learns their kinds.
func TestLockErrors(t *testing.T) {
	m := serve(t, choosesIDs)
	defer m.Services.Close()
	locks, elections := services.NewLockClient(m.conn), services.NewElectionClient(m.conn)
	put(t, m, "data")
	hold := func(r *coorddpb.HoldRequest) error {
		s, err := services.NewLocksClient(m.conn).Hold(with(t), r)
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}
	_, unknown := locks.Lock(with(t), &lockpb.LockRequest{Name: []byte("l"), Lease: 99})
	_, noLock := locks.Unlock(with(t), &lockpb.UnlockRequest{Key: []byte("data")})
	_, bad := locks.Lock(with(t), &lockpb.LockRequest{Name: []byte("l"), Limit: -1})
	_, noLeader := elections.Leader(with(t), &electionpb.LeaderRequest{Name: []byte("e")})
	_, noField := elections.Resign(with(t), &electionpb.ResignRequest{})
	_, notLeader := elections.Proclaim(with(t), &electionpb.ProclaimRequest{Leader: &electionpb.LeaderKey{Key: []byte("e/1"), Rev: 1}})
	for _, c := range []struct {
		err  error
		code codes.Code
		text string
		is   *errs.Error
		kind errs.Kind
	}{
		{unknown, codes.Unknown, "etcdserver: requested lease not found", errs.ErrLeaseNotFound, errs.NotFound},
		{noLock, codes.FailedPrecondition, "lock: the key is not that of a lock or election", errs.ErrNotLock, errs.FailedPrecondition},
		{bad, codes.InvalidArgument, "lock: the fields", errs.ErrLockRequest, errs.InvalidArgument},
		{noLeader, codes.Unknown, "election: no leader", errs.ErrElectionNoLeader, errs.NotFound},
		{notLeader, codes.Unknown, "election: not leader", errs.ErrElectionNotLeader, errs.FailedPrecondition},
		{noField, codes.Unknown, `"leader" field must be provided`, errs.ErrElectionLeaderMissing, errs.InvalidArgument},
		{hold(&coorddpb.HoldRequest{Name: []byte("l"), Lease: 99}), codes.NotFound, "etcdserver: requested lease not found", errs.ErrLeaseNotFound, errs.NotFound},
		{hold(&coorddpb.HoldRequest{Key: []byte("data")}), codes.FailedPrecondition, "lock: the key is not", errs.ErrNotLock, errs.FailedPrecondition},
	} {
		if s := status.Convert(c.err); s.Code() != c.code || !strings.HasPrefix(s.Message(), c.text) {
			t.Errorf("%v: want %v %q", c.err, c.code, c.text)
		}
		if got := grpcerr.FromStatus(c.err); !errors.Is(got, c.is) || errs.KindOf(got) != c.kind {
			t.Errorf("a client finds %v of kind %v, want %v of kind %v", got, errs.KindOf(got), c.is, c.kind)
		}
	}
}

func put(t *testing.T, m *served, key string) {
	t.Helper()
	if _, err := m.KV.Put(t.Context(), &rpcpb.PutRequest{Key: []byte(key), Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
}

// Both Observe services tell of leaders; only the native one tells that there is none.
func TestObserveServices(t *testing.T) {
	m := serve(t, choosesIDs)
	defer m.Services.Close()
	ctx, cancel := context.WithCancel(with(t))
	defer cancel()
	plain, err := services.NewElectionClient(m.conn).Observe(ctx, &electionpb.LeaderRequest{Name: []byte("e")})
	if err != nil {
		t.Fatal(err)
	}
	native, err := services.NewElectionsClient(m.conn).Observe(ctx, &coorddpb.ObserveRequest{Name: []byte("e")})
	if err != nil {
		t.Fatal(err)
	}
	next := func(change coorddpb.LeadershipChange, value string) {
		t.Helper()
		r, err := native.Recv()
		if err != nil || r.GetChange() != change || string(r.GetLeader().GetValue()) != value || r.GetHeader().GetClusterId() != testCluster {
			t.Fatalf("%v %v, want %v %s", r, err, change, value)
		}
	}
	next(coorddpb.LeadershipChange_LEADERSHIP_VACANT, "")
	elections := services.NewElectionClient(m.conn)
	c, err := elections.Campaign(with(t), &electionpb.CampaignRequest{Name: []byte("e"), Value: []byte("a")})
	if err != nil {
		t.Fatal(err)
	}
	next(coorddpb.LeadershipChange_LEADERSHIP_ELECTED, "a")
	if r, err := plain.Recv(); err != nil || string(r.GetKv().GetValue()) != "a" || r.GetHeader().GetRevision() == 0 {
		t.Fatalf("%v %v", r, err)
	}
	if _, err := elections.Proclaim(with(t), &electionpb.ProclaimRequest{Leader: c.GetLeader(), Value: []byte("b")}); err != nil {
		t.Fatal(err)
	}
	next(coorddpb.LeadershipChange_LEADERSHIP_PROCLAIMED, "b")
	if _, err := elections.Resign(with(t), &electionpb.ResignRequest{Leader: c.GetLeader()}); err != nil {
		t.Fatal(err)
	}
	next(coorddpb.LeadershipChange_LEADERSHIP_VACANT, "")
	if l, err := services.NewLocksClient(m.conn).List(with(t), &coorddpb.ListLocksRequest{Name: []byte("e")}); err != nil || len(l.GetHolders()) != 0 {
		t.Errorf("%v %v", l, err)
	}
}
