package robustness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/coordd/coordd/api/coorddpb"
	"github.com/coordd/coordd/api/electionpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/concurrency"
	"github.com/coordd/coordd/tests/history"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdconcurrency "go.etcd.io/etcd/client/v3/concurrency"
)

const (
	electionPrefix = "election/"
	candidates     = 3 // one of each kind
)

// ballot is the elections of a run, and what observers and leaders were told.
type ballot struct {
	r         *run
	observers []observer
	etcd      *clientv3.Client
	native    *client.Client

	mu        sync.Mutex // guards the rest
	sightings map[string][]history.Sighting
	grants    map[string][]history.Grant
}

// observer tells what it sees of an election until the context ends or something goes wrong.
type observer func(ctx context.Context, name string, rng *rand.Rand) error

func candidateName(i int) string { return fmt.Sprintf("candidate%d", i) }

// electionClients are the candidates and observers, each for itself, for the plan of faults.
func electionClients() [][]string {
	var all [][]string
	for i := range candidates {
		all = append(all, []string{candidateName(i), fmt.Sprintf("observer%d", i)})
	}
	return all
}

// elections starts candidates and observers.
func (r *run) elections() *ballot {
	b := &ballot{r: r, sightings: map[string][]history.Sighting{}, grants: map[string][]history.Grant{}}
	for i := range candidates {
		etcd, native, rng := r.etcd(candidateName(i)), r.native(candidateName(i)), r.rand(uint64(5000+i))
		r.busy.Go(func() {
			for n := 0; r.pause(rng, 200*time.Millisecond); n++ {
				b.stand(i, fmt.Sprintf("%s%d", electionPrefix, r.epoch()), fmt.Sprintf("%s term %d", candidateName(i), n), rng, etcd, native)
			}
		})
	}
	b.etcd, b.native = r.etcd(candidateName(0)), r.native(candidateName(1))
	b.observers = []observer{
		b.observeEtcd(r.etcd("observer0")), b.observeNative(r.native("observer1")), b.observeService("observer2"), b.observeServiceOfOurs("observer2"),
	}
	for i, observe := range b.observers {
		rng := r.rand(uint64(5100 + i))
		r.busy.Go(func() {
			for r.pause(rng, 200*time.Millisecond) {
				ctx, cancel := context.WithTimeout(r.ctx, time.Duration(1+rng.IntN(8))*time.Second)
				_ = observe(ctx, fmt.Sprintf("%s%d", electionPrefix, r.epoch()), rng) // it is for what is told, not for how it ends
				cancel()
			}
		})
	}
	return b
}

// term is a leadership.
type term struct {
	key           string
	token, header int64
	proclaim      func(ctx context.Context, value string) error
	resign        func(ctx context.Context) error
}

// stand stands for election once, with a session for it alone.
func (b *ballot) stand(kind int, name, value string, rng *rand.Rand, etcd *clientv3.Client, native *client.Client) {
	ctx, cancel := context.WithTimeout(b.r.ctx, 8*time.Second)
	defer cancel()
	var t *term
	var end func()
	var err error
	switch kind {
	case 0:
		t, end, err = b.standEtcd(ctx, etcd, name, value)
	case 1:
		t, end, err = b.standNative(ctx, native, name, value)
	default:
		t, end, err = b.standService(ctx, name, value, rng)
	}
	defer end()
	if err != nil {
		b.r.count("elections not won", 1)
		return
	}
	b.r.count("elections won", 1)
	b.mu.Lock()
	b.grants[name] = append(b.grants[name], history.Grant{Holder: value, Key: t.key, Token: t.token, Header: t.header})
	b.mu.Unlock()
	for i := range rng.IntN(4) {
		if !b.r.pause(rng, 150*time.Millisecond) {
			return
		}
		_ = t.proclaim(ctx, fmt.Sprint(value, ", proclaimed ", i))
	}
	if rng.IntN(4) != 0 { // or it ends with the session
		_ = t.resign(ctx)
	}
}

