package client

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/errs/grpcerr"
)

// Metadata of calls.
const (
	apiVersionKey = "client-api-version"
	apiVersion    = "3.7"
	leaderKey     = "hasleader"
	tokenKey      = "token"
)

// call describes a request to the loop that repeats it.
type call struct {
	method string
	// idempotent: it may run more than once.
	idempotent bool
	// local: a member may answer it without a leader.
	local bool
	// anonymous: it goes without a token.
	anonymous bool
	// stream carries it out if it is a stream with the looks of a unary call; nil if it is unary.
	stream func(ctx context.Context, conn grpc.ClientConnInterface, req, resp any) error
}

// attempt is what came of sending a call once.
type attempt struct {
	err error // as gRPC gave it
	// sent is false only if the request certainly never reached a connection.
	sent bool
	// timedOut: the bound of this attempt passed, not that of the call.
	timedOut bool
	token    string
}

// invoke sends a call until it has an answer, the context ends, or repeating it could run it twice.
func (c *Client) invoke(ctx context.Context, k call, req, resp any) error {
	var avoid *endpoint
	var last *CallError
	for failures, renewals := 0, 0; ; {
		e, err := c.pool.pick(avoid)
		if err != nil {
			return err
		}
		var bound time.Duration
		if n := c.pool.size(); k.idempotent && n > 1 {
			bound = c.opts.retry.perTry(failures, n)
		}
		a := c.try(ctx, e, k, req, resp, bound)
		c.pool.release(e)
		if a.err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return c.ended(ctx, k, e, a, last)
		}
		v := c.judge(k, a)
		if v.renew {
			c.tokens.expire(a.token)
			if renewals++; renewals > 2 {
				return v.err
			}
			continue
		}
		if v.trouble {
			c.pool.setAside(e, a.err, a.timedOut)
			avoid = e
		}
		failures++
		limit := c.opts.retry.MaxAttempts
		if !v.again || limit > 0 && failures >= limit {
			return conclude(k, e, v)
		}
		last = &CallError{Method: k.method, Endpoint: e.name, Err: v.err}
		n := c.pool.size()
		if errors.Is(v.err, errs.ErrTooManyRequests) {
			n = 0 // every member would say so: no hurry to the next
		}
		if !sleep(ctx, c.opts.retry.pause(failures, n)) {
			return c.ended(ctx, k, nil, attempt{}, last)
		}
	}
}

// try sends a call once, and waits no longer than bound if that is not 0.
func (c *Client) try(ctx context.Context, e *endpoint, k call, req, resp any, bound time.Duration) attempt {
	sub := ctx
	if bound > 0 {
		var cancel context.CancelFunc
		sub, cancel = context.WithTimeout(ctx, bound)
		defer cancel()
	}
	out, err := c.outgoing(sub, k)
	if err != nil {
		return attempt{err: err}
	}
	sent := true
	if k.stream != nil {
		err = k.stream(out, e.conn, req, resp)
	} else {
		// gRPC fills in the peer when the request was given to a connection, and only then.
		var p peer.Peer
		err = e.conn.Invoke(out, k.method, req, resp, grpc.Peer(&p))
		sent = e.dialled == nil || p.Addr != nil
	}
	return attempt{
		err:      err,
		sent:     sent,
		timedOut: err != nil && bound > 0 && passed(sub) && ctx.Err() == nil,
		token:    sentToken(out),
	}
}

// passed reports whether the deadline of a context is over. The server knows it too, and its answer that time is up may
// come before Err of the context says so.
func passed(ctx context.Context) bool {
	d, ok := ctx.Deadline()
	return ok && !time.Now().Before(d)
}

// outgoing adds the metadata of a call, fetching a token first if there is none.
func (c *Client) outgoing(ctx context.Context, k call) (context.Context, error) {
	pairs := make([]string, 0, 6)
	pairs = append(pairs, apiVersionKey, apiVersion)
	if !k.local {
		pairs = append(pairs, leaderKey, "true")
	}
	if c.tokens != nil && !k.anonymous {
		token, err := c.tokens.get(ctx)
		if err != nil {
			return ctx, err
		}
		if token != "" {
			pairs = append(pairs, tokenKey, token)
		}
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...), nil
}

