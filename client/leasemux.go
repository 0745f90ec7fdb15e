package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// Times of the keepalive stream.
const (
	renewalsPerTTL = 3
	shortestStall  = 500 * time.Millisecond
	longestStall   = 3 * time.Second
	unknownStall   = 2 * time.Second
	// longestPause bounds the pause between streams: a lease does not wait for a cluster to be polite to.
	longestPause = 250 * time.Millisecond
	// slack is how much earlier a request may go than it is due, so that leases are looked through for many
	// requests at once and not for each.
	slack = 20 * time.Millisecond
)

// renewal is a lease being kept alive. It is guarded by leaseMux.mu.
type renewal struct {
	id      int64
	keepers []*Keeper
	ttl     time.Duration // as the server said last; 0 before the first answer
	due     time.Time     // of the next request
	sent    time.Time     // of the request without an answer; zero if there is none
}

// stall is how long an answer may take before the stream is taken for dead.
func (r *renewal) stall() time.Duration {
	if r.ttl == 0 {
		return unknownStall
	}
	return min(max(r.ttl/renewalsPerTTL, shortestStall), longestStall)
}

// leaseMux keeps all leases of a client alive over one stream. While there are leases one goroutine, run, opens the
// stream and sends; a second one, for each stream, receives.
type leaseMux struct {
	c    *Client
	wake chan struct{} // there is something new to send

	mu      sync.Mutex
	closed  bool
	running bool
	leases  map[int64]*renewal
	// careful: the last stream was ended by a refusal that could have meant any of several leases, so requests go
	// one by one until it is known which.
	careful bool
	// look is when the sender looks through the leases next.
	look time.Time
}

func newLeaseMux(c *Client) *leaseMux {
	return &leaseMux{c: c, wake: make(chan struct{}, 1), leases: map[int64]*renewal{}}
}

// add begins to renew the lease of a keeper.
func (m *leaseMux) add(k *Keeper) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		k.end(ErrClosed)
		return
	}
	if k.Err() != nil { // its context ended meanwhile
		return
	}
	r := m.leases[int64(k.id)]
	if r == nil {
		r = &renewal{id: int64(k.id)}
		m.leases[r.id] = r
	}
	r.keepers = append(r.keepers, k)
	r.due = time.Now()
	if !m.running {
		m.running = m.c.start(m.run)
	}
	m.signal()
}

// drop ends a keeper.
func (m *leaseMux) drop(k *Keeper, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k.end(why)
	if r := m.leases[int64(k.id)]; r != nil {
		r.keepers = slices.DeleteFunc(r.keepers, func(other *Keeper) bool { return other == k })
		if len(r.keepers) == 0 {
			delete(m.leases, r.id)
			m.signal()
		}
	}
}

// close ends all keepers.
func (m *leaseMux) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.endAllLocked(ErrClosed)
}

func (m *leaseMux) endAllLocked(why error) {
	for id := range m.leases {
		m.endLocked(id, why)
	}
	m.signal()
}

func (m *leaseMux) endLocked(id int64, why error) {
	for _, k := range m.leases[id].keepers {
		k.end(why)
	}
	delete(m.leases, id)
}

// signal wakes the sender.
func (m *leaseMux) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// run keeps a stream open while there are leases.
func (m *leaseMux) run() {
	var avoid *endpoint
	for failures := 0; ; {
		m.mu.Lock()
		if len(m.leases) == 0 || m.closed {
			m.running = false
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
		e, answered, err := m.serve(avoid)
		if err == nil {
			continue
		}
		avoid = e
		if answered {
			failures = 0
		}
		failures++
		m.c.opts.log.Debug("keepalive stream ended", zap.Error(err))
		m.pause(min(m.c.opts.retry.pause(failures, m.c.pool.size()), longestPause))
	}
}

// pause waits, but not when all leases have gone.
func (m *leaseMux) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-m.c.ctx.Done():
			return
		case <-m.wake:
			m.mu.Lock()
			none := len(m.leases) == 0
			m.mu.Unlock()
			if none {
				return
			}
		}
	}
}

// serve runs one stream. It gives the endpoint, whether the server answered at all, and why the stream ended, nil if
// there is nothing left to renew.
func (m *leaseMux) serve(avoid *endpoint) (e *endpoint, answered bool, err error) {
	e, err = m.c.pool.pick(avoid)
	if err != nil {
		return nil, false, err
	}
	defer m.c.pool.release(e)
	ctx, cancel := context.WithCancelCause(m.c.ctx)
	defer cancel(nil)
	defer m.c.pool.track(e, cancel)()
	out, err := m.c.outgoing(ctx, call{})
	if err != nil {
		m.failed(e, attempt{err: err})
		return e, false, err
	}
	stream, err := e.conn.NewStream(out, &services.Lease_ServiceDesc.Streams[0], services.Lease_LeaseKeepAlive_FullMethodName)
	if err != nil {
		m.failed(e, attempt{err: err, token: sentToken(out)})
		return e, false, err
	}
	g := &grpc.GenericClientStream[rpcpb.LeaseKeepAliveRequest, rpcpb.LeaseKeepAliveResponse]{ClientStream: stream}
	m.forgetSent()
	ended := make(chan error, 1)
	var receiver sync.WaitGroup
	receiver.Go(func() {
		for {
			resp, err := g.Recv()
			if err != nil {
				ended <- err
				return
			}
			answered = true
			m.answer(resp)
		}
	})
	err = m.send(g, ended, cancel)
	cancel(err)
	receiver.Wait() // answered is final
	switch {
	case err == nil:
	case errors.Is(err, errSilent):
		m.c.pool.setAside(e, err, true)
	case context.Cause(ctx) == errRemoved, context.Cause(ctx) == errSilent:
	default:
		m.failed(e, attempt{err: err, token: sentToken(out)})
	}
	return e, answered, err
}

