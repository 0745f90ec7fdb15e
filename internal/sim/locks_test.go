package sim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/api/coorddpb"
	"github.com/coordd/coordd/api/errs"
)

// The tests of this file feed lockJudge, the resource and the model of locks with histories that are wrong on purpose, and with right ones.

// scene is a history of locks that a test makes, in milliseconds of virtual time. Revision n is seen at 10n.
type scene struct {
	t       *testing.T
	c       *cluster
	b       *lockBook
	version map[string]cell
}

const plain = lockPrefix + "plain"

func newScene(t *testing.T) *scene {
	c := bench(t, nil)
	return &scene{t, c, &lockBook{c: c, resources: map[string]*resource{}, settled: never, stopped: never}, map[string]cell{}}
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func (s *scene) next() int64 { return s.c.ledger.complete() + 1 }

// put makes the next revision, which puts a place.
func (s *scene) put(name string, lease int64, value string) int64 {
	key, rev := fmt.Sprintf("%s/%x", name, lease), s.next()
	x := cell{value, rev, rev, 1, lease}
	if was := s.version[key]; was.Version > 0 {
		x.Create, x.Version = was.Create, was.Version+1
	}
	s.version[key] = x
	s.add(rev, event{key: key, cell: x})
	return rev
}

// remove makes the next revision, which deletes a place.
func (s *scene) remove(name string, lease int64) int64 {
	key, rev := fmt.Sprintf("%s/%x", name, lease), s.next()
	delete(s.version, key)
	s.add(rev, event{key: key, tombstone: true, cell: cell{Mod: rev}})
	return rev
}

func (s *scene) add(rev int64, e event) {
	s.t.Helper()
	if err := s.c.ledger.add(rev, []event{e}, ms(int(rev)*10), "w"); err != nil {
		s.t.Fatal(err)
	}
}

// asks is a claim from call to back, in the way of a call of Lock, with a lease that lasts until alive.
func (s *scene) asks(lease int64, call, back, alive int) *claim {
	x := &bond{id: lease, ttl: time.Second, alive: ms(alive), freed: never, ended: never}
	for _, old := range s.b.bonds {
		if old.id == lease {
			x = old
		}
	}
	k := &claim{
		by: fmt.Sprintf("asker %d", lease), name: plain, way: byCall, bond: x,
		call: ms(call), back: ms(back), left: never, lost: never, ends: never, upright: true, store: int64(back / 10),
	}
	s.b.bonds, s.b.claims = append(s.b.bonds, x), append(s.b.claims, k)
	return k
}

// holds is a claim that was told that it holds the lock with a token since a revision.
func (s *scene) holds(lease int64, call, back, alive int, token, rev int64) *claim {
	k := s.asks(lease, call, back, alive)
	k.known, k.held, k.heldAt, k.token, k.rev, k.until = true, true, k.back, token, rev, ms(alive)
	k.key = fmt.Sprintf("%s/%x", k.name, lease)
	return k
}

// gives is an answered release.
func (s *scene) gives(k *claim, token int64, call, back int, rev int64) *release {
	x := &release{by: k.by, name: k.name, key: k.key, token: token, call: ms(call), back: ms(back), known: true, rev: rev}
	s.b.releases = append(s.b.releases, x)
	return x
}

// found is all that the judge and porcupine find.
func (s *scene) found() string {
	r, bad := s.c.ledger.play()
	for _, err := range bad {
		s.t.Fatal(err)
	}
	newLockJudge(s.b, r, func(int64, time.Duration) bool { return false }).check()
	broken, _ := s.b.linearize(time.Minute)
	var out []string
	for _, v := range append(s.c.violation, broken...) {
		out = append(out, v.What)
	}
	return strings.Join(out, "\n")
}

// handOver is one holder who gives the lock to one that waits: places of leases 1 and 2 at revisions 2 and 3, given back at 4 and 5.
func handOver(s *scene) (first, second *claim) {
	s.put(plain, 1, "")
	s.put(plain, 2, "")
	s.remove(plain, 1)
	s.remove(plain, 2)
	first, second = s.holds(1, 10, 21, 900, 2, 2), s.holds(2, 25, 42, 900, 3, 4)
	s.gives(first, 2, 39, 41, 4)
	s.gives(second, 3, 49, 51, 5)
	return first, second
}

func TestLockJudge(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(s *scene)
		want []string // empty = nothing is found
	}{
		"right": {do: func(s *scene) { handOver(s) }},
		"told before its turn": {func(s *scene) {
			_, second := handOver(s)
			second.rev, second.back, second.heldAt = 3, ms(31), ms(31)
		}, []string{"told that it holds at revision 3, where [2] held", "no order explains who was told to hold"}},
		"told when its place was gone": {func(s *scene) {
			_, second := handOver(s)
			second.rev = 5
		}, []string{"where its place was not there"}},
		"told of a place that never was": {func(s *scene) {
			handOver(s)
			s.holds(7, 60, 61, 900, 5, 5)
		}, []string{"where its place was not there"}},
		"one token for two": {func(s *scene) {
			handOver(s)
			s.holds(9, 25, 43, 900, 3, 4).key = plain + "/2"
		}, []string{"was given to two"}},
		"a place for which nobody asked": {func(s *scene) {
			handOver(s)
			s.put(plain, 7, "")
			s.remove(plain, 7)
		}, []string{"for which nobody asked"}},
		"a place of another kind than asked": {func(s *scene) {
			handOver(s)
			s.asks(7, 50, 75, 0).err = "cancelled"
			s.put(plain, 7, "\x00coordd-lock shared")
			s.remove(plain, 7)
		}, []string{"for which nobody asked"}},
		"in the queue at the end": {func(s *scene) {
			handOver(s)
			s.asks(7, 50, 75, 0).err, s.b.claims[2].upright = "cancelled", false
			s.put(plain, 7, "")
		}, []string{"still in its queue at the end"}},
		"a waiter that gave up leaves its place": {func(s *scene) {
			handOver(s)
			s.asks(7, 50, 65, 0).err = "cancelled"
			s.put(plain, 7, "")
			s.remove(plain, 7)
		}, []string{"its place of revision 6 is still there"}},
		"who gave up leaves its place, and ran out of time": {func(s *scene) {
			handOver(s)
			s.asks(7, 50, 65, 0).err = context.DeadlineExceeded.Error() // its write is waited for all the same
			s.put(plain, 7, "")
			s.remove(plain, 7)
		}, []string{"its place of revision 6 is still there"}},
		"who was told that the leader is lost": {func(s *scene) {
			handOver(s)
			s.asks(7, 50, 65, 0).err = errs.ErrLeaderChanged.Error() // not an outcome of writing
			s.put(plain, 7, "")
			s.remove(plain, 7)
		}, []string{"its place of revision 6 is still there"}},
		"whose write has an unknown outcome leaves its place": {do: func(s *scene) {
			handOver(s)
			s.asks(7, 50, 65, 0).err = errs.ErrTimeoutDueToLeaderFail.Error()
			s.put(plain, 7, "")
			s.remove(plain, 7)
		}},
		"a write with an unknown outcome comes when the next call has begun, which writes the place, too": {do: func(s *scene) {
			handOver(s)
			s.asks(7, 20, 45, 0).err = errs.ErrStopped.Error()
			s.asks(7, 50, 75, 0).err = "cancelled"
			s.put(plain, 7, "")
			s.put(plain, 7, "")
			s.remove(plain, 7)
		}},
		"a transaction by hand that nobody heard of comes when the next call has begun": {do: func(s *scene) {
			handOver(s)
			s.asks(7, 20, 45, 0).err, s.b.claims[2].way = context.DeadlineExceeded.Error(), byHand
			s.asks(7, 50, 65, 0).err = context.DeadlineExceeded.Error()
			s.put(plain, 7, "")
			s.remove(plain, 7)
		}},
		"what a member wrote that lost power is seen when the next call has begun": {do: func(s *scene) {
			handOver(s)
			s.asks(7, 20, 45, 0).err, s.b.claims[2].upright = "cancelled", false
			s.asks(7, 50, 65, 0).err = "busy"
			s.put(plain, 7, "")
			s.remove(plain, 7)
		}},
		"a waiter that gave up takes its place along": {do: func(s *scene) {
			handOver(s)
			s.asks(7, 50, 75, 0).err = "cancelled"
			s.put(plain, 7, "")
			s.remove(plain, 7)
		}},
		"a late release deletes a later place": {func(s *scene) {
			handOver(s)
			s.put(plain, 1, "")
			s.holds(1, 55, 61, 900, 6, 6)
			s.gives(s.b.claims[0], 2, 65, 71, 7) // the token of the first time
			s.remove(plain, 1)
		}, []string{"with token 6 is deleted at 0.0700s. Nobody gave it back"}},
		"a late release deletes nothing": {do: func(s *scene) {
			handOver(s)
			s.gives(s.b.claims[0], 2, 55, 56, 5)
		}},
		"a release that did not happen": {func(s *scene) {
			first, _ := handOver(s)
			s.gives(first, 2, 26, 31, 3)
		}, []string{"the place with token 2 is still there"}},
		"a lease that ends early": {func(s *scene) {
			handOver(s)
			s.put(plain, 7, "")
			s.holds(7, 55, 61, 80, 6, 6)
			s.remove(plain, 7)
		}, []string{"its lease lasts until 0.0800s"}},
		"a lease that ends in time": {do: func(s *scene) {
			handOver(s)
			s.put(plain, 7, "")
			s.holds(7, 55, 61, 70, 6, 6)
			s.remove(plain, 7)
		}},
		"a lease that was revoked": {do: func(s *scene) {
			handOver(s)
			s.put(plain, 7, "")
			s.holds(7, 55, 61, 80, 6, 6).bond.freed = ms(65)
			s.remove(plain, 7)
		}},
		"two at once, by the clock": {func(s *scene) {
			// The ledger has it right, but the second is told before the first gives back or can have lost it.
			first, second := handOver(s)
			second.back, second.heldAt = ms(35), ms(35)
			s.b.releases[0].call = ms(38)
			first.until = ms(900)
		}, []string{"no order explains who was told to hold"}},
		"a token that is older than what was answered": {func(s *scene) {
			_, second := handOver(s)
			second.call = ms(60)
			second.back, second.heldAt = ms(70), ms(70)
		}, []string{"its place is of revision 3 though revision 5 was answered before it asked"}},
		"busy while nobody is there": {func(s *scene) {
			handOver(s)
			k := s.asks(7, 60, 61, 0)
			k.way, k.known, k.rev = byTry, true, 5
		}, []string{"nobody was there"}},
		"busy while somebody holds": {do: func(s *scene) {
			handOver(s)
			k := s.asks(7, 22, 24, 0)
			k.way, k.known, k.rev = byTry, true, 3
		}},
		"a stream that calls a place gone that is there": {func(s *scene) {
			first, _ := handOver(s)
			first.way, first.back, first.store = byStream, ms(45), 4
			first.lost, first.lostAt, first.reason = ms(31), 3, coorddpb.HoldReason_HOLD_REASON_REPLACED.String()
		}, []string{"told at revision 3 that its place is gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			tc.do(s)
			expect(t, s.found(), tc.want)
		})
	}
}

