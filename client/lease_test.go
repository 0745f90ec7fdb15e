package client_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/errs/grpcerr"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

// lessor is the leases that the members of a network share, with the rules of the API.
type lessor struct {
	mu      sync.Mutex
	ttl     map[int64]int64
	expires map[int64]time.Time
	renewed map[int64][]time.Time
	denied  map[int64]bool
	streams int
}

func newLessor() *lessor {
	return &lessor{ttl: map[int64]int64{}, expires: map[int64]time.Time{}, renewed: map[int64][]time.Time{}, denied: map[int64]bool{}}
}

func (l *lessor) grant(id, ttl int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ttl[id], l.expires[id] = ttl, time.Now().Add(time.Duration(ttl)*time.Second)
}

func (l *lessor) revoke(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ttl, id)
}

func (l *lessor) alive(id int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ttl[id] > 0 && time.Now().Before(l.expires[id])
}

func (l *lessor) renewals(id int64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.renewed[id])
}

// keepAlive is the service.
func (l *lessor) keepAlive(g grpc.BidiStreamingServer[rpcpb.LeaseKeepAliveRequest, rpcpb.LeaseKeepAliveResponse]) error {
	l.mu.Lock()
	l.streams++
	l.mu.Unlock()
	for {
		r, err := g.Recv()
		if err != nil {
			return err
		}
		resp := &rpcpb.LeaseKeepAliveResponse{ID: r.ID}
		l.mu.Lock()
		if l.denied[r.ID] {
			l.mu.Unlock()
			return grpcerr.ToStatus(errs.ErrPermissionDenied)
		}
		if ttl := l.ttl[r.ID]; ttl > 0 && time.Now().Before(l.expires[r.ID]) {
			resp.TTL, l.expires[r.ID] = ttl, time.Now().Add(time.Duration(ttl)*time.Second)
			l.renewed[r.ID] = append(l.renewed[r.ID], time.Now())
		}
		l.mu.Unlock()
		if err := g.Send(resp); err != nil {
			return err
		}
	}
}

func leased(t testing.TB, names ...string) (*network, *lessor) {
	n, l := newNetwork(t, names...), newLessor()
	for _, name := range names {
		n.at(name).onKeepAlive = l.keepAlive
	}
	return n, l
}

// Leases are renewed three times in each time to live, over one stream, by however many keepers.
func TestKeepAlivePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, l := leased(t, "a")
		c := n.client([]string{"a"})
		l.grant(1, 3)
		l.grant(2, 60)
		keepers := []*client.Keeper{
			c.KeepAlive(context.Background(), 1), c.KeepAlive(context.Background(), 1), c.KeepAlive(context.Background(), 2),
		}
		<-time.After(60*time.Second + time.Millisecond)
		// At 0 s twice or once, as the second keeper comes before or after the answer to the first; then each second.
		if got := l.renewals(1); got < 61 || got > 62 {
			t.Fatalf("lease of 3 s was renewed %d times in 60 s", got)
		}
		if got := l.renewals(2); got != 4 {
			t.Fatalf("lease of 60 s was renewed %d times in 60 s", got)
		}
		if l.streams != 1 {
			t.Fatalf("%d streams", l.streams)
		}
		if left := time.Until(keepers[0].Expires()); left < 2*time.Second || left > 3*time.Second {
			t.Fatalf("Expires is in %v", left)
		}
		if r := <-keepers[0].Renewed(); r.ID != 1 || r.TTL != 3 {
			t.Fatalf("renewal %v", r)
		}
		keepers[0].Close()
		if err := keepers[0].Err(); !errors.Is(err, client.ErrClosed) {
			t.Fatalf("closed keeper: %v", err)
		}
		before := l.renewals(1)
		<-time.After(10 * time.Second)
		if got := l.renewals(1) - before; got != 10 {
			t.Fatalf("the other keeper renewed %d times in 10 s", got)
		}
	})
}

