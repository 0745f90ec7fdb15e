package client

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/errs/grpcerr"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// Times of the probe.
const (
	probeTimeout  = time.Second
	probeFirst    = 250 * time.Millisecond
	probeLongest  = 5 * time.Second
	probeDoubling = 2
)

// health is what a probe found.
type health uint8

const (
	healthy health = iota
	useless        // it answers, but has no leader or is a learner
	silent         // it does not answer
)

// probe asks an endpoint that was set aside until it is healthy again or has left the pool. When it does not
// answer at all, its streams are moved.
func (p *pool) probe(e *endpoint, suspect bool) {
	pause := probeFirst
	if suspect {
		pause = 0
	}
	for sleep(e.ctx, pause) {
		found := p.ask(e.ctx, e)
		if e.ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		switch found {
		case healthy:
			e.aside = false
			p.mu.Unlock()
			p.opts.log.Info("endpoint is well again", zap.String("endpoint", e.name))
			return
		case silent:
			for s := range e.streams {
				s.move(errSilent)
			}
		}
		p.mu.Unlock()
		pause = min(max(pause*probeDoubling, probeFirst), probeLongest)
	}
}

// ask is the probe's question: a Status call, which a member answers without its peers.
func (c *Client) ask(ctx context.Context, e *endpoint) health {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	ctx, err := c.outgoing(ctx, call{method: services.Maintenance_Status_FullMethodName, local: true, anonymous: true})
	if err != nil {
		return silent
	}
	resp := new(rpcpb.StatusResponse)
	err = e.conn.Invoke(ctx, services.Maintenance_Status_FullMethodName, new(rpcpb.StatusRequest), resp, grpc.WaitForReady(true))
	var known *errs.Error
	switch {
	case err == nil && (resp.Leader == 0 || resp.IsLearner):
		return useless
	case err == nil:
		return healthy
	case errors.As(grpcerr.FromStatus(err), &known):
		// It answers. Without a token of ours it may refuse to say more; that is no illness.
		if known.Kind() == errs.Unavailable {
			return useless
		}
		return healthy
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return silent
	}
	return healthy
}