// TestLasts: who says what a lease has left counts by his own clock since he last heard of it, and the lease ends by the leader's, which
// may be the fastest.
func TestLasts(t *testing.T) {
	even := shape{ticks: []time.Duration{ms(100), ms(100), ms(100)}}
	skewed := shape{ticks: []time.Duration{ms(96), ms(116), ms(89)}}
	for name, tc := range map[string]struct {
		shape shape
		own   time.Duration // time to live of the asker's own lease, 0 = a session
		asked int64         // that of the session
		ttl   time.Duration // what it is
	}{
		"even clocks":                 {even, 5 * time.Second, 0, 5 * time.Second},
		"a session, even clocks":      {even, 0, 3, 3 * time.Second},
		"other clocks":                {skewed, 5 * time.Second, 0, 5 * time.Second},
		"a session":                   {skewed, 0, 2, 2 * time.Second},
		"a session of the least":      {skewed, 0, 1, 2 * time.Second},
		"a lease that lives for long": {skewed, 25 * time.Second, 0, 25 * time.Second},
	} {
		k := &contender{c: &cluster{shape: tc.shape}}
		x := &claim{bond: &bond{ttl: tc.own}}
		_, fastest := tc.shape.rates()
		ends, least := time.Duration(float64(tc.ttl)/fastest), tc.shape.shortest(tc.ttl)
		for passed := time.Duration(0); passed < tc.ttl; passed += ms(10) {
			got := k.lasts(x, tc.asked, passed, (tc.ttl - passed).Milliseconds())
			if got > ends || got < least {
				t.Fatalf("%s: a lease of %v that has %v left, renewed %v ago, is taken to last until %v after that; the leader's clock makes that %v, a change of leader %v",
					name, tc.ttl, tc.ttl-passed, passed, got, ends, least)
			}
		}
		if got := k.lasts(x, tc.asked, time.Minute, 0); got != 0 {
			t.Errorf("%s: a lease that may have nothing left is taken to last until %v", name, got)
		}
	}
}

