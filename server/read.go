package server

import (
	"context"
	"sync"
	"time"

	"github.com/coordd/coordd/api/errs"
)

// readRetry is how long a ReadIndex request may stay unanswered before it is
// sent again: a message to or from the leader may be lost.
const readRetry = 500 * time.Millisecond

// readRound is one ReadIndex request and the readers that share it.
type readRound struct {
	done chan struct{} // closed when err is final
	err  error
}

// readRounds collects readers into rounds.
type readRounds struct {
	wake chan struct{} // holds one token when a round waits to be run

	mu   sync.Mutex // guards next and closed
	next *readRound // the round that a reader arriving now belongs to, nil when none waits
	end  error      // set when no more rounds are run
}

func newReadRounds() *readRounds { return &readRounds{wake: make(chan struct{}, 1)} }

// join returns the round that begins after this call.
func (r *readRounds) join() *readRound {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &readRound{done: make(chan struct{})}
		if r.end != nil {
			r.next.finish(r.end)
			return r.next
		}
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
	return r.next
}

// take closes the waiting round for further readers and returns it.
func (r *readRounds) take() *readRound {
	r.mu.Lock()
	defer r.mu.Unlock()
	round := r.next
	r.next = nil
	return round
}

// stop fails the waiting round and all later ones.
func (r *readRounds) stop(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end = err
	if r.next != nil {
		r.next.finish(err)
	}
}

func (r *readRound) finish(err error) {
	r.err = err
	close(r.done)
}

// LinearizableWait returns once everything that was committed in the cluster
// before the call is applied and published at this member, so that a local
// read then is linearizable. It fails with ErrTimeout after the request
// timeout (no leader, or no quorum), ErrStopped when the node ends, and the
// context's error.
func (n *Node) LinearizableWait(ctx context.Context) error {
	round := n.reads.join()
	select {
	case <-round.done:
		return round.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// readLoop runs round after round until ctx ends.
func (n *Node) readLoop(ctx context.Context) error {
	defer n.reads.stop(errs.ErrStopped)
	for {
		select {
		case <-n.reads.wake:
		case <-ctx.Done():
			return nil
		}
		if round := n.reads.take(); round != nil {
			round.finish(n.confirmRead(ctx))
		}
	}
}

// confirmRead asks raft for the index that reads arriving before this call have
// to see, and waits until it is applied.
func (n *Node) confirmRead(ctx context.Context) error {
	timeout := time.NewTimer(n.cfg.requestTimeout())
	defer timeout.Stop()
	index, err := n.readIndex(ctx, timeout.C)
	if err != nil {
		n.metrics.readIndexFailed.Inc()
		return err
	}
	if n.appliedIndex.Load() >= index {
		return nil
	}
	select {
	case <-n.applied.Wait(index):
		return nil
	case <-timeout.C:
		return errs.ErrTimeout
	case <-ctx.Done():
		return errs.ErrStopped
	}
}

// readIndex sends the request again when it stays unanswered and whenever the
// leader changes: an answer that a former leader owed never comes. Any of the
// answers is as good as the last, since all requests are younger than the
// readers of the round.
func (n *Node) readIndex(ctx context.Context, timeout <-chan time.Time) (uint64, error) {
	answer := make(chan uint64, 1)
	var ids []uint64
	defer func() {
		for _, id := range ids {
			n.readAnswers.Delete(id)
		}
	}()
	retry := time.NewTimer(readRetry)
	defer retry.Stop()
	for {
		id, changed := n.ids.Next(), n.leadership.changed()
		ids = append(ids, id)
		n.readAnswers.Store(id, answer)
		n.raft.ReadIndex(id)
		select {
		case index := <-answer:
			return index, nil
		case <-retry.C:
			n.metrics.readIndexSlow.Inc()
			retry.Reset(readRetry)
		case <-changed:
		case <-timeout:
			return 0, errs.ErrTimeout
		case <-ctx.Done():
			return 0, errs.ErrStopped
		}
	}
}

// onRead takes raft's answer to the ReadIndex request id. It is called on the
// drive loop and must not block.
func (n *Node) onRead(id, index uint64) {
	if c, ok := n.readAnswers.Load(id); ok {
		select {
		case c.(chan uint64) <- index:
		default: // another try of the same round was faster
		}
	}
}
