package history

import (
	"fmt"
	"time"
)

// Tenure is one lease with one key, from its grant to its end, as its holder knows it. Times are since the begin of the run.
type Tenure struct {
	ID  int64
	TTL time.Duration
	Key string
	// Alive is when the last call began that surely gave it its whole time to live.
	Alive time.Duration
	// Renewed is when it can have got its whole time to live for the last time.
	Renewed time.Duration
	// Dropped is when its holder asked for its end, or gave up its key, for the first time; 0: never.
	Dropped time.Duration
}

// Slack is how late a lease may end when nothing was disturbed for its whole time to live.
type Slack struct {
	Late time.Duration
	// Calm is the last moment between two at which something was disturbed, the first of them if nothing was.
	Calm func(from, to time.Duration) time.Duration
}

// Early gives an error if the end of the lease, seen by somebody at some time, came too early.
func (t *Tenure) Early(seen time.Duration) error {
	if seen >= t.Alive+t.TTL || t.Dropped > 0 && seen >= t.Dropped {
		return nil
	}
	return fmt.Errorf("lease %x of %v, given its whole time at %.3fs or later, had ended at %.3fs", t.ID, t.TTL, t.Alive.Seconds(), seen.Seconds())
}

// Check holds the end of the lease against what was promised; life is that of its key, and now is the end of the run.
func (t *Tenure) Check(life Life, slack Slack, now time.Duration) error {
	ended := now
	if life.Delete != 0 {
		if err := t.Early(life.Deleted); err != nil {
			return fmt.Errorf("%w, at revision %d", err, life.Delete)
		}
		ended = life.Deleted
	}
	base := slack.Calm(max(t.Renewed, life.Created), ended)
	if ended-base <= t.TTL+slack.Late {
		return nil
	}
	what := "ended"
	if life.Delete == 0 {
		what = "has not ended"
	}
	return fmt.Errorf("lease %x of %v, renewed until %.3fs at the latest and undisturbed since %.3fs, %s at %.3fs, which is late",
		t.ID, t.TTL, t.Renewed.Seconds(), base.Seconds(), what, ended.Seconds())
}
