package lease

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/mvcc/backend"
)

// openTable returns an empty table on a new file.
func openTable(t *testing.T) *Table {
	t.Helper()
	b, err := backend.Open(filepath.Join(t.TempDir(), "db"), backend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	table, err := Open(b)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// pass lets the time of the bubble go on.
func pass(d time.Duration) { <-time.After(d) }

func grant(t *testing.T, table *Table, e *Expirer, id ID, ttl int64) {
	t.Helper()
	c, err := table.Grant(id, ttl)
	if err != nil {
		t.Fatal(err)
	}
	e.Observe(c)
}

func wantExpired(t *testing.T, e *Expirer, want ...ID) {
	t.Helper()
	got := e.Expired(MaxRevokes).IDs
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("expired %v, want %v", got, want)
	}
}

func TestExpiresOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, e := openTable(t), NewExpirer()
		e.Promote(3, table, 0)
		grant(t, table, e, 1, 5)
		grant(t, table, e, -2, 7)
		pass(5*time.Second - 1)
		wantExpired(t, e)
		pass(1)
		if b := e.Expired(10); b.Term != 3 || !slices.Equal(b.IDs, []ID{1}) {
			t.Errorf("got %+v", b)
		}
		pass(2 * time.Second)
		wantExpired(t, e, -2)
	})
}

func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, e := openTable(t), NewExpirer()
		e.Promote(1, table, 0)
		grant(t, table, e, 1, 5)
		for range 100 {
			pass(4 * time.Second)
			wantExpired(t, e)
			if r, err := e.Renew(1); err != nil || r.TTL != 5 || r.Reset {
				t.Fatalf("got %+v, %v", r, err)
			}
		}
		if left, err := e.Remaining(1); err != nil || left != 5*time.Second {
			t.Errorf("remaining %v, %v", left, err)
		}
		pass(5*time.Second - 1)
		wantExpired(t, e)
		pass(1)
		if _, err := e.Renew(1); !errors.Is(err, ErrExpired) {
			t.Errorf("renewing at the deadline: %v", err)
		}
		wantExpired(t, e, 1)
		if _, err := e.Renew(1); !errors.Is(err, ErrExpired) {
			t.Errorf("renewing what is being revoked: %v", err)
		}
		if _, err := e.Renew(2); !errors.Is(err, errs.ErrLeaseNotFound) {
			t.Errorf("renewing an unknown lease: %v", err)
		}
	})
}

func TestHandedOutOnceUntilGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, e := openTable(t), NewExpirer()
		e.Promote(1, table, 0)
		grant(t, table, e, 1, 2)
		grant(t, table, e, 2, 2)
		pass(2 * time.Second)
		wantExpired(t, e, 1, 2)
		pass(time.Hour)
		wantExpired(t, e)
		change, err := table.Revoke(1)
		if err != nil {
			t.Fatal(err)
		}
		e.Observe(change)
		e.GiveBack(1, 2, 77)
		wantExpired(t, e)
		pass(PollInterval)
		wantExpired(t, e, 2)
		if _, err := e.Remaining(1); !errors.Is(err, errs.ErrLeaseNotFound) {
			t.Errorf("revoked lease: %v", err)
		}
	})
}

func TestOnlyTheLeaderKeepsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, e := openTable(t), NewExpirer()
		grant(t, table, e, 1, 2) // observed before the promotion: not needed, the table has it
		_, errRenew := e.Renew(1)
		_, errLeft := e.Remaining(1)
		if !errors.Is(errRenew, errs.ErrNotPrimaryLessor) || !errors.Is(errLeft, errs.ErrNotPrimaryLessor) {
			t.Errorf("got %v, %v", errRenew, errLeft)
		}
		pass(time.Hour)
		wantExpired(t, e)
		e.Promote(2, table, time.Second)
		pass(3*time.Second - 1)
		wantExpired(t, e)
		pass(1)
		wantExpired(t, e, 1)
		e.Demote()
		e.GiveBack(1)
		pass(time.Hour)
		wantExpired(t, e)
	})
}

func TestRevokeRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5000
		table, e := openTable(t), NewExpirer()
		e.Promote(1, table, 0)
		for i := range n {
			grant(t, table, e, ID(i+1), 10)
		}
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		seen := make(map[ID]bool)
		e.Run(ctx, Duties{
			Revoke: func(b Batch) {
				if len(b.IDs) > MaxRevokes {
					t.Errorf("%d leases at once", len(b.IDs))
				}
				for _, id := range b.IDs {
					if seen[id] {
						t.Errorf("lease %d twice", id)
					}
					seen[id] = true
				}
				since := time.Since(start) - 10*time.Second
				if most := MaxRevokes + int(since.Seconds()*RevokeRate) + 1; len(seen) > most {
					t.Errorf("%d leases %v after they ended", len(seen), since)
				}
				if len(seen) == n {
					cancel()
				}
			},
			Checkpoint: func(uint64, []Checkpoint) {},
		})
		if took := time.Since(start); took < 14*time.Second || took > 16*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestRunIsPunctual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, e := openTable(t), NewExpirer()
		ctx, cancel := context.WithCancel(t.Context())
		revoked := make(chan time.Time, 1)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			e.Run(ctx, Duties{
				Revoke:     func(b Batch) { revoked <- time.Now() },
				Checkpoint: func(uint64, []Checkpoint) {},
			})
		}()
		pass(70 * time.Millisecond)
		e.Promote(1, table, 0)
		granted := time.Now()
		grant(t, table, e, 1, 2)
		late := (<-revoked).Sub(granted) - 2*time.Second
		if late < 0 || late > minPause {
			t.Errorf("handed out %v after the deadline", late)
		}
		cancel()
		<-stopped
	})
}

// due collects the checkpoints that are due.
func due(e *Expirer) []Checkpoint {
	var all []Checkpoint
	e.Checkpoints(MaxCheckpoints, func(_ uint64, cs []Checkpoint) { all = cs })
	return all
}

func checkpoint(t *testing.T, table *Table, e *Expirer, id ID, remaining int64) {
	t.Helper()
	c, ok := table.Checkpoint(id, remaining)
	if !ok {
		t.Fatalf("no lease %d", id)
	}
	e.Observe(c)
}

func TestCheckpointSteps(t *testing.T) {
	tests := []struct {
		ttl  int64
		want []int64 // remaining times checkpointed while the lease ages unattended
	}{
		{600, []int64{540, 480, 420, 360, 300, 240, 180, 120, 60}},
		{60, []int64{50, 40, 30, 20, 10}},
		{20, []int64{10}},
		{19, nil},
	}
	for _, tc := range tests {
		synctest.Test(t, func(t *testing.T) {
			table, e := openTable(t), NewExpirer()
			e.Promote(1, table, 0)
			grant(t, table, e, 1, tc.ttl)
			var got []int64
			for range tc.ttl {
				pass(time.Second)
				for _, c := range due(e) {
					got = append(got, c.Remaining)
					checkpoint(t, table, e, c.ID, c.Remaining)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("ttl %d: checkpoints %v, want %v", tc.ttl, got, tc.want)
			}
			wantExpired(t, e, 1)
		})
	}
}

func TestKeptAliveLeasesCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, e := openTable(t), NewExpirer()
		e.Promote(1, table, 0)
		for id := range ID(10) {
			grant(t, table, e, id+1, 60)
			if _, err := e.Renew(id + 1); err != nil {
				t.Fatal(err)
			}
		}
		for range 50 {
			pass(20 * time.Second)
			if cs := due(e); cs != nil {
				t.Fatalf("checkpoints %v", cs)
			}
			for id := range ID(10) {
				if r, err := e.Renew(id + 1); err != nil || r.Reset {
					t.Fatalf("got %+v, %v", r, err)
				}
			}
		}
		pass(24 * time.Second) // two fifths
		if cs := due(e); len(cs) != 10 || cs[0].Remaining != 36 {
			t.Errorf("checkpoints %v", cs)
		}
	})
}

