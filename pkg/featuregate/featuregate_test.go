package featuregate

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// table has a feature of each kind.
func table() map[Feature]Spec {
	return map[Feature]Spec{
		"NewThing":   {Stage: Alpha},
		"OtherThing": {Stage: Alpha},
		"GoodThing":  {Stage: Beta, Default: true},
		"StableOn":   {Stage: GA, Default: true},
		"Fixed":      {Stage: GA, Default: true, Locked: true},
	}
}

func newGates(t testing.TB) *Gates {
	g, err := New(table())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestSet(t *testing.T) {
	for _, c := range []struct{ sets, want string }{
		{"", "Fixed GoodThing StableOn"},
		{"NewThing=true", "Fixed GoodThing NewThing StableOn"},
		{" NewThing = true , GoodThing=0,", "Fixed NewThing StableOn"},
		{"AllAlpha=true", "Fixed GoodThing NewThing OtherThing StableOn"},
		{"AllAlpha=true,NewThing=false", "Fixed GoodThing OtherThing StableOn"},
		{"NewThing=false,AllAlpha=true", "Fixed GoodThing OtherThing StableOn"},
		{"NewThing=false;AllAlpha=true", "Fixed GoodThing OtherThing StableOn"},
		{"AllAlpha=true;AllAlpha=false", "Fixed GoodThing StableOn"},
		{"AllBeta=false", "Fixed StableOn"},
		{"AllBeta=false,GoodThing=true", "Fixed GoodThing StableOn"},
		{"StableOn=false", "Fixed GoodThing"},
		{"Fixed=true", "Fixed GoodThing StableOn"},
	} {
		g := newGates(t)
		for one := range strings.SplitSeq(c.sets, ";") {
			if err := g.Set(one); err != nil {
				t.Errorf("%q: %v", one, err)
			}
		}
		var on []string
		for _, s := range g.List() {
			if s.Enabled != g.Enabled(s.Feature) {
				t.Errorf("%q: list and Enabled differ on %s", c.sets, s.Feature)
			}
			if s.Enabled {
				on = append(on, string(s.Feature))
			}
		}
		if got := strings.Join(on, " "); got != c.want {
			t.Errorf("%q: on are %s, want %s", c.sets, got, c.want)
		}
	}
}

func TestSetRefuses(t *testing.T) {
	for _, c := range []struct{ set, want string }{
		{"Nope=true", "unrecognized feature gate: Nope"},
		{"NewThing=true,Nope=true", "unrecognized feature gate: Nope"},
		{"NewThing=true,Fixed=false", "cannot set feature gate Fixed to false: the feature is locked to true; remove the setting"},
		{"NewThing=true,GoodThing", "missing bool value for feature gate GoodThing: write GoodThing=true or GoodThing=false"},
		{"NewThing=true,GoodThing=maybe", "invalid value of GoodThing=maybe: want true or false"},
	} {
		g := newGates(t)
		if err := g.Set(c.set); err == nil || err.Error() != c.want {
			t.Errorf("%q: error %v, want %s", c.set, err, c.want)
		}
		if g.Enabled("NewThing") || g.String() != "" {
			t.Errorf("%q: a refused text changed the gates to %q", c.set, g)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for name, bad := range map[string]map[Feature]Spec{
		"cannot be the name": {AllBeta: {}},
		`"A=b" cannot be`:    {"A=b": {}},
		"unknown stage":      {"A": {Stage: "GAMMA"}},
		"locked but only":    {"A": {Stage: Beta, Locked: true}},
	} {
		if _, err := New(bad); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestUnknownFeatureInProgramPanics(t *testing.T) {
	defer func() {
		if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), `"Typo"`) {
			t.Errorf("panic value %v", v)
		}
	}()
	newGates(t).Enabled("Typo")
}

func TestStageLabels(t *testing.T) {
	want := map[Feature]string{"NewThing": "ALPHA", "OtherThing": "ALPHA", "GoodThing": "BETA", "StableOn": "", "Fixed": ""}
	for _, s := range newGates(t).List() {
		if string(s.Stage) != want[s.Feature] {
			t.Errorf("%s has the label %q", s.Feature, s.Stage)
		}
	}
}

// TestStringRoundTrip sets random gates and reads the text back into fresh ones.
func TestStringRoundTrip(t *testing.T) {
	names := []Feature{"NewThing", "OtherThing", "GoodThing", "StableOn", AllAlpha, AllBeta}
	rapid.Check(t, func(rt *rapid.T) {
		g, again := newGates(t), newGates(t)
		if err := g.SetMap(rapid.MapOf(rapid.SampledFrom(names), rapid.Bool()).Draw(rt, "settings")); err != nil {
			rt.Fatal(err)
		}
		if err := again.Set(g.String()); err != nil {
			rt.Fatal(err)
		}
		if fmt.Sprint(g.List()) != fmt.Sprint(again.List()) || g.String() != again.String() {
			rt.Fatalf("%q came back as %q", g, again)
		}
	})
}

func FuzzSet(f *testing.F) {
	f.Add("NewThing=true,AllBeta=false")
	f.Add("=,==,A=")
	f.Fuzz(func(t *testing.T, text string) {
		g := newGates(t)
		if err := g.Set(text); err != nil && g.String() != "" {
			t.Errorf("%q was refused (%v) and still set %q", text, err, g)
		}
		if !g.Enabled("Fixed") {
			t.Errorf("%q moved a locked feature", text)
		}
	})
}