// A lease stays alive while members come and go, freeze and lose their leader; it is renewed in time each time.
func TestKeepAliveSurvives(t *testing.T) {
	for _, trouble := range []struct {
		name string
		do   func(n *network)
	}{
		{"cut", func(n *network) { n.at("a").cut(); n.at("b").cut() }},
		{"down", func(n *network) { n.at("a").down(); n.at("b").cut() }},
		{"frozen", func(n *network) { n.at("a").freeze() }},
		{"both down for 2 s", func(n *network) {
			n.at("a").down()
			n.at("b").down()
			time.AfterFunc(2*time.Second, n.at("b").up)
		}},
	} {
		t.Run(trouble.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, l := leased(t, "a", "b")
				l.grant(1, 5)
				c := n.client([]string{"a", "b"})
				synctest.Wait()
				k := c.KeepAlive(context.Background(), 1, client.EndWhenUnconfirmed(5*time.Second))
				<-time.After(4 * time.Second)
				trouble.do(n)
				<-time.After(30 * time.Second)
				if !l.alive(1) {
					t.Fatal("the lease expired")
				}
				if k.Err() != nil {
					t.Fatalf("the keeper ended: %v", k.Err())
				}
			})
		})
	}
}

// A keeper ends when the server says the lease is gone, with the reason.
func TestKeepAliveGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, l := leased(t, "a")
		l.grant(1, 3)
		l.grant(2, 3)
		c := n.client([]string{"a"})
		gone, stays := c.KeepAlive(context.Background(), 1), c.KeepAlive(context.Background(), 2)
		<-time.After(5 * time.Second)
		l.revoke(1)
		<-gone.Done()
		if !errors.Is(gone.Err(), errs.ErrLeaseNotFound) {
			t.Fatalf("got %v", gone.Err())
		}
		<-time.After(5 * time.Second)
		if stays.Err() != nil || !l.alive(2) {
			t.Fatalf("the other keeper: %v", stays.Err())
		}
		ctx, cancel := context.WithCancel(context.Background())
		own := c.KeepAlive(ctx, 2)
		cancel()
		<-own.Done()
		if !errors.Is(own.Err(), context.Canceled) {
			t.Fatalf("got %v", own.Err())
		}
	})
}

// With EndWhenUnconfirmed a keeper ends no later than the lease can; without it, it waits and finds the lease
// alive after all.
func TestKeepAliveUnconfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, l := leased(t, "a")
		l.grant(1, 6)
		c := n.client([]string{"a"})
		strict := c.KeepAlive(context.Background(), 1, client.EndWhenUnconfirmed(6*time.Second))
		patient := c.KeepAlive(context.Background(), 1)
		never := c.KeepAlive(context.Background(), 2, client.EndWhenUnconfirmed(time.Minute))
		<-never.Done()
		if !errors.Is(never.Err(), errs.ErrLeaseNotFound) {
			t.Fatalf("got %v", never.Err())
		}
		<-time.After(7 * time.Second)
		n.at("a").down()
		l.grant(1, 3600) // as if a new leader had extended it
		expires := strict.Expires()
		<-strict.Done()
		if !errors.Is(strict.Err(), client.ErrLeaseUnconfirmed) {
			t.Fatalf("got %v", strict.Err())
		}
		if late := time.Since(expires); late < 0 || late > 10*time.Millisecond {
			t.Fatalf("ended %v after the time to live", late)
		}
		if patient.Err() != nil {
			t.Fatalf("the patient keeper ended: %v", patient.Err())
		}
		n.at("a").up()
		<-patient.Renewed() // an old one may be there
		<-patient.Renewed()
		if !l.alive(1) || patient.Err() != nil {
			t.Fatalf("the patient keeper: %v", patient.Err())
		}
	})
}

// A lease that may not be renewed ends its keeper, although the server ends the stream of all, and no other.
func TestKeepAliveDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, l := leased(t, "a")
		l.denied[3] = true
		c := n.client([]string{"a"})
		keepers := map[int64]*client.Keeper{}
		for id := int64(1); id <= 5; id++ {
			l.grant(id, 10)
			keepers[id] = c.KeepAlive(context.Background(), client.LeaseID(id))
		}
		<-time.After(time.Minute)
		for id, k := range keepers {
			if id == 3 {
				if !errors.Is(k.Err(), errs.ErrPermissionDenied) {
					t.Fatalf("lease 3: %v", k.Err())
				}
			} else if k.Err() != nil || !l.alive(id) {
				t.Fatalf("lease %d: %v", id, k.Err())
			}
		}
	})
}