func (b *ballot) standEtcd(ctx context.Context, c *clientv3.Client, name, value string) (*term, func(), error) {
	session, err := etcdconcurrency.NewSession(c, etcdconcurrency.WithTTL(int(lockTTL/time.Second)), etcdconcurrency.WithContext(ctx))
	if err != nil {
		return nil, func() {}, err
	}
	e := etcdconcurrency.NewElection(session, name)
	end := func() { _ = session.Close() }
	if err := e.Campaign(ctx, value); err != nil {
		return nil, end, err
	}
	return &term{key: e.Key(), token: e.Rev(), proclaim: e.Proclaim, resign: e.Resign}, end, nil // its Header is that of its candidature
}

func (b *ballot) standNative(ctx context.Context, c *client.Client, name, value string) (*term, func(), error) {
	session, err := concurrency.NewSession(ctx, c, concurrency.WithTTL(lockTTL))
	if err != nil {
		return nil, func() {}, err
	}
	e := concurrency.NewElection(session, name)
	end := func() { _ = session.Close() }
	if err := e.Campaign(ctx, value); err != nil {
		return nil, end, err
	}
	return &term{key: e.Key(), token: e.FencingToken(), proclaim: e.Proclaim, resign: e.Resign}, end, nil
}

// standService uses the service Election with a session of the server's.
func (b *ballot) standService(ctx context.Context, name, value string, rng *rand.Rand) (*term, func(), error) {
	conn, err := b.r.conn(candidateName(2), rng.IntN(3))
	if err != nil {
		return nil, func() {}, err
	}
	end := func() { _ = conn.Close() }
	elections := services.NewElectionClient(conn)
	got, err := elections.Campaign(ctx, &electionpb.CampaignRequest{Name: []byte(name), Value: []byte(value), Ttl: int64(lockTTL / time.Second)})
	if err != nil {
		return nil, end, err
	}
	return &term{key: string(got.Leader.Key), token: got.Leader.Rev, header: got.Header.Revision, proclaim: func(ctx context.Context, value string) error {
		_, err := elections.Proclaim(ctx, &electionpb.ProclaimRequest{Leader: got.Leader, Value: []byte(value)})
		return err
	}, resign: func(ctx context.Context) error {
		_, err := elections.Resign(ctx, &electionpb.ResignRequest{Leader: got.Leader})
		return err
	}}, end, nil
}

