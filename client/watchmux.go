package client

import (
	"context"
	"errors"
	"strings"
	"sync"
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

// watchState is where a watcher stands with the present stream.
type watchState uint8

const (
	watchIdle     watchState = iota // to be created on the next stream, or this one
	watchCreating                   // asked for, not answered
	watchLive
	watchFull  // given back to the server until its reader has caught up
	watchEnded // no more
)

// errBroken ends a stream over which nothing more can be sent. Mostly Recv ends by itself then. But when the connection broke
// before the stream got onto it, gRPC repeats the stream on another connection behind Recv, while Send has
// already said that it is over; without an end by us the receiver would wait for answers to what was never sent.
var errBroken = errors.New("client: stream broke while sending")

// errRelogin ends a stream whose token the server refused.
var errRelogin = errors.New("client: watch needs a new token")

// watchMux runs all watchers of a client with the same need of a leader over one stream. While there are watchers
// one goroutine, run, opens the stream and receives; a second one, for each stream, sends.
type watchMux struct {
	c      *Client
	leader bool

	mu       sync.Mutex
	closed   bool
	running  bool
	watchers map[*Watcher]struct{}
	sess     *watchSession // nil between streams
}

func newWatchMux(c *Client, leader bool) *watchMux {
	return &watchMux{c: c, leader: leader, watchers: map[*Watcher]struct{}{}}
}

// add begins a watch.
func (m *watchMux) add(w *Watcher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		w.end(ErrClosed)
	}
	if _, err := w.status(); err != nil { // its context ended meanwhile
		w.state = watchEnded
		return
	}
	m.watchers[w] = struct{}{}
	if !m.running {
		m.running = m.c.start(m.run)
	}
	if m.sess != nil {
		m.sess.create(w)
	}
}

// drop ends a watch.
func (m *watchMux) drop(w *Watcher, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endLocked(w, why)
}

// endLocked ends a watch here, and at the server if it is there.
func (m *watchMux) endLocked(w *Watcher, why error) {
	w.end(why)
	if _, ok := m.watchers[w]; !ok {
		return
	}
	delete(m.watchers, w)
	if m.sess != nil {
		m.sess.leave(w)
		if len(m.watchers) == 0 {
			m.sess.stop(nil)
		}
	}
	w.state = watchEnded
}

// resume takes a watch up again whose reader has emptied the buffer.
func (m *watchMux) resume(w *Watcher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w.state != watchFull {
		return
	}
	w.state = watchIdle
	if m.sess != nil {
		m.sess.create(w)
	}
}

// requestProgress asks on behalf of a watcher.
func (m *watchMux) requestProgress(w *Watcher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sess != nil && w.state != watchEnded {
		m.sess.asked[w] = struct{}{}
		m.sess.push(progressRequest())
	}
}

// close ends all watchers.
func (m *watchMux) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.endAllLocked(ErrClosed)
}

func (m *watchMux) endAllLocked(why error) {
	for w := range m.watchers {
		m.endLocked(w, why)
	}
}