// A grant whose answer is lost does not leave a second lease, and gives the first.
func TestGrantRepeats(t *testing.T) {
	n := newNetwork(t, "a", "b")
	var mu sync.Mutex
	leases := map[int64]int64{}
	for _, name := range []string{"a", "b"} {
		n.at(name).onGrant = func(_ context.Context, r *rpcpb.LeaseGrantRequest) (*rpcpb.LeaseGrantResponse, error) {
			mu.Lock()
			defer mu.Unlock()
			if _, ok := leases[r.ID]; ok {
				return nil, grpcerr.ToStatus(errs.ErrLeaseExist)
			}
			leases[r.ID] = r.TTL
			return nil, grpcerr.ToStatus(errs.ErrTimeout)
		}
		n.at(name).onTimeToLive = func(_ context.Context, r *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error) {
			mu.Lock()
			defer mu.Unlock()
			return &rpcpb.LeaseTimeToLiveResponse{ID: r.ID, TTL: leases[r.ID] - 1, GrantedTTL: leases[r.ID]}, nil
		}
	}
	c := n.client([]string{"a", "b"})
	resp, err := c.Grant(deadline(t, 10*time.Second), 30)
	if err != nil || resp.TTL != 30 || len(leases) != 1 || leases[resp.ID] != 30 || resp.ID <= 0 {
		t.Fatalf("got %v, %v; leases %v", resp, err, leases)
	}
	if _, err := c.Grant(deadline(t, 10*time.Second), 30, client.WithLeaseID(client.LeaseID(resp.ID))); !errors.Is(err, errs.ErrLeaseExist) {
		t.Fatalf("an id that exists: %v", err)
	}
}

// A revoke whose answer is lost succeeds; one of a lease that never was does not.
func TestRevokeRepeats(t *testing.T) {
	n := newNetwork(t, "a")
	var calls atomic.Int64
	n.at("a").onRevoke = func(_ context.Context, r *rpcpb.LeaseRevokeRequest) (*rpcpb.LeaseRevokeResponse, error) {
		if calls.Add(1) == 1 && r.ID == 7 {
			return nil, grpcerr.ToStatus(errs.ErrTimeout)
		}
		return nil, grpcerr.ToStatus(errs.ErrLeaseNotFound)
	}
	c := n.client([]string{"a"})
	if _, err := c.Revoke(deadline(t, 10*time.Second), 7); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Revoke(deadline(t, 10*time.Second), 8); !errors.Is(err, errs.ErrLeaseNotFound) {
		t.Fatalf("got %v", err)
	}
}

func TestKeepAliveOnce(t *testing.T) {
	n, l := leased(t, "a", "b")
	n.at("a").down()
	l.grant(1, 9)
	c := n.client([]string{"a", "b"})
	resp, err := c.KeepAliveOnce(deadline(t, 10*time.Second), 1)
	if err != nil || resp.TTL != 9 {
		t.Fatalf("got %v, %v", resp, err)
	}
	if _, err := c.KeepAliveOnce(deadline(t, 10*time.Second), 2); !errors.Is(err, errs.ErrLeaseNotFound) {
		t.Fatalf("got %v", err)
	}
}

// Many leases share a stream and are all renewed.
func TestKeepAliveMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, l := leased(t, "a")
		c := n.client([]string{"a"})
		const count = 2000
		for id := int64(1); id <= count; id++ {
			l.grant(id, 9)
			c.KeepAlive(context.Background(), client.LeaseID(id))
		}
		<-time.After(20 * time.Second)
		for id := int64(1); id <= count; id++ {
			if !l.alive(id) || l.renewals(id) < 6 {
				t.Fatalf("lease %d was renewed %d times", id, l.renewals(id))
			}
		}
	})
}
