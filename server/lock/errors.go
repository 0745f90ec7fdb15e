package lock

import (
	"context"
	"errors"
	"time"

	"github.com/coordd/coordd/api/errs"
)

const (
	firstPause = 20 * time.Millisecond // before something that failed for want of a leader is tried again
	maxPause   = time.Second
)

// passing reports errors that another try may mend: the cluster has no leader, or changes it.
func passing(err error) bool {
	return errors.Is(err, errs.ErrNotPrimaryLessor) || errors.Is(err, errs.ErrTooManyRequests) ||
		errs.KindOf(err) == errs.Unavailable && !errors.Is(err, errs.ErrStopped)
}

// persist calls f until it succeeds, fails for good, or ctx ends. Losing the cluster's leader is no reason to give up.
func persist(ctx context.Context, f func(context.Context) error) error {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := f(ctx)
		if err == nil || !passing(err) {
			return err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
	}
}