// expect compares what was found with what must be.
func expect(t *testing.T, got string, want []string) {
	t.Helper()
	if len(want) == 0 && got != "" {
		t.Errorf("found %s", got)
	}
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("found %q, not %q", got, w)
		}
	}
}

// TestLockJudgeIsPatient: waiters must be told in time, but only if nothing disturbs.
func TestLockJudgeIsPatient(t *testing.T) {
	const late = 12200 // longer than tellWithin after revision 4, at 40
	for name, tc := range map[string]struct {
		until     int
		disturbed int
		gone      bool
		err       error // nil = cancelled
		want      []string
	}{
		"its turn, and nobody tells":           {until: late, want: []string{"it is its turn since 0.0400s"}},
		"its turn, for a short time":           {until: 900},
		"its turn, but a fault has just begun": {until: late, disturbed: 900},
		"gone, and nobody tells":               {until: late + 100, gone: true, want: []string{"its place is gone since 0.0500s"}},
		"gone, and the member stops late":      {until: late + 100, gone: true, err: errs.ErrStopped, want: []string{"its place is gone since 0.0500s"}},
		"gone, and its write has no result":    {until: late + 100, gone: true, err: errs.ErrTimeoutDueToLeaderFail},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.put(plain, 1, "")
			s.put(plain, 2, "")
			s.remove(plain, 1)
			first := s.holds(1, 10, 21, 900, 2, 2)
			s.gives(first, 2, 39, 41, 4)
			k := s.asks(2, 25, tc.until, 9000)
			k.err, k.upright = "cancelled", false
			if tc.err != nil {
				k.err = tc.err.Error()
			}
			if tc.gone {
				s.remove(plain, 2)
			} else {
				s.add(5, event{key: "r/0", cell: cell{"v", 5, 5, 1, 0}})
				if err := s.c.ledger.add(6, []event{{key: plain + "/2", tombstone: true, cell: cell{Mod: 6}}}, ms(tc.until), "w"); err != nil {
					t.Fatal(err)
				}
			}
			if tc.disturbed > 0 {
				s.c.disturbed = []time.Duration{ms(tc.disturbed)}
			}
			expect(t, s.found(), tc.want)
		})
	}
}

