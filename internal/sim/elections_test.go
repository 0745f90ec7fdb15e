package sim

import (
	"strings"
	"testing"
	"time"
)

// reign is one leader who speaks once and resigns, a time without leader, and another leader: revisions 2, 3, 4 and 5, 6.
func reign(s *scene) (first, second *claim) {
	s.put(electionName, 1, "a")
	s.put(electionName, 1, "b")
	s.remove(electionName, 1)
	s.put(electionName, 2, "c")
	s.remove(electionName, 2)
	first, second = s.holds(1, 10, 21, 900, 2, 2), s.holds(2, 45, 51, 900, 5, 5)
	for k, value := range map[*claim]string{first: "a", second: "c"} {
		k.name, k.way, k.value = electionName, byVote, value
		k.key = electionName + k.key[len(plain):]
	}
	s.b.speeches = append(s.b.speeches, &speech{by: first, value: "b", call: ms(25), back: ms(31), known: true, accepted: true, rev: 3})
	s.gives(first, 2, 39, 41, 4)
	s.gives(second, 5, 59, 61, 6)
	return first, second
}

func (s *scene) head(lease, create, mod, version int64, value string) head {
	return head{electionName + "/" + string('0'+byte(lease)), cell{value, create, mod, version, lease}}
}

func TestElectionJudge(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(s *scene, first, second *claim)
		want []string
	}{
		"right":              {do: func(*scene, *claim, *claim) {}},
		"a speech of nobody": {func(s *scene, _, _ *claim) { s.b.speeches = nil }, []string{"which nobody with that token proclaimed"}},
		"a speech with the token of another": {func(s *scene, _, second *claim) { s.b.speeches[0].by = second },
			[]string{"which nobody with that token proclaimed", "the election was led by"}},
		"a speech that was refused is held": {func(s *scene, _, _ *claim) { s.b.speeches[0].accepted = false },
			[]string{"whose speaker was told otherwise"}},
		"a speech that is answered and not held": {func(s *scene, first, _ *claim) {
			s.b.speeches = append(s.b.speeches, &speech{by: first, value: "x", call: ms(41), back: ms(42), known: true, accepted: true, rev: 4})
		}, []string{"at revision 4 the election was led by nobody"}},
		"proclaimed twice": {func(s *scene, _, second *claim) {
			s.put(electionName, 2, "c")
			s.remove(electionName, 2)
			s.gives(second, 7, 75, 81, 8)
			k := s.holds(2, 62, 71, 900, 7, 7)
			k.name, k.way, k.value, k.key = electionName, byVote, "c", second.key
		}, []string{`"c" was proclaimed once and stands at revisions [5 7]`}},
		"a leader who does not lead": {func(s *scene, _, _ *claim) {
			s.b.queries = append(s.b.queries, &leaderQuery{call: ms(46), back: ms(47), rev: 4, leader: s.head(1, 2, 3, 2, "b")})
		}, []string{"at revision 4 the election was led by nobody"}},
		"a leader of the past": {func(s *scene, _, _ *claim) {
			s.b.queries = append(s.b.queries, &leaderQuery{call: ms(46), back: ms(47), rev: 3, leader: s.head(1, 2, 3, 2, "b")})
		}, []string{"the newest before was 4"}},
		"no leader while somebody leads": {func(s *scene, _, _ *claim) {
			s.b.queries = append(s.b.queries, &leaderQuery{call: ms(32), back: ms(33), rev: 3})
		}, []string{"somebody led at all revisions from 3 to 3"}},
		"no leader while nobody leads": {do: func(s *scene, _, _ *claim) {
			s.b.queries = append(s.b.queries, &leaderQuery{call: ms(42), back: ms(43), rev: 4})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			first, second := reign(s)
			tc.do(s, first, second)
			expect(t, s.found(), tc.want)
		})
	}
}

