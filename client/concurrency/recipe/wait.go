package recipe

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/client"
)

// next waits for the next change of keys after a revision. That history is compacted counts as one: the caller looks anew.
func next(ctx context.Context, c *client.Client, key string, rev int64, opts ...client.WatchOption) error {
	w := c.Watch(ctx, key, append(opts, client.WithRev(rev+1))...)
	defer w.Close()
	for {
		r, err := w.Next(ctx)
		if errors.Is(err, errs.ErrCompacted) || err == nil && len(r.Events) > 0 {
			return nil
		}
		if err != nil {
			return because(ctx, err)
		}
	}
}

// because gives the cause of the end of ctx in place of what it broke.
func because(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil && !errors.Is(err, client.ErrUnknownOutcome) {
		return why
	}
	return err
}

// pause waits a random time below a bound that doubles with each attempt up to 250 ms.
func pause(ctx context.Context, attempt int) error {
	t := time.NewTimer(rand.N(min(time.Millisecond<<min(attempt, 16), 250*time.Millisecond)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
