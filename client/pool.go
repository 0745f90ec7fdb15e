package client

import (
	"context"
	"errors"
	"slices"
	"sync"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// endpoint is one place to send calls to.
type endpoint struct {
	name string
	conn grpc.ClientConnInterface
	// dialled is conn if the pool made it; nil for a connection given by the user, of which the pool
	// knows no state and which it does not close.
	dialled *grpc.ClientConn
	// ctx ends when the endpoint leaves the pool.
	ctx    context.Context
	remove context.CancelFunc

	// The rest is guarded by pool.mu.

	refs    int  // calls and streams in flight
	removed bool // no new calls
	aside   bool // in trouble: a probe is running
	streams map[*stream]struct{}
}

// stream is a long-lived stream registered with its endpoint, so that it can be told to move.
type stream struct {
	move context.CancelCauseFunc
}

// Causes with which streams are told to move to another endpoint.
var (
	errSilent  = errors.New("client: endpoint does not answer")
	errRemoved = errors.New("client: endpoint was removed")
)

// pool is the endpoints of a client and what is known of their health.
type pool struct {
	opts *options
	// ask is the probe's question to an endpoint; see health.go.
	ask func(ctx context.Context, e *endpoint) health
	ctx context.Context
	wg  *sync.WaitGroup // of the client; probes are counted here

	mu     sync.Mutex
	closed bool
	eps    []*endpoint
	turn   int // where the next search begins
}

// set makes names the endpoints. Connections of those that stay are kept; those that go finish their calls,
// and their streams move.
func (p *pool) set(names []string) error {
	if len(names) == 0 {
		return ErrNoEndpoints
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	next, fresh := make([]*endpoint, 0, len(names)), []*endpoint(nil)
	for _, name := range names {
		if slices.ContainsFunc(next, func(e *endpoint) bool { return e.name == name }) {
			continue
		}
		if i := slices.IndexFunc(p.eps, func(e *endpoint) bool { return e.name == name }); i >= 0 {
			next = append(next, p.eps[i])
			continue
		}
		conn, err := p.opts.connect(name)
		if err != nil {
			for _, e := range fresh {
				e.dropLocked()
			}
			return err
		}
		e := p.newEndpoint(name, conn)
		e.dialled = conn
		next, fresh = append(next, e), append(fresh, e)
	}
	for _, e := range p.eps {
		if !slices.Contains(next, e) {
			e.dropLocked()
		}
	}
	p.eps = next
	for _, e := range fresh {
		e.dialled.Connect()
	}
	return nil
}

// newEndpoint gives an endpoint that is not in the list yet.
func (p *pool) newEndpoint(name string, conn grpc.ClientConnInterface) *endpoint {
	e := &endpoint{name: name, conn: conn, streams: map[*stream]struct{}{}}
	e.ctx, e.remove = context.WithCancel(p.ctx)
	return e
}

// dropLocked takes the endpoint out of use, and closes its connection when the last call is done.
func (e *endpoint) dropLocked() {
	e.removed = true
	e.remove()
	for s := range e.streams {
		s.move(errRemoved)
	}
	e.closeIfUnusedLocked()
}

func (e *endpoint) closeIfUnusedLocked() {
	if e.removed && e.refs == 0 && e.dialled != nil {
		_ = e.dialled.Close() // the only error is that it is closed already
	}
}

// names gives the endpoints in use.
func (p *pool) names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := make([]string, len(p.eps))
	for i, e := range p.eps {
		names[i] = e.name
	}
	return names
}

// size gives the number of endpoints.
func (p *pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.eps)
}

// pick gives the next endpoint in turn among those that look best, and avoid only if there is no other. The
// caller must release it.
func (p *pool) pick(avoid *endpoint) (*endpoint, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	best, bestRank := -1, 0
	for i := range p.eps {
		at := (p.turn + i) % len(p.eps)
		rank := p.eps[at].rankLocked()
		if p.eps[at] == avoid {
			rank += avoided
		}
		if best < 0 || rank < bestRank {
			best, bestRank = at, rank
		}
	}
	p.turn = (best + 1) % len(p.eps)
	p.eps[best].refs++
	return p.eps[best], nil
}

// named gives the endpoint of that name if the pool has it. The caller must release it.
func (p *pool) named(name string) (*endpoint, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.eps {
		if !p.closed && e.name == name {
			e.refs++
			return e, true
		}
	}
	return nil, false
}

// Ranks of endpoints: the lower the better.
const (
	notReady = 1 // not connected yet
	failing  = 2 // could not be connected to last time
	avoided  = 3 // the caller has just failed there
	setAside = 4 // in trouble
)

// rankLocked orders endpoints.
func (e *endpoint) rankLocked() int {
	rank := 0
	if e.aside {
		rank = setAside
	}
	if e.dialled == nil {
		return rank
	}
	switch e.dialled.GetState() {
	case connectivity.Ready:
		return rank
	case connectivity.TransientFailure, connectivity.Shutdown:
		return rank + failing
	default:
		return rank + notReady
	}
}

// release gives back what pick gave.
func (p *pool) release(e *endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.refs--
	e.closeIfUnusedLocked()
}

// track registers a stream so that it is told to move when its endpoint goes or falls silent; the caller
// calls the function given when the stream has ended.
func (p *pool) track(e *endpoint, move context.CancelCauseFunc) func() {
	s := &stream{move: move}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.removed {
		move(errRemoved)
	}
	e.streams[s] = struct{}{}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(e.streams, s)
	}
}

// setAside notes that the endpoint is in trouble and has a probe find out when that is over. A sole
// endpoint is never set aside, since there is no choice. suspect has the first probe go at once.
func (p *pool) setAside(e *endpoint, why error, suspect bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || e.removed || e.aside || len(p.eps) < 2 {
		return
	}
	e.aside = true
	p.opts.log.Info("endpoint set aside", zap.String("endpoint", e.name), zap.Error(why))
	p.wg.Go(func() { p.probe(e, suspect) })
}

// close takes all endpoints out of use. Calls in flight end with their connection.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	for _, e := range p.eps {
		e.refs = 0
		e.dropLocked()
	}
}
