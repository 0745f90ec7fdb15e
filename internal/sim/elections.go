package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"

	"github.com/coordd/coordd/api/coorddpb"
	"github.com/coordd/coordd/api/electionpb"
	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/server/lock"
	"github.com/coordd/coordd/server/rpc"
)

// electionName is the one election of a run.
const electionName = electionPrefix + "chief"

// speech is one Proclaim.
type speech struct {
	by         *claim
	member     int
	value      string
	call, back time.Duration
	known      bool
	accepted   bool // else it was told that it does not lead
	rev        int64
	err        string
}

func (x *speech) String() string {
	s := fmt.Sprintf("%s at m%d, %.4fs to %.4fs: proclaim %q with token %d", x.by.by, x.member+1, x.call.Seconds(), x.back.Seconds(), x.value, x.by.token)
	switch {
	case x.known && x.accepted:
		return s + fmt.Sprintf(" → done at revision %d", x.rev)
	case x.known:
		return s + " → does not lead"
	}
	return s + " → no answer: " + x.err
}

// leaderQuery is one answered question who leads.
type leaderQuery struct {
	by         string
	member     int
	call, back time.Duration
	rev        int64 // at which that was so; when nobody leads, the member's after the answer
	leader     head
}

func (x *leaderQuery) String() string {
	return fmt.Sprintf("%s at m%d, %.4fs to %.4fs: who leads → %v at revision %d", x.by, x.member+1, x.call.Seconds(), x.back.Seconds(), x.leader, x.rev)
}

// head is who leads an election: the first key of its queue. The zero value is nobody.
type head struct {
	key  string
	cell cell
}

func (h head) String() string {
	if h.key == "" {
		return "nobody"
	}
	return fmt.Sprintf("%s=%q of revision %d, changed at %d", h.key, h.cell.Value, h.cell.Create, h.cell.Mod)
}

func headOf(kv *kvpb.KeyValue) head {
	if kv == nil {
		return head{}
	}
	return head{string(kv.Key), cellOf(kv)}
}

// candidate stands for election, speaks while it leads, and sometimes when it does not lead any more.
type candidate struct {
	*contender
}

func (k *candidate) run() {
	defer k.drop()
	for n := 1; k.c.stop.Err() == nil; n++ {
		pause(k.c.stop, k.upTo(800*time.Millisecond))
		switch p := k.rng.IntN(100); {
		case p < 10 && len(k.old) > 0:
			k.resign(k.old[k.rng.IntN(len(k.old))])
		case p < 20 && len(k.old) > 0:
			k.proclaim(k.old[k.rng.IntN(len(k.old))], fmt.Sprintf("%s late %d", k.name, n))
		case p < 35:
			k.who()
		default:
			if k.line(false) {
				x := &claim{by: k.name, name: electionName, way: byVote, bond: k.own.bond, value: fmt.Sprintf("%s term %d", k.name, n)}
				k.ask(x, k.campaign())
				k.lead(x, n)
			}
		}
	}
}

// campaign is a call of Campaign.
func (k *candidate) campaign() asking {
	ttl := k.sessionTTL()
	return func(ctx context.Context, s served, x *claim, l *lifeline) error {
		r, err := s.locks.Campaign(ctx, lock.Connection{Alive: l.alive}, &electionpb.CampaignRequest{
			Name: []byte(x.name), Lease: l.id, Value: []byte(x.value), Ttl: ttl,
		})
		if err != nil {
			return err
		}
		k.book.change(func() {
			x.held, x.key, x.token, x.rev = true, string(r.Leader.Key), r.Leader.Rev, r.Header.Revision
			x.until = k.lasts(x, ttl, k.c.now(), r.RemainingTtlMs)
			x.bond.named(r.Leader.Lease)
		})
		return nil
	}
}

// lead is what a candidate does once it is elected.
func (k *candidate) lead(x *claim, n int) {
	held := false
	k.book.change(func() { held = x.known && x.held })
	if !held {
		if k.own != nil && k.own.ttl == 0 || k.rng.IntN(2) == 0 {
			k.drop()
		}
		return
	}
	if before := k.before(x); before != nil && k.rng.IntN(2) == 0 {
		k.resign(before)
	}
	k.old = append(k.old, x)
	for i := range k.rng.IntN(4) {
		k.book.write(x)
		k.proclaim(x, fmt.Sprintf("%s term %d speech %d", k.name, n, i+1))
		pause(k.c.stop, k.upTo(400*time.Millisecond))
	}
	switch p := k.rng.IntN(10); {
	case p < 5:
		k.resign(x)
	case p < 7:
		k.revoke()
		k.drop()
	case p < 9: // cut off; it does not know that, and goes on
		k.drop()
		for end := k.c.now() + k.upTo(6*time.Second); k.c.now() < end && k.book.write(x) && k.c.stop.Err() == nil; {
			pause(k.c.stop, k.upTo(600*time.Millisecond))
		}
	}
	if k.own != nil && k.own.ttl == 0 {
		k.drop()
	}
}

// leaderKey is the proof of a leadership.
func leaderKey(x *claim) *electionpb.LeaderKey {
	return &electionpb.LeaderKey{Name: []byte(x.name), Key: []byte(x.key), Rev: x.token, Lease: x.bond.id}
}