// saw notes what an observer was told.
func (b *ballot) saw(name string, s history.Sighting) {
	b.r.count("sightings", 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sightings[name] = append(b.sightings[name], s)
}

// observeEtcd observes with etcd's client, which may tell late: what it tells was true at some revision up to that of the answer.
func (b *ballot) observeEtcd(c *clientv3.Client) observer {
	return func(ctx context.Context, name string, _ *rand.Rand) error {
		session, err := etcdconcurrency.NewSession(c, etcdconcurrency.WithTTL(10), etcdconcurrency.WithContext(ctx))
		if err != nil {
			return err
		}
		defer session.Close()
		for r := range etcdconcurrency.NewElection(session, name).Observe(ctx) {
			kv := r.Kvs[0]
			b.saw(name, history.Sighting{
				By: "etcd's client", Key: string(kv.Key), Token: kv.CreateRevision, Value: string(kv.Value), Mod: kv.ModRevision, From: kv.ModRevision, To: r.Header.Revision,
			})
		}
		return ctx.Err()
	}
}

// observeNative observes with our client.
func (b *ballot) observeNative(c *client.Client) observer {
	return func(ctx context.Context, name string, _ *rand.Rand) error {
		o := concurrency.Observe(ctx, c, name)
		for last := int64(0); ; {
			l, err := o.Next()
			if err != nil {
				return err
			}
			if l.Revision < last {
				b.r.violate("our client tells of revision %d of %s after %d", l.Revision, name, last)
			}
			last = l.Revision
			b.saw(name, history.Sighting{
				By: "our client", Key: l.Leader.Key, Token: l.Leader.Token, Value: l.Leader.Value, Mod: l.Revision, From: l.Revision, To: l.Revision,
			})
		}
	}
}

// observeService observes with the service that etcd has, too.
func (b *ballot) observeService(client string) observer {
	return func(ctx context.Context, name string, rng *rand.Rand) error {
		conn, err := b.r.conn(client, rng.IntN(3))
		if err != nil {
			return err
		}
		defer conn.Close()
		stream, err := services.NewElectionClient(conn).Observe(ctx, &electionpb.LeaderRequest{Name: []byte(name)})
		if err != nil {
			return err
		}
		for {
			r, err := stream.Recv()
			if err != nil {
				return err
			}
			b.saw(name, history.Sighting{
				By: "service Election", Key: string(r.Kv.Key), Token: r.Kv.CreateRevision, Value: string(r.Kv.Value), Mod: r.Kv.ModRevision, From: r.Header.Revision, To: r.Header.Revision,
			})
		}
	}
}

// observeServiceOfOurs observes with our service, which tells of times without a leader, too.
func (b *ballot) observeServiceOfOurs(client string) observer {
	return func(ctx context.Context, name string, rng *rand.Rand) error {
		conn, err := b.r.conn(client, rng.IntN(3))
		if err != nil {
			return err
		}
		defer conn.Close()
		stream, err := services.NewElectionsClient(conn).Observe(ctx, &coorddpb.ObserveRequest{Name: []byte(name)})
		if err != nil {
			return err
		}
		for last := int64(0); ; {
			r, err := stream.Recv()
			if err != nil {
				return err
			}
			rev := r.Header.Revision
			if rev < last {
				b.r.violate("service Elections tells of revision %d of %s after %d", rev, name, last)
			}
			last = rev
			if (r.Leader == nil) != (r.Change == coorddpb.LeadershipChange_LEADERSHIP_VACANT) {
				b.r.violate("service Elections tells %v", r)
			}
			s := history.Sighting{By: "service Elections", From: rev, To: rev}
			if r.Leader != nil {
				s.Key, s.Token, s.Value, s.Mod = string(r.Leader.Key), r.Leader.CreateRevision, string(r.Leader.Value), r.Leader.ModRevision
			}
			b.saw(name, s)
		}
	}
}

// check judges the elections.
func (b *ballot) check() {
	for name, all := range b.sightings {
		b.r.check(history.CheckSightings(b.r.ledger, name+"/", all), name)
	}
	for name, all := range b.grants {
		b.r.check(history.CheckGrants(b.r.ledger.Lives(name+"/"), all), name)
	}
}

// scene is played when the faults are over: each kind of candidate is elected, and each kind of observer sees one.
func (b *ballot) scene() {
	name := fmt.Sprintf("%s%d", electionPrefix, lastEpoch)
	ctx, cancel := context.WithTimeout(b.r.ctx, 2*settle)
	defer cancel()
	var watching sync.WaitGroup
	for i, observe := range b.observers {
		watching.Go(func() {
			for rng := b.r.rand(uint64(5200 + i)); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
				_ = observe(ctx, name, rng)
			}
		})
	}
	rng := b.r.rand(5300)
	for kind := range candidates {
		for won := b.won(name); ctx.Err() == nil && b.won(name) == won; {
			b.stand(kind, name, candidateName(kind), rng, b.etcd, b.native)
		}
	}
	for ctx.Err() == nil && b.seeing(name) < len(b.observers) { // who observes must be told of somebody
		b.stand(0, name, candidateName(0), rng, b.etcd, b.native)
	}
	if ctx.Err() != nil {
		b.r.violate("with all members and links whole, %d were elected, and %d observers saw somebody lead", b.won(name), b.seeing(name))
	}
	cancel()
	watching.Wait()
}

// won is how many were elected.
func (b *ballot) won(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.grants[name])
}

// seeing is how many kinds of observers saw somebody lead.
func (b *ballot) seeing(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	by := map[string]bool{}
	for _, s := range b.sightings[name] {
		if s.Key != "" {
			by[s.By] = true
		}
	}
	return len(by)
}