// forgetSent makes every lease due whose request went over a stream that has ended.
func (m *leaseMux) forgetSent() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, r := range m.leases {
		if !r.sent.IsZero() {
			r.sent, r.due = time.Time{}, now
		}
	}
}

// send sends what is due until the stream ends or falls silent (an error), or nothing is left (nil).
func (m *leaseMux) send(g *grpc.GenericClientStream[rpcpb.LeaseKeepAliveRequest, rpcpb.LeaseKeepAliveResponse], ended <-chan error, cancel context.CancelCauseFunc) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-m.wake:
		case <-timer.C:
		}
		ids, next, err := m.collect(time.Now())
		if err != nil || next == 0 {
			return err
		}
		for _, id := range ids {
			if err := g.Send(&rpcpb.LeaseKeepAliveRequest{ID: id}); err != nil {
				cancel(errBroken)
				return <-ended // the reason, if there is one
			}
		}
		timer.Reset(next)
	}
}

// collect gives the leases to ask for now and when to look again, 0 if there are none left; or errSilent.
func (m *leaseMux) collect(now time.Time) (ids []int64, next time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.leases) == 0 {
		return nil, 0, nil
	}
	many := m.c.pool.size() > 1
	next = time.Hour
	waiting := false
	for _, r := range m.leases {
		if !r.sent.IsZero() {
			waiting = true
			left := r.sent.Add(r.stall()).Sub(now)
			if many && left <= 0 {
				return nil, 0, errSilent
			}
			if many {
				next = min(next, left)
			}
		}
	}
	for id, r := range m.leases {
		if !r.sent.IsZero() {
			continue
		}
		left := r.due.Sub(now)
		if left > slack {
			next = min(next, left)
			continue
		}
		if m.careful && waiting {
			continue // its turn comes with the next answer
		}
		waiting = true
		r.sent = now
		ids = append(ids, id)
		if many {
			next = min(next, r.stall())
		}
	}
	next = max(next, slack)
	m.look = now.Add(next)
	return ids, next, nil
}

// answer notes an answer of the server.
func (m *leaseMux) answer(resp *rpcpb.LeaseKeepAliveResponse) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.leases[resp.ID]
	if r == nil || r.sent.IsZero() {
		return // dropped meanwhile
	}
	if resp.TTL <= 0 {
		m.endLocked(resp.ID, errs.ErrLeaseNotFound)
		m.signal()
		return
	}
	r.ttl = time.Duration(min(resp.TTL, maxTTLSeconds)) * time.Second
	// The server counts from when it got the request, which was not before it was sent.
	expires := r.sent.Add(r.ttl)
	r.due = r.sent.Add(r.ttl / renewalsPerTTL)
	r.sent = time.Time{}
	for _, k := range r.keepers {
		k.confirm(resp, expires)
	}
	if m.careful || r.due.Before(m.look) {
		m.look = r.due
		m.signal()
	}
}

// maxTTLSeconds is the longest time to live the API allows, which time.Duration can hold.
const maxTTLSeconds = 9_000_000_000

// failed takes note of why a stream ended.
func (m *leaseMux) failed(e *endpoint, a attempt) {
	if m.c.ctx.Err() != nil {
		return
	}
	v := m.c.judge(call{idempotent: true}, a)
	if v.renew {
		m.c.tokens.expire(a.token)
		return
	}
	if v.trouble {
		m.c.pool.setAside(e, v.err, false)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case v.err == errs.ErrPermissionDenied || v.err == errs.ErrLeaseNotFound:
		m.blameLocked(v.err)
	case v.err == errs.ErrAuthFailed || v.err == errs.ErrUserEmpty || v.err == errs.ErrInvalidAuthToken:
		m.endAllLocked(v.err)
	case status.Code(v.err) == codes.Unimplemented && status.Code(a.err) == codes.Unimplemented:
		m.endAllLocked(&CallError{Method: services.Lease_LeaseKeepAlive_FullMethodName, Endpoint: e.name, Err: v.err})
	}
}

// blameLocked ends the lease that a refusal means, if only one can be meant, and else sees to it that only one is
// next time.
func (m *leaseMux) blameLocked(why error) {
	var asked []int64
	for id, r := range m.leases {
		if !r.sent.IsZero() {
			asked = append(asked, id)
		}
	}
	m.careful = len(asked) > 1
	if len(asked) == 1 {
		m.endLocked(asked[0], why)
	}
}