func (k *candidate) proclaim(x *claim, value string) {
	s, ok := k.c.pickLocks(k.rng)
	if !ok {
		return
	}
	ctx, cancel := within(k.c.stop, s.life, 2*time.Second)
	defer cancel()
	sp := &speech{by: x, member: s.i, value: value, call: k.c.now(), back: never}
	k.book.change(func() { k.book.speeches = append(k.book.speeches, sp) })
	k.c.awake(ctx, s.i)
	r, err := s.locks.Proclaim(ctx, &electionpb.ProclaimRequest{Leader: leaderKey(x), Value: []byte(value)})
	k.c.awake(ctx, s.i)
	k.book.change(func() {
		sp.back = k.c.now()
		switch {
		case ctx.Err() != nil:
			sp.err = "the answer came too late"
		case err == nil:
			sp.known, sp.accepted, sp.rev = true, true, r.Header.Revision
		case errors.Is(err, errs.ErrElectionNotLeader):
			sp.known = true
		default:
			sp.err = err.Error()
		}
	})
}

func (k *candidate) resign(x *claim) {
	s, ok := k.c.pickLocks(k.rng)
	if !ok {
		return
	}
	ctx, cancel := within(k.c.stop, s.life, 2*time.Second)
	defer cancel()
	rel := k.book.release(k.name, s.i, x, x.token)
	k.c.awake(ctx, s.i)
	r, err := s.locks.Resign(ctx, &electionpb.ResignRequest{Leader: leaderKey(x)})
	k.c.awake(ctx, s.i)
	var rev int64
	if err == nil {
		rev, err = r.Header.Revision, ctx.Err()
	}
	k.book.done(rel, rev, err)
}

// who asks who leads.
func (k *candidate) who() {
	s, ok := k.c.pickLocks(k.rng)
	if !ok {
		return
	}
	ctx, cancel := within(k.c.stop, s.life, 2*time.Second)
	defer cancel()
	q := &leaderQuery{by: k.name, member: s.i, call: k.c.now()}
	k.c.awake(ctx, s.i)
	r, err := s.locks.Leader(ctx, &electionpb.LeaderRequest{Name: []byte(electionName)})
	k.c.awake(ctx, s.i)
	if ctx.Err() != nil || err != nil && !errors.Is(err, errs.ErrElectionNoLeader) {
		return
	}
	q.back, q.rev = k.c.now(), s.node.Revision()
	if err == nil {
		q.rev, q.leader = r.Header.Revision, headOf(r.Kv)
	}
	k.book.change(func() { k.book.queries = append(k.book.queries, q) })
}

// electionObserver observes the election for the whole run, on one member after the other, by the v3 API's stream or by the native one.
type electionObserver struct {
	c    *cluster
	book *lockBook
	name string
	rng  *rand.Rand
}

func newElectionObserver(b *lockBook, i int) *electionObserver {
	return &electionObserver{b.c, b, fmt.Sprintf("observer %d", i+1), rand.New(rand.NewPCG(b.c.seed, uint64(70000+i)))}
}

// observation is one stream: what it told from its call on.
type observation struct {
	by         string
	member     int
	native     bool // it also tells when nobody leads
	call, back time.Duration
	told       []leadership
}

func (x *observation) String() string {
	form := "v3"
	if x.native {
		form = "native"
	}
	return fmt.Sprintf("%s at m%d, %.4fs to %.4fs (%s)", x.by, x.member+1, x.call.Seconds(), x.back.Seconds(), form)
}

// leadership is one message of an observation.
type leadership struct {
	at      time.Duration
	rev     int64
	leader  head
	elected bool // of the native stream only
}

func (o *electionObserver) run() {
	for o.c.stop.Err() == nil {
		s, ok := o.c.pickLocks(o.rng)
		if !ok {
			pause(o.c.stop, 20*time.Millisecond)
			continue
		}
		ctx, cancel := within(o.c.stop, s.life, time.Duration(200+o.rng.IntN(9000))*time.Millisecond)
		x := &observation{by: o.name, member: s.i, native: o.rng.IntN(2) == 0, call: o.c.now()}
		o.c.awake(ctx, s.i)
		if x.native {
			_ = rpc.NewElections(s.locks.Service, s.node).Observe(&coorddpb.ObserveRequest{Name: []byte(electionName)}, &nativeStream{ear: ear{ctx, o, x}})
		} else {
			_ = rpc.NewElection(s.locks.Service, s.node).Observe(&electionpb.LeaderRequest{Name: []byte(electionName)}, &v3Stream{ear: ear{ctx, o, x}})
		}
		x.back = o.c.now()
		cancel()
		o.book.change(func() { o.book.observers = append(o.book.observers, x) })
		if x.back == x.call {
			breathe(o.c.stop)
		}
	}
}

// ear is the end of a stream that an observer listens to.
type ear struct {
	ctx context.Context
	o   *electionObserver
	x   *observation
}

// add writes down a message. Some observers are slow.
func (t ear) add(rev int64, leader head, elected bool) error {
	t.o.c.awake(t.ctx, t.x.member)
	if t.ctx.Err() != nil {
		return t.ctx.Err()
	}
	t.x.told = append(t.x.told, leadership{t.o.c.now(), rev, leader, elected})
	if t.o.rng.IntN(4) == 0 {
		pause(t.ctx, time.Duration(t.o.rng.IntN(300))*time.Millisecond)
	}
	return nil
}

// nativeStream takes what the native Observe sends.
type nativeStream struct {
	grpc.ServerStream
	ear
}

func (s *nativeStream) Context() context.Context { return s.ear.ctx }

func (s *nativeStream) Send(m *coorddpb.ObserveResponse) error {
	return s.ear.add(m.Header.Revision, headOf(m.Leader), m.Change == coorddpb.LeadershipChange_LEADERSHIP_ELECTED)
}

// v3Stream takes what the Observe of the v3 API sends.
type v3Stream struct {
	grpc.ServerStream
	ear
}

func (s *v3Stream) Context() context.Context { return s.ear.ctx }

func (s *v3Stream) Send(m *electionpb.LeaderResponse) error {
	return s.ear.add(m.Header.Revision, headOf(m.Kv), false)
}
