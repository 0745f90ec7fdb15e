package rpc

import (
	"context"
	"sync"
	"time"

	"github.com/coordd/coordd/api/errs"
)

// leaderChecks is at how many checks in a row no leader must be known for streams to end.
const leaderChecks = 3

// leaderWatch ends streams that require a leader when there has been none for long. Its goroutine runs
// while there are such streams.
type leaderWatch struct {
	state State
	every time.Duration // between checks: the election timeout

	mu      sync.Mutex // guards all below
	streams map[*requiring]struct{}
	stop    chan struct{} // ends the goroutine; nil when there is none
}

// requiring is one stream.
type requiring struct{ cancel context.CancelCauseFunc }

// watch derives a context that ends with errs.ErrNoLeader as its cause when no leader is known for long.
// The caller calls done when it needs it no more.
func (w *leaderWatch) watch(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	r := &requiring{cancel}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.streams == nil {
		w.streams = map[*requiring]struct{}{}
	}
	w.streams[r] = struct{}{}
	if w.stop == nil {
		w.stop = make(chan struct{})
		go w.run(w.stop)
	}
	return ctx, func() {
		cancel(nil)
		w.forget(r)
	}
}

// forget drops a stream. With the last one the goroutine ends.
func (w *leaderWatch) forget(r *requiring) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.streams, r)
	if len(w.streams) == 0 && w.stop != nil {
		close(w.stop)
		w.stop = nil
	}
}

// run checks until stop is closed.
func (w *leaderWatch) run(stop chan struct{}) {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for missing := 0; ; {
		select {
		case <-tick.C:
		case <-stop:
			return
		}
		if missing++; w.state.Leader() != 0 {
			missing = 0
		}
		if missing >= leaderChecks {
			w.cancelAll()
			missing = 0
		}
	}
}

// cancelAll ends all streams there are now.
func (w *leaderWatch) cancelAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range w.streams {
		r.cancel(errs.ErrNoLeader)
	}
}