// run keeps a stream open while there are watchers.
func (m *watchMux) run() {
	var avoid *endpoint
	for failures := 0; ; {
		m.mu.Lock()
		if len(m.watchers) == 0 || m.closed {
			m.running = false
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
		e, answered, err := m.serve(avoid)
		if answered {
			failures = 0
		}
		failures++
		avoid = e
		m.mu.Lock()
		none := len(m.watchers) == 0
		m.mu.Unlock()
		if none || m.c.ctx.Err() != nil {
			continue
		}
		m.c.opts.log.Debug("watch stream ended, resuming", zap.Error(err))
		sleep(m.c.ctx, m.c.opts.retry.pause(failures, m.c.pool.size()))
	}
}

// serve runs one stream to its end.
func (m *watchMux) serve(avoid *endpoint) (e *endpoint, answered bool, err error) {
	e, err = m.c.pool.pick(avoid)
	if err != nil {
		return nil, false, err
	}
	defer m.c.pool.release(e)
	ctx, cancel := context.WithCancelCause(m.c.ctx)
	defer cancel(nil)
	defer m.c.pool.track(e, cancel)()
	out, err := m.c.outgoing(ctx, call{local: !m.leader})
	if err != nil {
		m.failed(e, attempt{err: err})
		return e, false, err
	}
	a := attempt{token: sentToken(out)}
	stream, err := e.conn.NewStream(out, &services.Watch_ServiceDesc.Streams[0], services.Watch_Watch_FullMethodName)
	if err != nil {
		a.err = err
		m.failed(e, a)
		return e, false, err
	}
	g := &grpc.GenericClientStream[rpcpb.WatchRequest, rpcpb.WatchResponse]{ClientStream: stream}
	sess := newWatchSession(m, cancel)
	m.attach(sess)
	var sender sync.WaitGroup
	sender.Go(func() { m.send(ctx, g, sess, e) })
	for {
		var resp *rpcpb.WatchResponse
		if resp, err = g.Recv(); err != nil {
			break
		}
		answered = true
		m.mu.Lock()
		sess.handle(resp)
		m.mu.Unlock()
	}
	m.detach(sess)
	cancel(err)
	sender.Wait()
	switch cause := context.Cause(ctx); {
	case cause == errRelogin:
		m.c.tokens.expire(a.token)
	case cause == context.Canceled: // nothing was left to watch
		return nil, answered, cause
	case cause == errRemoved, cause == errSilent: // told to from here
	default:
		a.err = err
		m.failed(e, a)
	}
	return e, answered, err
}

// attach makes a stream the present one and asks for all watches on it.
func (m *watchMux) attach(sess *watchSession) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sess = sess
	if len(m.watchers) == 0 {
		sess.stop(nil)
	}
	for w := range m.watchers {
		sess.create(w)
	}
}

// detach forgets a stream that has ended.
func (m *watchMux) detach(sess *watchSession) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sess = nil
	for w := range m.watchers {
		if w.state == watchCreating || w.state == watchLive {
			w.state = watchIdle
			w.lost()
		}
	}
}

// Times of the watch stream.
const (
	// watchTick is how often the sender looks whether the stream is quiet.
	watchTick = 5 * time.Second
	// watchProgress is after what silence it asks for the progress, which keeps the position of quiet watches ahead of
	// compaction whatever the server's own interval is.
	watchProgress = time.Minute
)

// send sends what the session has queued, until the stream ends.
func (m *watchMux) send(ctx context.Context, g *grpc.GenericClientStream[rpcpb.WatchRequest, rpcpb.WatchResponse], sess *watchSession, e *endpoint) {
	tick := time.NewTicker(watchTick)
	defer tick.Stop()
	for {
		m.mu.Lock()
		out := sess.out
		sess.out = nil
		m.mu.Unlock()
		for _, req := range out {
			if err := g.Send(req); err != nil {
				sess.stop(errBroken) // Recv gives the reason if there is one
				return
			}
		}
		select {
		case <-sess.wake:
		case <-ctx.Done():
			return
		case now := <-tick.C:
			m.mu.Lock()
			quiet := sess.quiet(now)
			m.mu.Unlock()
			if quiet {
				m.c.pool.setAside(e, errSilent, true) // the probe decides whether the stream moves
			}
		}
	}
}

// failed takes note of why a stream ended.
func (m *watchMux) failed(e *endpoint, a attempt) {
	if m.c.ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	none := len(m.watchers) == 0
	m.mu.Unlock()
	if none {
		return // it was ended from here
	}
	v := m.c.judge(call{idempotent: true}, a)
	if v.renew {
		m.c.tokens.expire(a.token)
		return
	}
	if v.trouble {
		m.c.pool.setAside(e, v.err, false)
	}
	if !v.again && hopeless(v.err) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.endAllLocked(conclude(call{method: services.Watch_Watch_FullMethodName}, e, v))
	}
}

// hopeless tells whether opening the stream again cannot help.
func hopeless(err error) bool {
	if known, ok := err.(*errs.Error); ok {
		switch known.Kind() {
		case errs.InvalidArgument, errs.PermissionDenied, errs.FailedPrecondition, errs.Unauthenticated:
			return true
		}
		return false
	}
	switch status.Code(err) {
	case codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.ResourceExhausted:
		return true
	}
	return false
}

// reason gives the error a server means with the reason of a cancellation, which may be the text of a condition or that
// of a gRPC status.
func reason(text string) error {
	if _, desc, ok := strings.Cut(text, "desc = "); ok {
		text = desc
	}
	if text == "" {
		return errs.ErrWatchCanceled
	}
	return grpcerr.FromStatus(status.Error(codes.Unknown, text))
}