func TestObservationJudge(t *testing.T) {
	s := newScene(t)
	a, b, c := s.head(1, 2, 2, 1, "a"), s.head(1, 2, 3, 2, "b"), s.head(2, 5, 5, 1, "c")
	all := []leadership{{ms(21), 2, a, true}, {ms(31), 3, b, false}, {ms(41), 4, head{}, false}, {ms(51), 5, c, true}, {ms(61), 6, head{}, false}}
	leaders := []leadership{all[0], all[1], all[3]}
	for name, tc := range map[string]struct {
		native     bool
		told       []leadership
		call, back int
		want       []string
	}{
		"native, all":        {native: true, told: all},
		"v3, all":            {told: leaders},
		"v3, from the pause": {told: leaders[2:], call: 41},
		"native, a speech is missing": {native: true, told: []leadership{all[0], all[2], all[3]},
			want: []string{"not told of revision 3"}},
		"native, a vacancy is missing": {native: true, told: []leadership{all[0], all[1], all[3]},
			want: []string{"not told of revision 4, since which nobody led"}},
		"v3, a vacancy is told":    {told: all[:3], want: []string{"which the stream has no form for"}},
		"v3, a leader is missing":  {told: []leadership{leaders[1], leaders[0]}, want: []string{"told of revision 2 after 3"}},
		"one who does not lead":    {told: []leadership{all[0], all[1], {ms(41), 4, b, false}}, want: []string{"told that since revision 4", "it was nobody"}},
		"first who does not lead":  {told: []leadership{{ms(41), 4, b, false}}, want: []string{"told first that at revision 4"}},
		"the wrong value":          {told: []leadership{{ms(31), 3, a, true}}, want: []string{"told first that at revision 3"}},
		"twice":                    {told: []leadership{all[0], all[1], all[1]}, want: []string{"told of revision 3 after 3"}},
		"elected, but the same":    {native: true, told: []leadership{all[0], {ms(31), 3, b, true}}, want: []string{"as elected: true"}},
		"not elected, but another": {native: true, told: []leadership{all[2], {ms(51), 5, c, false}}, want: []string{"as elected: false"}},
		"older than what is known": {native: true, told: all, call: 55, want: []string{"told first of revision 2, though revision 5 was answered"}},
		"silent, but briefly":      {told: leaders[:2], back: 900},
		"silent for long":          {told: leaders[:2], back: 12900, want: []string{"not told that since revision 5"}},
		"silent from the begin":    {native: true, back: 12900, want: []string{"not told that since revision 6"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			reign(s)
			if tc.back > 0 && !tc.native { // the second leads for long
				s = newScene(t)
				_, second := reign(s)
				s.b.releases = s.b.releases[:1]
				second.bond.alive = 0
				second.until = 0
				last := s.c.ledger.changes[6]
				last.seen = ms(tc.back)
				s.c.ledger.changes[6] = last
			}
			x := &observation{by: "observer", native: tc.native, call: ms(tc.call), back: ms(max(tc.back, 100)), told: tc.told}
			s.b.observers = append(s.b.observers, x)
			expect(t, s.found(), tc.want)
		})
	}
}

// TestObservationAfterCompaction: when a compaction has taken what a member had not got, it reads the election anew, and tells how things are
// at the revision of that look, which need not be one of a change. Without a compaction in the way nothing is told so.
func TestObservationAfterCompaction(t *testing.T) {
	for compacted, want := range map[int64]string{3: "", 2: "not told of revision 3"} {
		s := newScene(t)
		s.put(electionName, 1, "a")
		s.put(electionName, 1, "b")
		s.put(electionName, 2, "waits")
		r, _ := s.c.ledger.play()
		j := newLockJudge(s.b, r, func(rev int64, _ time.Duration) bool { return rev <= compacted })
		q := j.queues[electionName]
		x := &observation{by: "observer", native: true, back: ms(100), told: []leadership{
			{ms(21), 2, s.head(1, 2, 2, 1, "a"), true}, {ms(41), 4, s.head(1, 2, 3, 2, "b"), false},
		}}
		got := ""
		if err := j.checkObservation(q, j.heads(q), x); err != nil {
			got = err.Error()
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("compacted at %d: %q, want %q", compacted, got, want)
		}
	}
}
