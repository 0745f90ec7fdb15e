package verify

import (
	"strings"
	"testing"
)

// panicOf runs f and returns what it panicked with, nil if it did not.
func panicOf(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

func TestAssert(t *testing.T) {
	if v := panicOf(func() { Assert(true, "fine %d", 1) }); v != nil {
		t.Errorf("a condition that holds panicked: %v", v)
	}
	v := panicOf(func() { Assert(false, "index %d is behind %d", 3, 7) })
	if s, _ := v.(string); s != "broken invariant: index 3 is behind 7" {
		t.Errorf("panic value %q", v)
	}
}

func TestLevels(t *testing.T) {
	for _, c := range []struct {
		env  string
		want Level
		bad  bool
	}{{"", Cheap, false}, {"cheap", Cheap, false}, {"all", All, false}, {"yes please", Cheap, true}} {
		l, err := FromEnv(func(name string) string {
			if name != "COORDD_VERIFY" {
				t.Errorf("asked for %q", name)
			}
			return c.env
		})
		if l != c.want || (err != nil) != c.bad {
			t.Errorf("%q: level %d, error %v", c.env, l, err)
		}
		if c.bad && !strings.Contains(err.Error(), `COORDD_VERIFY="yes please"`) {
			t.Errorf("the error does not name the variable and value: %v", err)
		}
		ran := false
		l.Expensive(func() { ran = true })
		if ran != (c.want == All) {
			t.Errorf("%q: expensive check ran: %v", c.env, ran)
		}
	}
}

func BenchmarkAssert(b *testing.B) {
	b.ReportAllocs()
	n := uint64(0)
	for b.Loop() {
		n++
		Assert(n > 0, "n is zero")
	}
}
