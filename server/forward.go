package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/errs/grpcerr"
	"github.com/coordd/coordd/api/peerpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/lease"
)

// forwardRetry is the pause before the leader, or its successor, is asked again.
const forwardRetry = 50 * time.Millisecond

// maxForward is how many renewals go to the leader in one call.
const maxForward = 1000

// renewal is a client's renewal on its way to the leader.
type renewal struct {
	id   int64
	ttl  int64
	err  error
	done chan struct{} // closed when ttl and err are final
}

// forwarder takes lease requests of a member that follows to the leader.
// Renewals that arrive while a call is under way share the next one.
type forwarder struct {
	n    *Node
	wake chan struct{} // holds one token when renewals wait

	mu      sync.Mutex // guards waiting
	waiting []*renewal
}

func newForwarder(n *Node) *forwarder {
	return &forwarder{n: n, wake: make(chan struct{}, 1)}
}

// renew has the leader renew a lease.
func (f *forwarder) renew(ctx context.Context, id int64) (int64, error) {
	r := &renewal{id: id, done: make(chan struct{})}
	f.mu.Lock()
	f.waiting = append(f.waiting, r)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
	select {
	case <-r.done:
		return r.ttl, r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-f.n.ending:
		return 0, errs.ErrStopped
	}
}

// run sends renewals, a batch at a time, until ctx ends.
func (f *forwarder) run(ctx context.Context) error {
	for {
		select {
		case <-f.wake:
		case <-ctx.Done():
			return nil
		}
		for {
			f.mu.Lock()
			n := min(len(f.waiting), maxForward)
			batch := f.waiting[:n:n]
			f.waiting = f.waiting[n:]
			f.mu.Unlock()
			if n == 0 {
				break
			}
			f.send(ctx, batch)
		}
	}
}

// send asks whoever leads until there is an answer or the request timeout is over.
func (f *forwarder) send(ctx context.Context, batch []*renewal) {
	ids := make([]int64, len(batch))
	for i, r := range batch {
		ids[i] = r.id
	}
	var ttls []int64
	err := f.ask(ctx, func(ctx context.Context, leader uint64) (err error) {
		if leader == f.n.id {
			ttls, err = f.n.renewAll(ctx, ids)
			return err
		}
		resp, err := f.n.transport.LeaseKeepAlive(ctx, leader, &peerpb.LeaseKeepAliveRequest{Ids: ids})
		if err == nil && len(resp.Ttls) != len(ids) {
			return fmt.Errorf("server: the leader answered %d renewals of %d", len(resp.Ttls), len(ids))
		}
		ttls = resp.GetTtls()
		return err
	})
	for i, r := range batch {
		switch {
		case err != nil:
			r.err = err
		case ttls[i] == 0:
			r.err = errs.ErrLeaseNotFound
		default:
			r.ttl = ttls[i]
		}
		close(r.done)
	}
}

// timeToLive has the leader say what is left of a lease.
func (f *forwarder) timeToLive(ctx context.Context, r *rpcpb.LeaseTimeToLiveRequest) (resp *rpcpb.LeaseTimeToLiveResponse, err error) {
	err = f.ask(ctx, func(ctx context.Context, leader uint64) (err error) {
		if leader == f.n.id {
			resp, err = f.n.timeToLiveHere(ctx, r)
			return err
		}
		resp, err = f.n.transport.LeaseTimeToLive(ctx, leader, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	resp.Header = f.n.Header(0)
	return resp, nil
}

// ask calls f with the leader until it answers. Errors of the network and of a
// member that turns out not to lead are tried again, with the leader of that time.
// A call ends when the leader changes: one that was stopped or cut off might
// hold it for longer than the leases last.
func (f *forwarder) ask(ctx context.Context, call func(ctx context.Context, leader uint64) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, f.n.cfg.requestTimeout(), errs.ErrTimeout)
	defer cancel()
	for {
		changed := f.n.leadership.changed()
		if leader := f.n.Leader(); leader != 0 {
			callCtx, stop := until(ctx, changed)
			err := call(callCtx, leader)
			stop()
			if err == nil || !worthAsking(err) {
				return err
			}
		}
		retry := time.NewTimer(forwardRetry)
		select {
		case <-retry.C:
		case <-ctx.Done():
			retry.Stop()
			if f.n.Leader() == 0 {
				return errs.ErrNoLeader
			}
			return context.Cause(ctx)
		case <-f.n.ending:
			retry.Stop()
			return errs.ErrStopped
		}
	}
}

// until is ctx that also ends with the closing of a channel. Its goroutine ends
// with it; stop must be called.
func until(ctx context.Context, end <-chan struct{}) (_ context.Context, stop context.CancelFunc) {
	ctx, stop = context.WithCancel(ctx)
	go func() {
		defer stop()
		select {
		case <-end:
		case <-ctx.Done():
		}
	}()
	return ctx, stop
}

// worthAsking tells errors that another try may mend.
func worthAsking(err error) bool {
	if errors.Is(err, errs.ErrNotPrimaryLessor) || errors.Is(err, errs.ErrLeaderChanged) || errors.Is(err, context.Canceled) {
		return true
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	}
	return false
}

// peerError gives an error the form in which it crosses to another member.
func peerError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errs.ErrNotPrimaryLessor):
		return status.Error(codes.Unavailable, err.Error())
	}
	return grpcerr.ToStatus(err)
}

// renewAll renews as the leader; the time to live of a lease that is gone is 0.
// Most renewals are one look-up; those that have to wait for the log do so side
// by side, so that they hold up nobody but this call.
func (n *Node) renewAll(ctx context.Context, ids []int64) ([]int64, error) {
	if err := n.waitCommitted(ctx); err != nil {
		return nil, err
	}
	ttls := make([]int64, len(ids))
	var slow errgroup.Group
	for i, id := range ids {
		if r, err := n.expirer.Renew(lease.ID(id)); err == nil && !r.Reset {
			ttls[i] = r.TTL
			n.metrics.leaseRenewed.Inc()
			continue
		}
		slow.Go(func() (err error) {
			if ttls[i], err = n.renewHere(ctx, lease.ID(id)); errors.Is(err, errs.ErrLeaseNotFound) {
				return nil
			}
			return err
		})
	}
	if err := slow.Wait(); err != nil {
		return nil, err
	}
	return ttls, n.confirmLeading(ctx)
}
