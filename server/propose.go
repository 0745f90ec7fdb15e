package server

import (
	"context"
	"time"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/requestpb"
	"github.com/coordd/coordd/apply"
)

// maxApplyLag is how many committed entries may wait to be applied before new
// requests are refused: an overload would otherwise grow the queue until each
// request in it times out.
const maxApplyLag = 5000

// propose replicates a request and returns what applying it gave.
//
// The error is the request's own (apply.Result.Err), or says why no result
// came: too large, too many requests, timed out, stopped, or the context's
// error. After a time-out or the context's end the request may still be applied
// later.
func (n *Node) propose(ctx context.Context, req *requestpb.InternalRaftRequest) (any, error) {
	return n.proposeBy(ctx, req, n.raft.Propose)
}

// proposeBy is propose with the method of raft that takes the proposal.
func (n *Node) proposeBy(ctx context.Context, req *requestpb.InternalRaftRequest, take func(id uint64, data []byte) error) (any, error) {
	begin := time.Now()
	wait, err := n.enqueue(ctx, req, take)
	var resp any
	if err == nil {
		resp, err = wait()
	}
	n.metrics.request.observe(kindOf(req), begin, err)
	return resp, err
}

// enqueue puts a request into raft's queue of proposals, by the given method of raft, and returns a function
// that waits for its result, which must be called once. It does not block.
func (n *Node) enqueue(ctx context.Context, req *requestpb.InternalRaftRequest, take func(id uint64, data []byte) error) (wait func() (any, error), err error) {
	if commit, applied := n.raft.Status().Commit, n.appliedIndex.Load(); commit > applied+maxApplyLag {
		return nil, errs.ErrTooManyRequests
	}
	id := n.ids.Next()
	if req.Header == nil {
		req.Header = &requestpb.RequestHeader{}
	}
	req.Header.ID = id
	data, err := req.MarshalVT()
	if err != nil {
		return nil, err
	}
	if uint(len(data)) > n.cfg.MaxRequestBytes {
		return nil, errs.ErrRequestTooLarge
	}
	result := n.waits.Register(id)
	begin := time.Now()
	if err := take(id, data); err != nil {
		n.waits.Cancel(id)
		n.metrics.proposalsFailed.Inc()
		return nil, n.proposeErr(err)
	}
	return func() (any, error) { return n.awaitResult(ctx, id, result, begin) }, nil
}

// awaitResult waits for the result of the proposal id, queued at begin.
func (n *Node) awaitResult(ctx context.Context, id uint64, result <-chan apply.Result, begin time.Time) (any, error) {
	n.metrics.proposalsPending.Inc()
	defer n.metrics.proposalsPending.Dec()
	timeout := time.NewTimer(n.cfg.requestTimeout())
	defer timeout.Stop()
	var err error
	select {
	case r := <-result:
		return r.Response, r.Err
	case <-ctx.Done():
		err = ctx.Err()
	case <-timeout.C:
		err = n.timeoutError(begin)
	case <-n.ending:
		err = errs.ErrStopped
	}
	n.raft.Withdraw(id)
	n.waits.Cancel(id)
	n.metrics.proposalsFailed.Inc()
	return nil, err
}

// timeoutError tells why a request that began at begin got no answer.
func (n *Node) timeoutError(begin time.Time) error {
	switch {
	case n.leadership.lostSince(begin):
		return errs.ErrTimeoutDueToLeaderFail
	case !n.quorumConnected():
		return errs.ErrTimeoutDueToConnectionLost
	}
	return errs.ErrTimeout
}
