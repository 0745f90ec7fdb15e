package history

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

func lockOp(call, ret int64, kind LockKind, token int64, out bool) porcupine.Operation {
	return porcupine.Operation{Input: LockOp{"l", kind, token, "h"}, Output: out, Call: call, Return: ret}
}

func TestCheckLocks(t *testing.T) {
	for name, x := range map[string]struct {
		ops  []porcupine.Operation
		want porcupine.CheckResult
	}{
		"one after the other": {[]porcupine.Operation{lockOp(1, 2, Acquire, 5, true), lockOp(3, 4, Use, 5, true), lockOp(3, 6, Gone, 5, true), lockOp(1, 7, Acquire, 6, true),
			lockOp(8, 9, Use, 5, false), lockOp(8, 9, Use, 6, true)}, porcupine.Ok},
		"two holders":       {[]porcupine.Operation{lockOp(1, 2, Acquire, 5, true), lockOp(1, 3, Acquire, 6, true)}, porcupine.Illegal},
		"one token for two": {[]porcupine.Operation{lockOp(1, 2, Acquire, 5, true), lockOp(3, 4, Gone, 5, true), lockOp(5, 6, Acquire, 5, true)}, porcupine.Illegal},
		"a smaller token":   {[]porcupine.Operation{lockOp(1, 2, Acquire, 6, true), lockOp(3, 4, Gone, 6, true), lockOp(5, 6, Acquire, 5, true)}, porcupine.Illegal},
		"overtaken, but answered late": {[]porcupine.Operation{lockOp(1, 9, Acquire, 5, true), lockOp(3, 4, Gone, 5, true), lockOp(5, 6, Acquire, 6, true)},
			porcupine.Ok},
		"used after another got it": {[]porcupine.Operation{lockOp(1, 2, Acquire, 5, true), lockOp(2, 9, Gone, 5, true), lockOp(3, 4, Acquire, 6, true), lockOp(5, 6, Use, 5, true)},
			porcupine.Illegal},
		"not used while held": {[]porcupine.Operation{lockOp(1, 2, Acquire, 5, true), lockOp(3, 4, Use, 5, false), lockOp(5, 6, Gone, 5, true)}, porcupine.Illegal},
		"late write refused": {[]porcupine.Operation{lockOp(1, 2, Acquire, 5, true), lockOp(3, 4, Write, 5, true), lockOp(3, 5, Gone, 5, true), lockOp(4, 6, Acquire, 6, true),
			lockOp(7, 8, Write, 6, true), lockOp(9, 10, Write, 5, false)}, porcupine.Ok},
		"both accepted": {[]porcupine.Operation{lockOp(1, 2, Acquire, 5, true), lockOp(3, 4, Write, 5, true), lockOp(3, 5, Gone, 5, true), lockOp(4, 6, Acquire, 6, true),
			lockOp(7, 8, Write, 6, true), lockOp(9, 10, Write, 5, true)}, porcupine.Illegal},
		"the holder is refused":    {[]porcupine.Operation{lockOp(1, 2, Acquire, 5, true), lockOp(3, 4, Write, 5, false)}, porcupine.Illegal},
		"a token nobody was given": {[]porcupine.Operation{lockOp(1, 2, Acquire, 5, true), lockOp(3, 4, Write, 7, true)}, porcupine.Illegal},
	} {
		got := CheckLocks(x.ops, time.Minute)
		if len(got) != 1 || got[0].Lock != "l" || got[0].Size != len(x.ops) || got[0].Result != x.want {
			t.Errorf("%s: %v, want %s", name, got[0].Result, x.want)
		}
		if err := porcupine.VisualizePath(LockModel(), got[0].Info, filepath.Join(t.TempDir(), "x.html")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckGrants(t *testing.T) {
	lives := []Life{{Key: "l/a", Create: 5, Delete: 8}, {Key: "l/b", Create: 6, Delete: 12}, {Key: "l/c", Create: 7}, {Key: "l/d", Create: 9}}
	for name, x := range map[string]struct {
		grants []Grant
		want   string
	}{
		"in order":               {[]Grant{{"a", "l/a", 5, 5}, {"b", "l/b", 6, 8}, {"c", "l/c", 7, 12}}, ""},
		"without headers":        {[]Grant{{"a", "l/a", 5, 0}, {"b", "l/b", 6, 0}, {"c", "l/c", 7, 0}}, ""},
		"while another holds":    {[]Grant{{"b", "l/b", 6, 7}}, "was there until 8"},
		"overtakes":              {[]Grant{{"d", "l/d", 9, 0}}, "still there"},
		"told after it was lost": {[]Grant{{"a", "l/a", 5, 9}}, "was gone at 8"},
		"one token for two":      {[]Grant{{"a", "l/a", 5, 5}, {"z", "l/a", 5, 5}}, "a and z both hold"},
		"another's token":        {[]Grant{{"a", "l/a", 6, 8}}, "what was created then is \"l/b\""},
		"a token of no key":      {[]Grant{{"a", "l/a", 4, 8}}, "what was created then is \"\""},
	} {
		err := CheckGrants(lives, x.grants)
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}

func TestCheckSightings(t *testing.T) {
	l := NewLedger()
	for i, c := range []Change{
		was("e/a", "1", 2, 2, 1), was("e/b", "1", 3, 3, 1), was("e/a", "2", 2, 4, 2), gone("e/a", 5), gone("e/b", 6), was("x", "", 7, 7, 1), was("e/a", "3", 8, 8, 1),
	} {
		if err := l.Add(int64(i+2), []Change{c}, 0, "w"); err != nil {
			t.Fatal(err)
		}
	}
	for name, x := range map[string]struct {
		s  Sighting
		ok bool
	}{
		"leader":                       {Sighting{Key: "e/a", Token: 2, Value: "1", Mod: 2, From: 2, To: 2}, true},
		"leader, told later":           {Sighting{Key: "e/a", Token: 2, Value: "1", Mod: 2, From: 2, To: 7}, true},
		"proclaimed":                   {Sighting{Key: "e/a", Token: 2, Value: "2", Mod: 4, From: 4, To: 4}, true},
		"next":                         {Sighting{Key: "e/b", Token: 3, Value: "1", Mod: 3, From: 5, To: 5}, true},
		"next, by its creation":        {Sighting{Key: "e/b", Token: 3, Value: "1", Mod: 3, From: 3, To: 5}, true},
		"nobody":                       {Sighting{From: 6, To: 6}, true},
		"nobody at first":              {Sighting{From: 1, To: 1}, true},
		"one who waits":                {Sighting{Key: "e/b", Token: 3, Value: "1", Mod: 3, From: 4, To: 4}, false},
		"one who has resigned":         {Sighting{Key: "e/a", Token: 2, Value: "2", Mod: 4, From: 5, To: 7}, false},
		"an old value":                 {Sighting{Key: "e/a", Token: 2, Value: "1", Mod: 2, From: 4, To: 4}, false},
		"a value never proclaimed":     {Sighting{Key: "e/a", Token: 2, Value: "9", Mod: 4, From: 4, To: 4}, false},
		"a token that is none":         {Sighting{Key: "e/a", Token: 4, Value: "2", Mod: 4, From: 4, To: 4}, false},
		"nobody, while somebody leads": {Sighting{From: 3, To: 5}, false},
	} {
		if err := CheckSightings(l, "e/", []Sighting{x.s}); (err == nil) != x.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClock(t *testing.T) {
	var c Clock
	c.Add(5, 10, 20)
	c.Add(3, 12, 13) // began after the other, which may have been answered late
	c.Add(9, 30, 40)
	for _, x := range []struct {
		rev           int64
		before, after time.Duration
	}{{2, 0, 13}, {3, 0, 13}, {4, 12, 20}, {6, 12, 40}, {10, 30, forever}} {
		if b, a := c.NotBefore(x.rev), c.NotAfter(x.rev); b != x.before || a != x.after {
			t.Errorf("revision %d: from %d to %d, want %d to %d", x.rev, b, a, x.before, x.after)
		}
	}
}