// TestAgeSurvivesLeaderChanges is a lease of 600 s, aged 300 s, under three more leaders.
func TestAgeSurvivesLeaderChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const extend = time.Second
		table := openTable(t)
		e := NewExpirer()
		e.Promote(1, table, 0)
		grant(t, table, e, 1, 600)
		live := func(d time.Duration) {
			for range d / time.Second {
				pass(time.Second)
				for _, c := range due(e) {
					checkpoint(t, table, e, c.ID, c.Remaining)
				}
			}
		}
		live(300 * time.Second)
		for term := uint64(2); term <= 4; term++ {
			e.Demote()
			e = NewExpirer()
			e.Promote(term, table, extend)
			live(45 * time.Second) // just short of a step: the worst place for a change
		}
		left, err := e.Remaining(1)
		if err != nil {
			t.Fatal(err)
		}
		true_ := (600 - 300 - 3*45) * time.Second
		if left < true_ || left > true_+3*(60*time.Second+extend) {
			t.Errorf("%v left, want %v up to three steps more", left, true_)
		}
	})
}

func TestRenewalAfterCheckpointAsksForReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, e := openTable(t), NewExpirer()
		e.Promote(1, table, 0)
		grant(t, table, e, 1, 100)
		pass(50 * time.Second)
		cs := due(e)
		if len(cs) != 1 || cs[0].Remaining != 50 {
			t.Fatalf("checkpoints %v", cs)
		}
		renew := func(wantReset bool) {
			t.Helper()
			if r, err := e.Renew(1); err != nil || r.Reset != wantReset || r.Term != 1 {
				t.Errorf("got %+v, %v, want reset %t", r, err, wantReset)
			}
		}
		renew(true) // the checkpoint is on its way
		checkpoint(t, table, e, 1, 50)
		renew(true) // and applied
		checkpoint(t, table, e, 1, 0)
		renew(false)

		pass(50 * time.Second)
		if cs := due(e); len(cs) != 1 {
			t.Fatalf("checkpoints %v", cs)
		}
		// This checkpoint gets lost. The first renewal cannot know, the reset settles it.
		renew(true)
		checkpoint(t, table, e, 1, 0)
		renew(false)
	})
}

func TestResetDoesNotSettleLaterCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, e := openTable(t), NewExpirer()
		if _, err := table.Grant(1, 100); err != nil {
			t.Fatal(err)
		}
		table.Checkpoint(1, 90)
		e.Promote(2, table, 0)
		if r, err := e.Renew(1); err != nil || !r.Reset {
			t.Fatalf("got %+v, %v", r, err)
		}
		pass(50 * time.Second)
		if cs := due(e); len(cs) != 1 { // queued behind the reset
			t.Fatalf("checkpoints %v", cs)
		}
		checkpoint(t, table, e, 1, 0) // the reset is applied, the checkpoint is not
		if r, err := e.Renew(1); err != nil || !r.Reset {
			t.Errorf("the checkpoint under way is forgotten: %+v, %v", r, err)
		}
	})
}

func TestSettleBeforeHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, e := openTable(t), NewExpirer()
		e.Settle(func(uint64, []Checkpoint) { t.Error("a member that does not lead has nothing to settle") })
		e.Promote(4, table, 0)
		grant(t, table, e, 1, 600) // left alone
		grant(t, table, e, 2, 10)  // left alone, too short for checkpoints in normal times
		grant(t, table, e, 3, 600) // kept alive
		if _, err := e.Renew(3); err != nil {
			t.Fatal(err)
		}
		pass(5*time.Second + 300*time.Millisecond)
		grant(t, table, e, 4, 600) // just granted
		got := make(map[ID]int64)
		settle := func() {
			e.Settle(func(term uint64, cs []Checkpoint) {
				if term != 4 {
					t.Errorf("term %d", term)
				}
				for _, c := range cs {
					got[c.ID] = c.Remaining
				}
			})
		}
		settle()
		if len(got) != 2 || got[1] != 595 || got[2] != 5 {
			t.Errorf("settled %v", got)
		}
		for id, remaining := range got {
			checkpoint(t, table, e, id, remaining)
		}
		clear(got)
		settle()
		if len(got) != 0 {
			t.Errorf("settled again %v", got)
		}
		next := NewExpirer()
		next.Promote(5, table, 0)
		for id, want := range map[ID]time.Duration{1: 595 * time.Second, 2: 5 * time.Second, 3: 600 * time.Second, 4: 600 * time.Second} {
			if left, err := next.Remaining(id); err != nil || left != want {
				t.Errorf("lease %d has %v left, %v", id, left, err)
			}
		}
		if r, err := e.Renew(1); err != nil || !r.Reset {
			t.Errorf("renewal after settling: %+v, %v", r, err)
		}
	})
}
