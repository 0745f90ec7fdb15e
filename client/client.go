package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// Client is a connection to a cluster. Any number of goroutines may use it. Make one with [New] or
// [NewFromConn] and end it with Close.
type Client struct {
	opts   options
	pool   *pool
	tokens *tokens            // nil if calls go without
	watch  map[bool]*watchMux // by whether the stream needs a leader
	leases *leaseMux

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup // every goroutine of the client

	mu     sync.Mutex
	closed bool // no more goroutines are started; guarded by mu
}

// New gives a client of the cluster with these endpoints: host:port, host (port 2379), http://host:port,
// https://host:port, unix:///path or unixs:///path. It connects in the background and does not wait; an endpoint that is
// malformed is an error, one that is down is not.
func New(endpoints []string, opts ...Option) (*Client, error) {
	c, err := newClient(opts)
	if err != nil {
		return nil, err
	}
	if err := c.pool.set(endpoints); err != nil {
		c.stop()
		return nil, err
	}
	if c.opts.autoSync > 0 {
		c.wg.Go(c.autoSync)
	}
	return c, nil
}

// NewFromConn gives a client that uses a connection made elsewhere, such as the in-process one of an embedded
// node. The options that concern connections, and WithAutoSync, have no effect; Close does not close conn. Since such
// a connection does not tell whether it sent a request, every failure on the way leaves the outcome of a write
// unknown.
func NewFromConn(conn grpc.ClientConnInterface, opts ...Option) (*Client, error) {
	if conn == nil {
		return nil, errors.New("client: NewFromConn needs a connection")
	}
	c, err := newClient(opts)
	if err != nil {
		return nil, err
	}
	c.pool.eps = []*endpoint{c.pool.newEndpoint("in-process", conn)}
	return c, nil
}

// newClient gives a client without endpoints.
func newClient(list []Option) (*Client, error) {
	opts, err := newOptions(list)
	if err != nil {
		return nil, err
	}
	c := &Client{opts: opts}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.pool = &pool{opts: &c.opts, ctx: c.ctx, wg: &c.wg, ask: c.ask}
	c.tokens = c.newTokens()
	c.watch = map[bool]*watchMux{true: newWatchMux(c, true), false: newWatchMux(c, false)}
	c.leases = newLeaseMux(c)
	return c, nil
}

// Close ends all watchers and keepers with ErrClosed, breaks calls in flight, closes the connections and
// waits for the client's goroutines. Leases stay as they are. It may be called more than once.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.watch[true].close()
	c.watch[false].close()
	c.leases.close()
	c.pool.close()
	c.wg.Wait()
	return nil
}

// start runs a goroutine that Close waits for, and tells whether it did: not once the client is closed.
func (c *Client) start(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Go(f)
	return true
}

// Endpoints gives the endpoints in use, as they were given.
func (c *Client) Endpoints() []string { return c.pool.names() }

// SetEndpoints replaces the endpoints. Calls in flight at those that go are finished; watches and
// keepalives move.
func (c *Client) SetEndpoints(endpoints ...string) error { return c.pool.set(endpoints) }

// Sync replaces the endpoints by the client URLs of the voting members that have started, as the cluster
// lists them. If there is none the endpoints stay, and it is an error.
func (c *Client) Sync(ctx context.Context) error {
	resp, err := c.MemberList(ctx)
	if err != nil {
		return err
	}
	var found []string
	for _, m := range resp.Members {
		if m.Name != "" && !m.IsLearner {
			found = append(found, m.ClientURLs...)
		}
	}
	if len(found) == 0 {
		return fmt.Errorf("client: no member of the cluster advertises a client URL: %w", ErrNoEndpoints)
	}
	return c.pool.set(found)
}

// autoSync calls Sync now and then until the client is closed.
func (c *Client) autoSync() {
	tick := time.NewTicker(c.opts.autoSync)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(c.ctx, c.opts.autoSync)
		err := c.Sync(ctx)
		cancel()
		if err != nil && c.ctx.Err() == nil {
			c.opts.log.Warn("could not learn the endpoints from the cluster", zap.Error(err))
		}
	}
}
