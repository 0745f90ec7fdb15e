package robustness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coordd/coordd/api/lockpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/concurrency"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdconcurrency "go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// lockTTL is the time to live of the sessions of contenders.
const lockTTL = 2 * time.Second

// seat is a session of a contender, of some kind, and how it gets locks.
type seat struct {
	r     *run
	lease int64 // 0: the server has made it and nobody was told until a lock was got

	take  func(ctx context.Context, name string) (*grip, error)
	stall func()                          // renews no more, as one that is paused
	close func()                          // gives the session up
	dead  func() bool                     // it has ended, as far as its client knows
	renew func(ctx context.Context) error // nil: only the server renews

	mu      sync.Mutex    // guards the rest
	alive   time.Duration // when the last call began that surely gave the lease its whole time
	dropped time.Duration // when the session was given up
}

// grip is a lock that was got.
type grip struct {
	seat          *seat
	lock, key     string
	token, header int64
	use           func(ctx context.Context, key, value string) (done bool, rev int64, err error)
	unlock        func(ctx context.Context) error

	dropped time.Duration // when it was given back for the first time
}

func (s *seat) lives(at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive = max(s.alive, at)
}

// drop notes that the session is given up, before it is.
func (s *seat) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped == 0 {
		s.dropped = s.r.site.Now()
	}
}

// renewNow renews, and knows from when on the lease has its whole time.
func (s *seat) renewNow(ctx context.Context) {
	if s.renew == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	call := s.r.site.Now()
	if s.renew(ctx) == nil {
		s.lives(call)
	}
}

// etcdSeat is a session of etcd's package concurrency.
func (r *run) etcdSeat(c *clientv3.Client) (*seat, error) {
	call := r.site.Now()
	session, err := etcdconcurrency.NewSession(c, etcdconcurrency.WithTTL(int(lockTTL/time.Second)), etcdconcurrency.WithContext(r.ctx))
	if err != nil {
		return nil, err
	}
	s := &seat{r: r, lease: int64(session.Lease()), alive: call, stall: session.Orphan, close: func() { _ = session.Close() }, dead: func() bool { return ended(session.Done()) }}
	s.renew = func(ctx context.Context) error {
		_, err := c.KeepAliveOnce(ctx, session.Lease())
		return err
	}
	s.take = func(ctx context.Context, name string) (*grip, error) {
		m := etcdconcurrency.NewMutex(session, name)
		if err := m.Lock(ctx); err != nil {
			return nil, err
		}
		got, err := c.Txn(ctx).If(m.IsOwner()).Then(clientv3.OpGet(m.Key())).Commit()
		if err != nil || !got.Succeeded {
			_ = m.Unlock(ctx)
			return nil, errors.Join(err, errors.New("the lock is lost already"))
		}
		token := got.Responses[0].GetResponseRange().Kvs[0].CreateRevision
		return &grip{seat: s, lock: name, key: m.Key(), token: token, header: m.Header().Revision, unlock: m.Unlock, use: etcdUse(c, m.IsOwner())}, nil
	}
	return s, nil
}

// etcdUse puts a key under the condition of a lock.
func etcdUse(c *clientv3.Client, owner clientv3.Cmp) func(context.Context, string, string) (bool, int64, error) {
	return func(ctx context.Context, key, value string) (bool, int64, error) {
		got, err := c.Txn(ctx).If(owner).Then(clientv3.OpPut(key, value)).Commit()
		if err != nil {
			return false, 0, err
		}
		return got.Succeeded, got.Header.Revision, nil
	}
}

func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// nativeSeat is a session of our package concurrency.
func (r *run) nativeSeat(c *client.Client) (*seat, error) {
	ctx, cancel := context.WithTimeout(r.ctx, 3*time.Second)
	defer cancel()
	call := r.site.Now()
	session, err := concurrency.NewSession(ctx, c, concurrency.WithTTL(lockTTL))
	if err != nil {
		return nil, err
	}
	s := &seat{r: r, lease: int64(session.Lease()), alive: call, stall: session.Orphan, close: func() { _ = session.Close() }, dead: func() bool { return ended(session.Done()) }}
	s.renew = func(ctx context.Context) error {
		_, err := c.KeepAliveOnce(ctx, session.Lease())
		return err
	}
	s.take = func(ctx context.Context, name string) (*grip, error) {
		m := concurrency.NewMutex(session, name)
		if err := m.Lock(ctx); err != nil {
			return nil, err
		}
		owner := m.IsOwner()
		return &grip{seat: s, lock: name, key: m.Key(), token: m.FencingToken(), unlock: func(ctx context.Context) error {
			err := m.Unlock(ctx)
			if errors.Is(err, concurrency.ErrNotHeld) {
				return nil
			}
			return err
		}, use: func(ctx context.Context, key, value string) (bool, int64, error) {
			got, err := c.Txn(ctx).If(owner).Then(client.OpPut(key, value)).Commit()
			if err != nil {
				return false, 0, err
			}
			return got.Succeeded, got.Header.Revision, nil
		}}, nil
	}
	return s, nil
}