// TestWhoHolds: queues of all kinds, and who holds in them.
func TestWhoHolds(t *testing.T) {
	const mark = "\x00coordd-lock"
	for name, tc := range map[string]struct {
		values  []string // of leases 1, 2, …
		holders int
	}{
		"exclusive":                      {[]string{"", ""}, 1},
		"shared, then exclusive":         {[]string{mark + " shared", mark + " shared", "", mark + " shared"}, 2},
		"exclusive, then shared":         {[]string{"", mark + " shared"}, 1},
		"a semaphore":                    {[]string{mark + " limit=2", mark + " limit=2", mark + " limit=2"}, 2},
		"a semaphore that is not shared": {[]string{mark + " limit=2", ""}, 1},
		"a guard of one that is gone":    {[]string{mark + " guards=63", ""}, 1},
		"a candidate's words":            {[]string{"shared", "limit=2"}, 1},
	} {
		s := newScene(t)
		for i, v := range tc.values {
			s.put(plain, int64(i+1), v)
		}
		r, _ := s.c.ledger.play()
		holders, waiters := split(lockQueues(r)[plain].all(r.last))
		if len(holders) != tc.holders || len(holders)+len(waiters) != len(tc.values) {
			t.Errorf("%s: %v hold, %v wait", name, tokens(holders), tokens(waiters))
		}
	}
	s := newScene(t)
	at := s.next()
	if err := s.c.ledger.add(at, []event{
		{key: plain + "/1", cell: cell{mark + " guard=2", at, at, 1, 1}}, {key: plain + "/2", cell: cell{mark + " guards=1", at, at, 1, 2}},
	}, 1, "w"); err != nil {
		t.Fatal(err)
	}
	s.remove(plain, 1)
	r, _ := s.c.ledger.play()
	q := lockQueues(r)[plain]
	if all := q.all(at); len(all) != 1 || all[0].cell.Lease != 1 {
		t.Errorf("a guard of a place that is there stands in the queue: %v", all)
	}
	if q.holds(at, at+1) || len(q.all(at+1)) != 1 {
		t.Errorf("a guard of a place that is gone does not stand in the queue, or holds the lock: %v", q.all(at+1))
	}
}

