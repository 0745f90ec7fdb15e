package sim

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// brokenRun is a result as a failed run leaves it: m1 leads, is killed, and comes back, while a read is told something old.
func brokenRun(t *testing.T) *Result {
	t.Helper()
	changes, ops := good()
	stale := read(3, 2100*time.Millisecond, 2200*time.Millisecond, "r/0", cell{"1.1", 2, 2, 1, 0}, 2)
	c := bench(t, changes, append(ops, stale)...)
	c.seed = 77
	for _, name := range []string{"m1", "m2", "m3"} {
		c.members = append(c.members, &member{name: name})
	}
	c.timeline.lines = append(c.timeline.lines, []moment{
		{0, "m1", "started, life 0"}, {0, "m2", "started, life 0"}, {time.Second, "m1", "leader changed map[is-self:true leader:1]"},
		{2 * time.Second, "m1", "killed"}, {3 * time.Second, "m1", "started, life 1"}, {4 * time.Second, "m2", "<script>alert(1)</script>"},
	}...)
	plan := []Fault{
		{At: 2 * time.Second, For: time.Second, Kind: Killed}, {At: 1500 * time.Millisecond, For: time.Second, Kind: Partition, Group: 2},
		{At: 8 * time.Second, For: time.Second, Kind: Pause, Member: 2},
	}
	s := newScene(t)
	handOver(s)
	for range 9 {
		c.violateAt(2200*time.Millisecond, "a stale read: %v", stale)
	}
	return &Result{Stats: Stats{Virtual: 10 * time.Second}, Plan: plan, Violations: c.violation, cluster: c, locks: s.b}
}

// TestPage: the page of a failed run tells what is broken and by whom, stands alone, and shows who led and who was cut off when.
func TestPage(t *testing.T) {
	r := brokenRun(t)
	path := filepath.Join(t.TempDir(), "run.html")
	if err := r.WritePage(path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, want := range []string{
		"Seed 77 broke a promise", "a stale read: client 3", "and 4 more", "make sim SEED=77 N=1",
		`class="guilty"`, `class="leads"`, `class="cut"`, "m1 leads, 1.0000s to 2.0000s", "m1 up, 3.0000s to 10.0000s", "&lt;script&gt;",
		">client 3</text>", ">asker 1</text>", ">m3</text>", "partition",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if foreign := regexp.MustCompile(`<script|<link|<img|<iframe|src=|href=|url\(|@import|https?://`).FindString(text); foreign != "" {
		t.Errorf("the page needs %q", foreign)
	}
	if n := strings.Count(text, `<tr class="guilty">`); n != 1 {
		t.Errorf("%d operations are marked, want the one of the violation", n)
	}
	for _, open := range []string{"table", "svg", "details", "div"} {
		if a, b := strings.Count(text, "<"+open), strings.Count(text, "</"+open+">"); a != b {
			t.Errorf("%d %s are opened and %d closed", a, open, b)
		}
	}
}

// TestPageOfNothing: a run that broke nothing has no page, and leaves no file.
func TestPageOfNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.html")
	if err := (&Result{}).WritePage(path); err == nil {
		t.Error("a page was made")
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file: %v", err)
	}
}

func TestScale(t *testing.T) {
	s := scale{2 * time.Second, 6 * time.Second, 400}
	for at, want := range map[time.Duration]float64{0: laneNames, 3 * time.Second: laneNames + 100, time.Minute: laneNames + 400} {
		if got := s.x(at); got != want {
			t.Errorf("%v is at %v, want %v", at, got, want)
		}
	}
	if got := s.span(0, time.Second, "", ""); got != nil {
		t.Errorf("what is over before has %v", got)
	}
	if got := s.span(time.Second, never, "", ""); len(got) != 1 || got[0].Width != 400 {
		t.Errorf("what does not end has %v", got)
	}
	if got := s.ticks(); len(got) < 5 || len(got) > 15 || got[0].X != laneNames {
		t.Errorf("ticks %v", got)
	}
}
