package sim

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/server"
)

// The tests of this file feed the checkers with histories that are wrong on purpose, and one that is right.

// putEvent is the event of a put.
func putEvent(key, value string, create, mod, version int64) event {
	return event{key: key, cell: cell{Value: value, Create: create, Mod: mod, Version: version}}
}

// wrote is an acknowledged put.
func wrote(client int, call, back time.Duration, key, value string, rev int64) *op {
	return &op{client: client, call: call, back: back, known: true, rev: rev, succeeded: true,
		req: request{then: []action{{kind: put, key: key, value: value}}}, results: []result{{}}}
}

// read is an acknowledged get.
func read(client int, call, back time.Duration, key string, held cell, rev int64) *op {
	return &op{client: client, call: call, back: back, known: true, rev: rev, succeeded: true,
		req: request{then: []action{{kind: get, key: key}}}, results: []result{{cell: held}}}
}

// bench is a cluster without members.
func bench(t *testing.T, changes [][]event, ops ...*op) *cluster {
	t.Helper()
	c := &cluster{begun: time.Now(), history: &history{ops: ops}, ledger: newLedger()}
	c.timeline = &timeline{begun: c.begun}
	for i, events := range changes {
		if err := c.ledger.add(int64(firstRevision+i), events, time.Duration(10*(i+1)), "w"); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// good is three puts and what was told of them.
func good() ([][]event, []*op) {
	first := cell{"1.1", 2, 2, 1, 0}
	return [][]event{
			{putEvent("r/0", "1.1", 2, 2, 1)}, {putEvent("r/0", "2.1", 2, 3, 2)}, {{key: "r/0", tombstone: true, cell: cell{Mod: 4}}},
		}, []*op{
			wrote(1, 5, 10, "r/0", "1.1", 2), read(2, 12, 14, "r/0", first, 2), wrote(2, 15, 20, "r/0", "2.1", 3),
			{client: 1, call: 25, back: 30, known: true, rev: 4, succeeded: true, req: request{then: []action{{kind: remove, key: "r/0"}}}, results: []result{{deleted: 1}}},
		}
}

// judge runs the verdict and gives all it found.
func judge(t *testing.T, c *cluster) string {
	t.Helper()
	r, bad := c.ledger.play()
	for _, err := range bad {
		c.violate("%v", err)
	}
	v := &verdict{c: c, r: r}
	v.check()
	if answer, _ := v.linearize(time.Minute); answer != porcupine.Ok {
		c.violate("porcupine: %v", answer)
	}
	var found []string
	for _, x := range c.violation {
		found = append(found, x.What)
	}
	return strings.Join(found, "\n")
}

func TestVerdict(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(changes [][]event, ops []*op) ([][]event, []*op)
		want   []string
	}{
		"right": {change: func(c [][]event, o []*op) ([][]event, []*op) { return c, o }},
		"an acknowledged put is lost": {
			func(c [][]event, o []*op) ([][]event, []*op) { return c[:1], o[:3] }, []string{"the store's last is 2"}},
		"another put stands at its revision": {
			func(c [][]event, o []*op) ([][]event, []*op) {
				return c, append(o, wrote(3, 15, 25, "r/1", "3.1", 3))
			}, []string{"acknowledged at revision 3, where", "porcupine: Illegal"}},
		"applied twice": {
			func(c [][]event, o []*op) ([][]event, []*op) {
				return append(c, []event{putEvent("r/0", "2.1", 5, 5, 1)}), o
			}, []string{"applied more than once"}},
		"nobody asked": {
			func(c [][]event, o []*op) ([][]event, []*op) {
				return append(c, []event{putEvent("r/0", "9.9", 5, 5, 1)}), o
			}, []string{"for which nobody asked"}},
		"a stale read": {
			func(c [][]event, o []*op) ([][]event, []*op) {
				return c, append(o, read(3, 21, 22, "r/0", cell{"1.1", 2, 2, 1, 0}, 2))
			}, []string{"though revision 3 was answered before it began", "porcupine: Illegal"}},
		"a stale read of a member that has answered more": {
			func(c [][]event, o []*op) ([][]event, []*op) {
				x := read(3, 21, 22, "r/0", cell{"1.1", 2, 2, 1, 0}, 2)
				x.req.serializable = true
				return c, append(o, x)
			}, []string{"though revision 3 was answered before it began"}},
		"a stale read of another member": {
			change: func(c [][]event, o []*op) ([][]event, []*op) {
				x := read(3, 21, 22, "r/0", cell{"1.1", 2, 2, 1, 0}, 2)
				x.req.serializable, x.node = true, new(server.Node)
				return c, append(o, x)
			}},
		"a read of what is not there": {
			func(c [][]event, o []*op) ([][]event, []*op) {
				return c, append(o, read(3, 21, 22, "r/0", cell{"1.1", 2, 2, 1, 0}, 3))
			}, []string{"read r/0 as", "porcupine: Illegal"}},
		"a condition decided wrongly": {
			func(c [][]event, o []*op) ([][]event, []*op) {
				x := read(3, 31, 32, "r/0", cell{}, 4)
				x.req.conds = []compare{{"r/0", "2.1"}}
				return c, append(o, x)
			}, []string{"the conditions hold: false, answered true", "porcupine: Illegal"}},
		"a delete that found nothing": {
			func(c [][]event, o []*op) ([][]event, []*op) {
				o[3].results[0].deleted = 0
				return c, o
			}, []string{"or who asked was told otherwise", "porcupine: Illegal"}},
		"a version that jumps": {
			func(c [][]event, o []*op) ([][]event, []*op) {
				c[1][0].cell.Version = 3
				return c, o
			}, []string{"must have"}},
		"an unknown put that was applied before it was asked for": {
			func(c [][]event, o []*op) ([][]event, []*op) {
				late := wrote(3, 50, 60, "r/1", "3.1", 0)
				late.known = false
				return append(c, []event{putEvent("r/1", "3.1", 5, 5, 1)}), append(o, late)
			}, []string{"began later"}},
	} {
		t.Run(name, func(t *testing.T) {
			changes, ops := good()
			changes, ops = tc.change(changes, ops)
			got := judge(t, bench(t, changes, ops...))
			if len(tc.want) == 0 && got != "" {
				t.Errorf("found %s", got)
			}
			for _, w := range tc.want {
				if !strings.Contains(got, w) {
					t.Errorf("found %q, not %q", got, w)
				}
			}
		})
	}
}

func TestLedgerDisagrees(t *testing.T) {
	changes, _ := good()
	c := bench(t, changes)
	if err := c.ledger.add(2, changes[0], 99, "another"); err != nil {
		t.Error(err)
	}
	if err := c.ledger.add(3, changes[0], 99, "another"); err == nil {
		t.Error("two watchers were told different things, and nobody minds")
	}
}

// eventOf is an event as it comes from a watch.
func eventOf(key string, rev int64) *kvpb.Event {
	return &kvpb.Event{Kv: &kvpb.KeyValue{Key: []byte(key), ModRevision: rev}}
}

func TestSessionSeesByItself(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(s *session) error
		want string
	}{
		"in order":        {func(s *session) error { return s.takeEvents(9, []*kvpb.Event{eventOf("r/0", 7), eventOf("r/1", 7)}) }, ""},
		"again":           {func(s *session) error { return s.takeEvents(9, []*kvpb.Event{eventOf("r/0", 5)}) }, "after all up to 5 was told"},
		"not in order":    {func(s *session) error { return s.takeEvents(9, []*kvpb.Event{eventOf("r/0", 7), eventOf("r/0", 6)}) }, "after all up to 7"},
		"ahead of header": {func(s *session) error { return s.takeEvents(6, []*kvpb.Event{eventOf("r/0", 7)}) }, "under a header"},
		"a foreign key":   {func(s *session) error { return s.takeEvents(9, []*kvpb.Event{eventOf("x", 7)}) }, "does not watch"},
		"progress":        {func(s *session) error { return s.progress(6) }, ""},
		"progress back":   {func(s *session) error { return s.progress(4) }, "after events up to 5"},
		"after progress":  {func(s *session) error { _ = s.progress(8); return s.takeEvents(9, []*kvpb.Event{eventOf("r/0", 8)}) }, "up to 8 was told"},
		"a revision split": {func(s *session) error {
			_ = s.takeEvents(9, []*kvpb.Event{eventOf("r/0", 7)})
			return s.takeEvents(9, []*kvpb.Event{eventOf("r/1", 7)})
		}, "up to 7 was told"},
		"uninvited previous": {func(s *session) error {
			e := eventOf("r/0", 7)
			e.PrevKv = &kvpb.KeyValue{Key: []byte("r/0")}
			return s.takeEvents(9, []*kvpb.Event{e})
		}, "not asked for"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &session{w: &watcher{c: bench(t, nil), prefix: "r/"}, from: 2, seen: 5, created: true}
			err := tc.do(s)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

func TestSessionAgainstLedger(t *testing.T) {
	changes, _ := good()
	c := bench(t, changes)
	r, _ := c.ledger.play()
	all := []told{{event: changes[0][0]}, {event: changes[1][0], hasPrev: true, prev: cell{"1.1", 2, 2, 1, 0}}, {event: changes[2][0], hasPrev: true, prev: cell{"2.1", 2, 3, 2, 0}}}
	never := func(int64, time.Duration) bool { return false }
	for name, tc := range map[string]struct {
		events []told
		want   string
	}{
		"all":             {all, ""},
		"one left out":    {[]told{all[0], all[2]}, "where"},
		"the last missed": {all[:2], "was not told"},
		"one invented":    {append(slices.Clone(all), all[0]), "did not happen"},
		"no previous":     {[]told{all[0], {event: all[1].event}, all[2]}, "without the pair before"},
		"wrong previous":  {[]told{all[0], {event: all[1].event, hasPrev: true}, all[2]}, "as the pair before"},
	} {
		s := &session{w: &watcher{c: c, prevKV: true}, from: 2, seen: 4, events: tc.events}
		err := s.check(r, never)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestLeaseEnds(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		ended     time.Duration // 0 = not
		revoked   bool
		disturbed []time.Duration
		want      string
	}{
		"in time":          {ended: 13 * s},
		"early":            {ended: 11 * s, want: "ended early"},
		"revoked":          {ended: 11 * s, revoked: true},
		"late":             {ended: 16 * s, want: "ended late"},
		"late by a change": {ended: 16 * s, disturbed: []time.Duration{12 * s}},
		"never":            {want: "has not ended"},
	} {
		key := leasePrefix + "1"
		c := bench(t, [][]event{{putEvent(key, "v", 2, 2, 1)}})
		if tc.ended > 0 {
			if err := c.ledger.add(3, []event{{key: key, tombstone: true, cell: cell{Mod: 3}}}, tc.ended, "w"); err != nil {
				t.Fatal(err)
			}
		}
		c.disturbed = tc.disturbed
		r, _ := c.ledger.play()
		h := &holder{c: c, tenures: []*tenure{{id: 1, ttl: 3 * s, key: key, alive: 9 * s, renewed: 10 * s, revoked: tc.revoked}}}
		h.check(r, 60*s)
		got := ""
		for _, v := range c.violation {
			got += v.What
		}
		if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: found %q, want %q", name, got, tc.want)
		}
	}
}

// TestPlanIsTheSeeds: a seed gives the same shape and plan each time, within the time that is there, and
// other seeds give others.
func TestPlanIsTheSeeds(t *testing.T) {
	draw := func(seed uint64) string {
		r := rand.New(rand.NewPCG(seed, 1))
		s := newShape(r, 0)
		plan := Plan(r, s.members, time.Minute)
		for _, f := range plan {
			if f.At+f.For > time.Minute || f.Member >= s.members {
				t.Errorf("seed %d: %v in a cluster of %d", seed, f, s.members)
			}
		}
		return describe(plan)
	}
	first := draw(7)
	if again, other := draw(7), draw(8); again != first || other == first {
		t.Error("the plan is not that of the seed")
	}
}

func TestShrink(t *testing.T) {
	plan := make([]Fault, 20)
	for i := range plan {
		plan[i].Member = i
	}
	has := func(p []Fault, i int) bool {
		return slices.ContainsFunc(p, func(f Fault) bool { return f.Member == i })
	}
	small, runs := shrink(plan, 100, func(p []Fault) bool { return has(p, 3) && has(p, 17) })
	if len(small) != 2 || !has(small, 3) || !has(small, 17) || runs > 100 {
		t.Errorf("%d faults are left after %d runs", len(small), runs)
	}
	if all, runs := shrink(plan, 5, func([]Fault) bool { return false }); len(all) != 20 || runs > 5 {
		t.Errorf("%d faults are left after %d runs", len(all), runs)
	}
}