// sentToken gives the token in outgoing metadata.
func sentToken(ctx context.Context) string {
	md, _ := metadata.FromOutgoingContext(ctx)
	if v := md.Get(tokenKey); len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

// verdict is what to make of a failed attempt.
type verdict struct {
	err     error // the condition, or what gRPC gave
	again   bool  // repeating cannot do harm and may help
	trouble bool  // another endpoint may do better
	renew   bool  // the token is of no use any more
	maybe   bool  // a write may have been applied
}

// judge decides about an attempt that failed while the context of the call was alive.
func (c *Client) judge(k call, a attempt) verdict {
	v := verdict{err: grpcerr.FromStatus(a.err)}
	if _, ok := v.err.(*errs.Error); ok {
		return c.judgeAnswer(k, v)
	}
	if _, ok := status.FromError(a.err); !ok { // trouble before the call, such as at fetching the token
		return v
	}
	retriable := k.idempotent || !a.sent
	switch {
	case a.timedOut:
		v.trouble, v.again = true, true // only attempts of idempotent calls have a bound
	case status.Code(a.err) == codes.Unavailable:
		v.trouble, v.again = true, retriable
	case status.Code(a.err) == codes.Canceled: // not by the caller: the server or its connection went away
		v.trouble, v.again = true, retriable
	}
	v.maybe = !retriable && !refused(a.err)
	return v
}

// judgeAnswer decides about a condition that a server reported.
func (c *Client) judgeAnswer(k call, v verdict) verdict {
	switch v.err {
	case errs.ErrInvalidAuthToken, errs.ErrAuthOldRevision, errs.ErrUserEmpty:
		v.renew = c.tokens != nil && c.tokens.renewable() && !k.anonymous
		return v
	case errs.ErrNoLeader: // said before anything is done
		v.trouble, v.again = true, true
		return v
	case errs.ErrTooManyRequests: // likewise
		v.again = true
		return v
	case errs.ErrNotSupportedForLearner: // likewise
		v.trouble, v.again = true, c.pool.size() > 1
		return v
	case errs.ErrUnhealthy: // a membership change that was refused
		return v
	}
	switch v.err.(*errs.Error).Kind() {
	case errs.Unavailable:
		v.trouble, v.again, v.maybe = true, k.idempotent, !k.idempotent
	case errs.Canceled, errs.DeadlineExceeded:
		v.maybe = !k.idempotent
	case errs.Unknown:
		v.maybe = !k.idempotent && v.err == errs.ErrTimeoutLeaderTransfer
	}
	return v
}

// refused tells of a status that says the request was not carried out.
func refused(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.Unauthenticated:
		return true
	case codes.ResourceExhausted:
		// Said by our own side before sending. The words for a message too large to receive do not tell
		// whether the request or its answer is meant.
		return strings.Contains(err.Error(), "trying to send message larger")
	}
	return false
}

// conclude gives the error of a call that is not repeated.
func conclude(k call, e *endpoint, v verdict) error {
	if _, ok := v.err.(*errs.Error); ok && !v.maybe {
		return v.err
	}
	if _, ok := status.FromError(v.err); !ok && !v.maybe {
		return v.err
	}
	return &CallError{Method: k.method, Endpoint: e.name, MaybeApplied: v.maybe, Err: v.err}
}

// ended gives the error of a call whose context ended, during the attempt at e or, with e nil, in a pause.
func (c *Client) ended(ctx context.Context, k call, e *endpoint, a attempt, last *CallError) error {
	out := &CallError{Method: k.method, Err: ctx.Err()}
	if e != nil {
		out.Endpoint = e.name
		out.MaybeApplied = a.sent && !k.idempotent
		if v := grpcerr.FromStatus(a.err); a.err != nil {
			if known, ok := v.(*errs.Error); ok && known.Kind() != errs.Canceled && known.Kind() != errs.DeadlineExceeded {
				verdict := c.judgeAnswer(k, verdict{err: v})
				return conclude(k, e, verdict) // an answer came just in time
			}
		}
	}
	if last != nil {
		out.Last = last.Err
		out.Endpoint = last.Endpoint
	}
	return out
}