// conn is a connection to one member, under a name. The caller closes it.
func (r *run) conn(name string, member int) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+r.site.Cluster.Members[member].ClientURL[len("http://"):],
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(r.site.Network.Dialer(name)))
}

// serviceSeat uses the service Lock of one member. With own it has a lease of its own, otherwise the server's, which lives as long as
// the connection.
func (r *run) serviceSeat(c *clientv3.Client, name string, member int, own bool) (*seat, error) {
	conn, err := r.conn(name, member)
	if err != nil {
		return nil, err
	}
	s := &seat{r: r, dead: func() bool { return false }}
	hangUp := sync.OnceFunc(func() { _ = conn.Close() })
	if own {
		if err := s.ownLease(c, hangUp); err != nil {
			hangUp()
			return nil, err
		}
	} else {
		s.stall, s.close = hangUp, hangUp
	}
	locks := services.NewLockClient(conn)
	s.take = func(ctx context.Context, name string) (*grip, error) {
		got, err := locks.Lock(ctx, &lockpb.LockRequest{Name: []byte(name), Lease: s.lease, Ttl: int64(lockTTL / time.Second)})
		if err != nil {
			return nil, err
		}
		key := string(got.Key)
		if !got.Acquired || got.FencingToken == 0 || got.Lease == 0 || got.RemainingTtlMs < 0 || got.RemainingTtlMs > lockTTL.Milliseconds() {
			r.violate("Lock answers %v", got)
		}
		return &grip{seat: s, lock: name, key: key, token: got.FencingToken, header: got.Header.Revision, unlock: func(ctx context.Context) error {
			_, err := locks.Unlock(ctx, &lockpb.UnlockRequest{Key: got.Key, FencingToken: got.FencingToken})
			return err
		}, use: etcdUse(c, clientv3.Compare(clientv3.CreateRevision(key), "=", got.FencingToken))}, nil
	}
	return s, nil
}

// ownLease gives a seat a lease that is renewed three times in its time to live.
func (s *seat) ownLease(c *clientv3.Client, hangUp func()) error {
	grantCtx, cancel := context.WithTimeout(s.r.ctx, 3*time.Second)
	defer cancel()
	s.alive = s.r.site.Now()
	g, err := c.Grant(grantCtx, int64(lockTTL/time.Second))
	if err != nil {
		return err
	}
	s.lease = int64(g.ID)
	s.renew = func(ctx context.Context) error {
		_, err := c.KeepAliveOnce(ctx, g.ID)
		return err
	}
	ctx, end := context.WithCancel(s.r.ctx)
	var busy sync.WaitGroup
	busy.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(lockTTL / 3):
				s.renewNow(ctx)
			}
		}
	})
	s.stall = func() { end(); busy.Wait() }
	s.dead = func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.r.site.Now() > s.alive+2*lockTTL
	}
	s.close = func() {
		s.stall()
		ctx, cancel := context.WithTimeout(context.Background(), lockTTL)
		defer cancel()
		_, _ = c.Revoke(ctx, g.ID) // it ends by itself otherwise
		hangUp()
	}
	return nil
}

// kinds of contenders.
const seatKinds = 4

// seat makes a session of a kind.
func (c *contender) newSeat() (*seat, error) {
	switch c.id % seatKinds {
	case 0:
		return c.r.etcdSeat(c.etcd)
	case 1:
		return c.r.nativeSeat(c.native)
	default:
		return c.r.serviceSeat(c.etcd, c.name, c.rng.IntN(3), c.id%seatKinds == 2)
	}
}

// String names the contender and its kind.
func (c *contender) String() string {
	return fmt.Sprintf("%s (%s)", c.name, [...]string{"etcd's client", "our client", "service with own lease", "service with lease 0"}[c.id%seatKinds])
}
