// Package featuregate switches features on and off by name, in the manner of Kubernetes and etcd.
//
// A feature goes through stages: [Alpha] (unfinished, usually off), [Beta] (believed good, usually
// on), [GA] (here to stay; a locked one can no longer be switched). The caller of [New] brings the
// table of features; this package knows none. Users set gates by text:
//
//	CompactHashCheck=true,FastLeaseKeepAlive=false,AllAlpha=true
//
// AllAlpha and AllBeta stand for every feature of that stage. What is set for a feature by name
// wins over them, whatever the order, also over several calls of [Gates.Set].
package featuregate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Feature is the name of a feature, as users write it.
type Feature string

const (
	// AllAlpha sets every alpha feature that is not set by name.
	AllAlpha Feature = "AllAlpha"
	// AllBeta sets every beta feature that is not set by name.
	AllBeta Feature = "AllBeta"
)

// Stage says how far a feature has come. Its text, also the label in metrics, is ALPHA, BETA, or
// empty for GA.
type Stage string

const (
	// Alpha features are unfinished and may vanish.
	Alpha Stage = "ALPHA"
	// Beta features are believed good and may still change.
	Beta Stage = "BETA"
	// GA features are here to stay.
	GA Stage = ""
)

// Spec describes a feature.
type Spec struct {
	Stage   Stage // how far it has come
	Default bool  // whether it is on when nobody says otherwise
	Locked  bool  // it cannot be moved from Default any more; GA only
}

// State is a feature with its present setting, for lists and metrics.
type State struct {
	Feature Feature
	Spec
	Enabled bool
}

// Gates holds the features of one server and their settings. Make one with [New]. Set it up on one
// goroutine; after the last Set any number of goroutines may read. *Gates is a flag value for pflag
// and flag.
type Gates struct {
	specs map[Feature]Spec
	set   map[Feature]bool // what was set by name, AllAlpha and AllBeta included
}

// New makes gates from the caller's table, which it copies. A table that contradicts itself is an
// error.
func New(table map[Feature]Spec) (*Gates, error) {
	for f, s := range table {
		switch {
		case f == "" || f == AllAlpha || f == AllBeta || strings.ContainsAny(string(f), "=, "):
			return nil, fmt.Errorf("featuregate: %q cannot be the name of a feature", f)
		case s.Stage != Alpha && s.Stage != Beta && s.Stage != GA:
			return nil, fmt.Errorf("featuregate: feature %s has the unknown stage %q", f, s.Stage)
		case s.Locked && s.Stage != GA:
			return nil, fmt.Errorf("featuregate: feature %s is locked but only %s: lock features when they are GA", f, s.Stage)
		}
	}
	return &Gates{specs: maps.Clone(table), set: map[Feature]bool{}}, nil
}

// Enabled reports whether f is on. A feature that is not in the table is a mistake of the program,
// not of its user, and panics.
func (g *Gates) Enabled(f Feature) bool {
	s, ok := g.specs[f]
	if !ok {
		panic(fmt.Sprintf("featuregate: the program asks for feature %q, which is not in its table", f))
	}
	return g.enabled(f, s)
}

func (g *Gates) enabled(f Feature, s Spec) bool {
	if on, ok := g.set[f]; ok {
		return on
	}
	all, ok := false, false
	switch s.Stage {
	case Alpha:
		all, ok = g.set[AllAlpha]
	case Beta:
		all, ok = g.set[AllBeta]
	}
	if ok {
		return all
	}
	return s.Default
}

// Set applies a text such as "A=true,B=false". Values are what strconv.ParseBool takes. Blanks
// around names and values, and empty parts, are ignored. If any part is wrong, nothing is changed.
func (g *Gates) Set(text string) error {
	settings := map[Feature]bool{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		if !ok {
			return fmt.Errorf("missing bool value for feature gate %s: write %s=true or %s=false", name, name, name)
		}
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("invalid value of %s=%s: want true or false", name, strings.TrimSpace(value))
		}
		settings[Feature(name)] = on
	}
	return g.SetMap(settings)
}

// SetMap is Set with the settings already taken apart, as configuration files give them.
func (g *Gates) SetMap(settings map[Feature]bool) error {
	for _, f := range slices.Sorted(maps.Keys(settings)) { // sorted: the same mistake gets the same answer
		if f == AllAlpha || f == AllBeta {
			continue
		}
		s, ok := g.specs[f]
		if !ok {
			return fmt.Errorf("unrecognized feature gate: %s", f)
		}
		if s.Locked && settings[f] != s.Default {
			return fmt.Errorf("cannot set feature gate %s to %t: the feature is locked to %t; remove the setting", f, settings[f], s.Default)
		}
	}
	maps.Copy(g.set, settings)
	return nil
}

// List returns all features by name with their present settings.
func (g *Gates) List() []State {
	list := make([]State, 0, len(g.specs))
	for _, f := range slices.Sorted(maps.Keys(g.specs)) {
		s := g.specs[f]
		list = append(list, State{Feature: f, Spec: s, Enabled: g.enabled(f, s)})
	}
	return list
}

// String returns what was set, by name, in the form that Set reads; empty when all is at its default.
func (g *Gates) String() string {
	if g == nil { // package flag prints zero values
		return ""
	}
	parts := make([]string, 0, len(g.set))
	for _, f := range slices.Sorted(maps.Keys(g.set)) {
		parts = append(parts, fmt.Sprintf("%s=%t", f, g.set[f]))
	}
	return strings.Join(parts, ",")
}

// Type names the kind of value in the help of pflag.
func (g *Gates) Type() string { return "mapStringBool" }
