package watch

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// noticeTimes reads n notices of watcher 0 and returns when they came, in seconds since begin.
func noticeTimes(t *testing.T, s *reading, n int, begin time.Time) (at []float64) {
	t.Helper()
	for len(at) < n {
		got, err := s.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if !got[i].Progress() || got[i].WatchID != 0 {
				t.Fatalf("got %q, want a notice", text(t, &got[i]))
			}
			at = append(at, time.Since(begin).Seconds())
		}
	}
	return at
}

// TestNotices checks when progress notices come: at the interval with the stream's jitter, to those who asked, and not after events.
func TestNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openDB(t, t.TempDir(), Options{
			ProgressInterval: 10 * time.Second,
			Jitter: func(upTo time.Duration) time.Duration {
				if upTo != time.Second {
					t.Errorf("jitter up to %v, want 1s", upTo)
				}
				return time.Second / 2
			},
		})
		defer d.close()
		s := d.open(StreamOptions{})
		defer s.Close()
		create(t, s, CreateOptions{Key: []byte("k"), Progress: true})
		create(t, s, CreateOptions{Key: []byte("k")})
		want(t, s, "0@1 created", "1@1 created")
		begin := time.Now()
		if at := noticeTimes(t, s, 2, begin); at[0] != 10.5 || at[1] != 21 {
			t.Errorf("notices at %v s, want at 10.5 and 21", at)
		}
		d.put("other", "")
		s.notify()
		want(t, s, "0@2")
		// Events in an interval take the place of its notice, and reach the client before any notice.
		d.put("k", "x")
		want(t, s, "0@3 k=x@3", "1@3 k=x@3")
		if at := noticeTimes(t, s, 1, begin); at[0] != 42 {
			t.Errorf("after events: notice at %v s, want at 42", at)
		}
		// A reader that comes late gets what was due once.
		d.put("k", "y")
		<-time.After(100 * time.Second) // virtual
		want(t, s, "0@4 k=y@4", "1@4 k=y@4")
	})
}

// TestNoticeBusyStream checks that a quiet watcher gets its notice though another keeps the stream busy.
func TestNoticeBusyStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openDB(t, t.TempDir(), Options{ProgressInterval: time.Second, Jitter: func(time.Duration) time.Duration { return 0 }})
		defer d.close()
		s := d.open(StreamOptions{})
		defer s.Close()
		create(t, s, CreateOptions{Key: []byte("quiet"), Progress: true})
		create(t, s, CreateOptions{Key: []byte("busy")})
		want(t, s, "0@1 created", "1@1 created")
		notices := 0
		for i := range 50 {
			d.put("busy", fmt.Sprint(i))
			<-time.After(100 * time.Millisecond) // virtual
			got, err := s.Next(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				if got[i].Progress() {
					notices++
				}
			}
		}
		if notices < 4 {
			t.Errorf("%d notices in 5 intervals", notices)
		}
	})
}

// TestProgressOptions checks the bounds of interval and jitter.
func TestProgressOptions(t *testing.T) {
	if o := (Options{}).withDefaults(); o.ProgressInterval != 10*time.Minute {
		t.Errorf("default interval %v", o.ProgressInterval)
	}
	o := Options{ProgressInterval: time.Millisecond}.withDefaults()
	if o.ProgressInterval != 100*time.Millisecond {
		t.Errorf("interval %v, want the least, 100ms", o.ProgressInterval)
	}
	for range 1000 {
		if j := o.Jitter(time.Second); j < 0 || j > time.Second {
			t.Fatalf("jitter %v", j)
		}
	}
	if o.Jitter(0) != 0 {
		t.Error("jitter of nothing")
	}
	stopped := false
	d := testDB(t, Options{Tick: func(every time.Duration) (<-chan time.Time, func()) {
		if every < 10*time.Minute || every > 11*time.Minute {
			t.Errorf("ticks every %v", every)
		}
		ticks := make(chan time.Time, 1)
		ticks <- time.Time{}
		return ticks, func() { stopped = true }
	}})
	s := d.open(StreamOptions{})
	create(t, s, CreateOptions{Key: []byte("k"), Progress: true})
	want(t, s, "0@1 created", "0@1")
	s.Close()
	if _, err := s.Next(context.Background()); err != ErrClosed || !stopped {
		t.Errorf("error %v, ticker stopped: %v", err, stopped)
	}
}
