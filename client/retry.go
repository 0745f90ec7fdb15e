package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// RetryPolicy says how a call is repeated.
type RetryPolicy struct {
	// Base is the pause after the first round of failures, a round being one attempt at each
	// endpoint; within the first round there is no pause. It doubles with each attempt after.
	Base time.Duration
	// Max bounds the pause. The actual pause lies between its half and the whole, at random.
	Max time.Duration
	// PerTry bounds one attempt of a call that may be repeated, if there is another endpoint to
	// try. It doubles after each round so that a slow answer comes through in the end. A read that
	// takes longer than this while the member is well costs a second attempt, nothing else.
	PerTry time.Duration
	// MaxAttempts bounds the attempts of one call; 0 leaves it to the context of the call.
	MaxAttempts int
}

// DefaultRetryPolicy gives pauses of 25 ms to 1 s, 2 s for an attempt, and no bound on their number.
func DefaultRetryPolicy() RetryPolicy {
	return RetryPolicy{Base: 25 * time.Millisecond, Max: time.Second, PerTry: 2 * time.Second}
}

// validate refuses values that cannot work.
func (p RetryPolicy) validate() error {
	if p.Base <= 0 || p.Max < p.Base || p.PerTry <= 0 || p.MaxAttempts < 0 {
		return fmt.Errorf("retry policy %+v: Base and PerTry must be above zero, Max not below Base, MaxAttempts not negative", p)
	}
	return nil
}

// pause gives how long to wait after so many failures in a row with so many endpoints.
func (p RetryPolicy) pause(failures, endpoints int) time.Duration {
	over := failures - endpoints
	if over < 0 {
		return 0
	}
	d := p.Max
	if over < 30 && p.Base<<over < p.Max {
		d = p.Base << over
	}
	return d/2 + rand.N(d/2+1)
}

// perTry gives the bound of the attempt after so many failures.
func (p RetryPolicy) perTry(failures, endpoints int) time.Duration {
	return p.PerTry << min(failures/max(endpoints, 1), 6)
}

// sleep waits, and tells whether it did so to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