func TestListIsJudged(t *testing.T) {
	for name, tc := range map[string]struct {
		list lockList
		want []string
	}{
		"right":       {lockList{rev: 3, holders: []int64{2}, waiters: []int64{3}}, nil},
		"a turn":      {lockList{rev: 3, holders: []int64{3}, waiters: []int64{2}}, []string{"[2] hold and [3] wait"}},
		"one missing": {lockList{rev: 3, holders: []int64{2}}, []string{"[2] hold and [3] wait"}},
		"stale":       {lockList{rev: 3, call: ms(60), holders: []int64{2}, waiters: []int64{3}}, []string{"the newest before was 5"}},
		"may be":      {lockList{rev: 3, call: ms(60), stale: true, holders: []int64{2}, waiters: []int64{3}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			handOver(s)
			tc.list.name = plain
			s.b.lists = append(s.b.lists, &tc.list)
			expect(t, s.found(), tc.want)
		})
	}
}

func TestResource(t *testing.T) {
	s := newScene(t)
	first, second := handOver(s)
	for _, x := range []struct {
		by   *claim
		want bool
	}{{first, true}, {second, true}, {first, false}, {second, true}} {
		if got := s.b.write(x.by); got != x.want {
			t.Errorf("a write with token %d is accepted: %v", x.by.token, got)
		}
	}
	expect(t, s.found(), nil)
	s.b.resources[plain].writes[2].accepted = true
	expect(t, s.found(), []string{"token 2 is accepted after 3"})

	s = newScene(t)
	first, second = handOver(s)
	second.rev = 3 // it was told so while the first held
	s.b.write(second)
	s.b.write(first)
	expect(t, s.found(), []string{"token 2, which holds the lock, is refused because of 3"})
}
