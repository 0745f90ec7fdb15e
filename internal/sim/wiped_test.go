package sim

import (
	"testing"
	"time"
)

// TestWipedMember wipes one member of three, the leader or another, in good weather and among other faults: it ends each time it is
// started, and the others serve to the end.
func TestWipedMember(t *testing.T) {
	s := time.Second
	for name, plan := range map[string][]Fault{
		"alone":                           {{At: 3 * s, For: s, Kind: Wipe}},
		"while the others have no leader": {{At: 3 * s, For: 4 * s, Kind: Killed, Member: 1}, {At: 3 * s, For: s, Kind: Wipe}},
		"then all lose power":             {{At: 3 * s, For: s, Kind: Wipe, Member: 2}, {At: 6 * s, For: s, Kind: PowerAll}},
		"then its log has a flipped bit":  {{At: 3 * s, For: s, Kind: Wipe, Member: 1}, {At: 5 * s, For: s, Kind: Flip, Member: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3) {
				r := runSeed(t, t.TempDir(), Options{Seed: seed, Members: 3, Plan: plan})
				if len(r.Violations) > 0 || r.Stats.Wipes != 1 {
					t.Fatalf("%d wipes\n%s", r.Stats.Wipes, r.Report)
				}
			}
		})
	}
}
