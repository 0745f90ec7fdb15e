package client

import (
	"context"
	"sync"
	"time"

	"github.com/coordd/coordd/api/rpcpb"
)

// Keeper keeps one lease alive; see [Client.KeepAlive]. Its methods may be called from any goroutine.
type Keeper struct {
	id      LeaseID
	mux     *leaseMux
	done    chan struct{}
	renewed chan *rpcpb.LeaseKeepAliveResponse

	mu      sync.Mutex
	unwatch func() bool // stops the watch on the context
	err     error
	expires time.Time
	lapse   *time.Timer // with EndWhenUnconfirmed, else nil
}

// KeepAliveOption shapes a KeepAlive.
type KeepAliveOption func(*keepAliveConfig)

// keepAliveConfig is the sum of the options.
type keepAliveConfig struct{ lapse time.Duration }

// EndWhenUnconfirmed ends the keeper with ErrLeaseUnconfirmed as soon as the lease may have expired: when the time to
// live has passed since the last renewal was asked for or, before the first one, ttl since now. It is for
// those who must stop what they do the moment others could hold the lease's keys.
func EndWhenUnconfirmed(ttl time.Duration) KeepAliveOption {
	return func(c *keepAliveConfig) { c.lapse = max(ttl, 1) }
}

// KeepAlive renews a lease at once and then three times in each time to live, until the keeper ends: because ctx ended
// or Close was called, because the server said that the lease is gone (errs.ErrLeaseNotFound) or refused to renew
// it (such as errs.ErrPermissionDenied), or by EndWhenUnconfirmed. Elections, restarts and endpoints that fail do not end
// it: it goes on elsewhere. Several keepers of one lease renew it once.
func (c *Client) KeepAlive(ctx context.Context, id LeaseID, opts ...KeepAliveOption) *Keeper {
	var cfg keepAliveConfig
	for _, o := range opts {
		o(&cfg)
	}
	k := &Keeper{
		id:      id,
		mux:     c.leases,
		done:    make(chan struct{}),
		renewed: make(chan *rpcpb.LeaseKeepAliveResponse, 1),
	}
	k.mu.Lock() // either may fire before it is stored
	k.unwatch = context.AfterFunc(ctx, func() { c.leases.drop(k, context.Cause(ctx)) })
	if cfg.lapse > 0 {
		k.expires = time.Now().Add(cfg.lapse)
		k.lapse = time.AfterFunc(cfg.lapse, func() { c.leases.drop(k, ErrLeaseUnconfirmed) })
	}
	k.mu.Unlock()
	c.leases.add(k)
	return k
}

// ID is the lease.
func (k *Keeper) ID() LeaseID { return k.id }

// Done is closed when the keeper has ended; Err then tells why.
func (k *Keeper) Done() <-chan struct{} { return k.done }

// Err tells why the keeper ended, nil while it has not.
func (k *Keeper) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// Expires is until when the lease is known to live: the last renewal was asked for one time to live earlier. It is the zero
// time before the first answer (or, with EndWhenUnconfirmed, what that option says).
func (k *Keeper) Expires() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.expires
}

// Renewed delivers the latest renewal; one that was not received is replaced by the next. It is never closed:
// wait for Done too.
func (k *Keeper) Renewed() <-chan *rpcpb.LeaseKeepAliveResponse { return k.renewed }

// Close stops renewing. The lease itself lives on until its time to live has passed.
func (k *Keeper) Close() { k.mux.drop(k, ErrClosed) }

// confirm notes a renewal.
func (k *Keeper) confirm(resp *rpcpb.LeaseKeepAliveResponse, expires time.Time) {
	k.mu.Lock()
	if k.err == nil && expires.After(k.expires) {
		k.expires = expires
		if k.lapse != nil {
			k.lapse.Reset(time.Until(expires))
		}
	}
	k.mu.Unlock()
	select {
	case <-k.renewed:
	default:
	}
	select {
	case k.renewed <- resp:
	default: // the receive goroutine is the only sender, so this cannot be; and never block it
	}
}

// end ends the keeper, once.
func (k *Keeper) end(why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return
	}
	k.err = why
	if k.lapse != nil {
		k.lapse.Stop()
	}
	k.unwatch()
	close(k.done)
}
