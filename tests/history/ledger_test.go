package history

import (
	"strings"
	"testing"
	"time"
)

func was(key, value string, create, mod, version int64) Change {
	return Change{Key: key, Pair: Pair{value, create, mod, version, 0}}
}

func gone(key string, mod int64) Change { return Change{Key: key, Deleted: true, Pair: Pair{Mod: mod}} }

// book gives a ledger of revisions 2 to 5.
func book(t *testing.T) *Ledger {
	t.Helper()
	l := NewLedger()
	for i, changes := range [][]Change{{was("a", "1", 2, 2, 1)}, {was("a", "2", 2, 3, 2), was("b", "1", 3, 3, 1)}, {gone("a", 4)}, {was("a", "3", 5, 5, 1)}} {
		if err := l.Add(int64(i+2), changes, time.Duration(i), "w"); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func TestLedger(t *testing.T) {
	l := book(t)
	if l.Complete() != 5 || l.At("a", 3).Value != "2" || l.At("a", 4) != (Pair{}) || l.At("a", 1) != (Pair{}) || len(l.All(5)) != 2 || len(l.All(4)) != 1 {
		t.Errorf("%d %v %v", l.Complete(), l.At("a", 3), l.All(5))
	}
	if err := l.Add(3, []Change{was("a", "2", 2, 3, 2), was("b", "1", 3, 3, 1)}, 0, "other"); err != nil {
		t.Error(err)
	}
	if err := l.Add(7, []Change{gone("b", 7)}, 0, "w"); err != nil || l.Complete() != 5 {
		t.Errorf("%v, complete up to %d without 6", err, l.Complete())
	}
	lives := l.Lives("a")
	if len(lives) != 2 || lives[0].Create != 2 || lives[0].Delete != 4 || lives[0].Deleted != 2 || lives[1].Create != 5 || lives[1].Delete != 0 {
		t.Errorf("%+v", lives)
	}
	for name, x := range map[string]struct {
		rev     int64
		changes []Change
		want    string
	}{
		"told otherwise":      {3, []Change{was("a", "9", 2, 3, 2), was("b", "1", 3, 3, 1)}, "w was told"},
		"told in part":        {3, []Change{was("a", "2", 2, 3, 2)}, "w was told"},
		"told in other order": {3, []Change{was("b", "1", 3, 3, 1), was("a", "2", 2, 3, 2)}, "w was told"},
		"wrong version":       {6, []Change{was("a", "4", 5, 6, 3)}, "must have"},
		"wrong creation":      {6, []Change{was("a", "4", 2, 6, 2)}, "must have"},
		"wrong revision":      {6, []Change{was("a", "4", 5, 7, 2)}, "an event of revision 7"},
		"deletes nothing":     {6, []Change{gone("c", 6)}, "did not exist"},
		"one key twice":       {6, []Change{gone("a", 6), was("a", "4", 6, 6, 1)}, "two events"},
	} {
		if err := book(t).Add(x.rev, x.changes, 0, "x"); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}

// tell makes a watch of what it is told, each element being one response.
func tell(s *Session, responses ...any) error {
	if err := s.Create(5); err != nil {
		return err
	}
	for _, r := range responses {
		var err error
		switch r := r.(type) {
		case int: // a notice
			err = s.Progress(int64(r))
		case int64: // a compaction
			err = s.Compacted(r)
		case []Change:
			var all []Told
			for _, c := range r {
				all = append(all, Told{Change: c})
			}
			err = s.Take(5, all)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func TestSession(t *testing.T) {
	l := book(t)
	two, three, four, five := l.Changes("", 2, 2), l.Changes("", 3, 3), l.Changes("", 4, 4), l.Changes("", 5, 5)
	never := func(int64, time.Duration) bool { return false }
	for name, x := range map[string]struct {
		s         Session
		responses []any
		want      string
	}{
		"all":                      {Session{From: 2}, []any{two, three, 3, four, five, 5}, ""},
		"in one":                   {Session{From: 2}, []any{append(append(append(two[:1:1], three...), four...), five...)}, ""},
		"part":                     {Session{From: 3, Prefix: "b"}, []any{three[1:], 5}, ""},
		"nothing":                  {Session{From: 9}, []any{5}, ""},
		"after the creation":       {Session{}, []any{5}, ""},
		"compacted":                {Session{From: 2}, []any{two, int64(5)}, ""},
		"again, by etcd's client":  {Session{Lax: true}, []any{five}, ""},
		"again":                    {Session{}, []any{five}, "after all up to 5"},
		"missing":                  {Session{From: 2}, []any{two, four}, "where"},
		"missing at the end":       {Session{From: 2}, []any{two, three, 5}, "was not told"},
		"missing before the first": {Session{From: 2}, []any{three}, "where"},
		"half a revision":          {Session{From: 3}, []any{three[:1], 5}, "was not told"},
		"in two parts":             {Session{From: 3}, []any{three[:1], three[1:]}, "an event of revision 3 after all up to 3"},
		"twice":                    {Session{From: 2}, []any{two, two}, "after all up to 2"},
		"order":                    {Session{From: 2}, []any{three, two}, "after all up to 3"},
		"order in a response":      {Session{From: 2}, []any{append(three[:2:2], two...)}, "after all up to"},
		"progress ahead":           {Session{From: 2}, []any{two, 4, three}, "after all up to 4"},
		"progress behind":          {Session{From: 2}, []any{two, three, 2}, "progress at revision 2"},
		"other keys":               {Session{From: 2, Prefix: "b"}, []any{two}, "does not watch"},
		"ahead of the header":      {Session{From: 2}, []any{[]Change{was("a", "4", 5, 6, 2)}}, "under a header"},
		"invented":                 {Session{From: 5}, []any{[]Change{was("a", "4", 5, 5, 1)}}, "where"},
		"compacted without need":   {Session{From: 2}, []any{two, int64(3)}, "does not hurt"},
		"hole before a compaction": {Session{From: 2}, []any{three, int64(5)}, "where"},
		"other pair before":        {Session{From: 4, PrevKV: true}, []any{four}, "without the pair"},
	} {
		err := tell(&x.s, x.responses...)
		if err == nil {
			err = x.s.Check(l, never)
		}
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}

func TestPrevious(t *testing.T) {
	l := book(t)
	event := l.Changes("", 4, 4)[0]
	for name, x := range map[string]struct {
		told      Told
		asked     bool
		compacted bool
		want      string
	}{
		"right":       {Told{Change: event, Prev: l.At("a", 3), HasPrev: true}, true, false, ""},
		"an older":    {Told{Change: event, Prev: l.At("a", 2), HasPrev: true}, true, false, "it was"},
		"none":        {Told{Change: event}, true, false, "without the pair"},
		"compacted":   {Told{Change: event}, true, true, ""},
		"not asked":   {Told{Change: event, Prev: l.At("a", 3), HasPrev: true}, false, false, "not asked for"},
		"none wanted": {Told{Change: event}, false, false, ""},
	} {
		s := &Session{From: 4, PrevKV: x.asked}
		err := s.Create(5)
		if err == nil {
			err = s.Take(4, []Told{x.told})
		}
		if err == nil {
			err = s.Check(l, func(int64, time.Duration) bool { return x.compacted })
		}
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}

func TestTenure(t *testing.T) {
	const s = time.Second
	calm := func(from, _ time.Duration) time.Duration { return from }
	stormy := func(_, to time.Duration) time.Duration { return to - s }
	for name, x := range map[string]struct {
		t    Tenure
		life Life
		calm func(from, to time.Duration) time.Duration
		want string
	}{
		"in time":              {Tenure{Alive: 10 * s, Renewed: 11 * s}, Life{Delete: 7, Deleted: 13 * s}, calm, ""},
		"early":                {Tenure{Alive: 10 * s, Renewed: 11 * s}, Life{Delete: 7, Deleted: 11900 * time.Millisecond}, calm, "had ended at 11.900s, at revision 7"},
		"revoked":              {Tenure{Alive: 10 * s, Renewed: 10 * s, Dropped: 11 * s}, Life{Delete: 7, Deleted: 11100 * time.Millisecond}, calm, ""},
		"before it is revoked": {Tenure{Alive: 10 * s, Renewed: 10 * s, Dropped: 11 * s}, Life{Delete: 7, Deleted: 10900 * time.Millisecond}, calm, "had ended"},
		"late":                 {Tenure{Alive: 10 * s, Renewed: 11 * s}, Life{Delete: 7, Deleted: 17 * s}, calm, "late"},
		"late after a storm":   {Tenure{Alive: 10 * s, Renewed: 11 * s}, Life{Delete: 7, Deleted: 17 * s}, stormy, ""},
		"never":                {Tenure{Alive: 10 * s, Renewed: 11 * s}, Life{}, calm, "has not ended"},
		"key came late":        {Tenure{Alive: 10 * s, Renewed: 11 * s}, Life{Created: 14 * s, Delete: 7, Deleted: 17 * s}, calm, ""},
	} {
		x.t.TTL = 2 * s
		err := x.t.Check(x.life, Slack{3 * s, x.calm}, 60*s)
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}
