package concurrency

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

// Conditions. They are found with errors.Is; those that the services Lock and Election know, too, are the same values as
// in package errs.
var (
	// ErrSessionExpired: the lease of the session has ended, or may have since it could not be renewed in time. What
	// lived on it, locks and leaderships, is lost.
	ErrSessionExpired error = errs.ErrSessionExpired
	// ErrSessionClosed: the session was ended by Close, Orphan or its context.
	ErrSessionClosed = errors.New("concurrency: session is closed")
	// ErrLocked: TryLock found the lock taken.
	ErrLocked = errors.New("concurrency: lock is held by another session")
	// ErrInUse: this session already holds or waits for a lock or leadership of that name. One session is one owner, so
	// it cannot wait for itself: use a session for each party, or share one [NewLocker].
	ErrInUse = errors.New("concurrency: this session already holds or waits for that name")
	// ErrNotHeld: Unlock, of a lock that is not held: never taken, given back already, or lost.
	ErrNotHeld = errors.New("concurrency: lock is not held")
	// ErrLost: the key of a lock or a leadership is gone although its lease was not known to have ended.
	ErrLost = errors.New("concurrency: the key was deleted; the lock or leadership is lost")
	// ErrNotLeader: the election is not led by the one who asks.
	ErrNotLeader error = errs.ErrElectionNotLeader
	// ErrNoLeader: nobody leads.
	ErrNoLeader error = errs.ErrElectionNoLeader
)

// Bounds of the pauses between attempts; see pause.
const (
	minPause = 2 * time.Millisecond
	maxPause = 500 * time.Millisecond
	// cleanupTime bounds what is done after the caller's context has ended.
	cleanupTime = 5 * time.Second
)

// pause waits at random between 0 and a bound that doubles with each attempt, from minPause to maxPause. The spread over
// the whole interval ("full jitter") keeps parties that collided once from colliding again. It gives why ctx
// ended, if it did.
func pause(ctx context.Context, attempt int) error {
	bound := min(minPause<<min(attempt, 16), maxPause)
	t := time.NewTimer(rand.N(bound))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// commit sends a transaction that may run twice, until its outcome is known or ctx ends. again tells that an attempt
// whose outcome is unknown came before the answer.
func commit(ctx context.Context, send func() (*rpcpb.TxnResponse, error)) (resp *rpcpb.TxnResponse, again bool, err error) {
	for n := 0; ; n++ {
		resp, err = send()
		if !errors.Is(err, client.ErrUnknownOutcome) || ctx.Err() != nil {
			return resp, again, err
		}
		again = true
		if pause(ctx, n) != nil {
			return nil, true, err
		}
	}
}

// cleanup gives a context for work after ctx has ended.
func cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
}
