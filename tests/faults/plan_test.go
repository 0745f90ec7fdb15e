package faults

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

// A plan is the seed's, has all kinds that can be made, no two faults of one lane at a time, and calm at the end of each minute.
func TestPlan(t *testing.T) {
	shape := Shape{Members: 3, Groups: 5, Length: 2 * time.Hour, TTL: 3 * time.Second, Full: 1, Slow: true}
	p := Draw(7, shape)
	if !reflect.DeepEqual(p, Draw(7, shape)) || reflect.DeepEqual(p, Draw(8, shape)) {
		t.Error("a seed does not determine the plan")
	}
	count := map[Kind]int{}
	for _, lane := range [][]Fault{p.Processes, p.Links} {
		free := time.Duration(0)
		for _, f := range lane {
			count[f.Kind]++
			end := f.At + f.For
			if f.At < free || end > shape.Length || f.At/period != end/period || end%period > period-calm {
				t.Errorf("after one until %v: %v", free, f)
			}
			free = end
			most := shape.Members
			if f.Kind == CutClient {
				most = shape.Groups
			}
			sorted := slices.Clone(f.Victims)
			slices.Sort(sorted)
			if n := len(slices.Compact(sorted)); n == 0 || n != len(f.Victims) || slices.Max(f.Victims) >= most {
				t.Errorf("victims of %v", f)
			}
		}
	}
	for _, k := range []Kind{Kill, KillAll, Restart, Hold, HoldLong, SlowDisk, FlushFails, FullDisk, Isolate, Unheard, Deaf, CutLink, SlowLinks, CutClient} {
		if count[k] < 5 {
			t.Errorf("%d faults of kind %s in %v", count[k], k, shape.Length)
		}
	}
	shape.Full, shape.Slow, shape.Groups = -1, false, 0
	count = map[Kind]int{}
	p = Draw(7, shape)
	for _, f := range slices.Concat(p.Processes, p.Links) {
		count[f.Kind]++
	}
	if count[SlowDisk]+count[FlushFails]+count[FullDisk]+count[CutClient] > 0 || count[Stutter] == 0 {
		t.Errorf("without root, filters and clients to cut off: %v", count)
	}
}
