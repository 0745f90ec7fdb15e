package transport

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"time"
)

// defaultTimeout is how long a client may take for its TLS handshake, and again for its first bytes.
const defaultTimeout = 10 * time.Second

// Option changes how [Listen] or [Split] works.
type Option func(*options)

type options struct {
	tls       *tls.Config
	clear     bool
	clientSAN bool
	keepAlive net.KeepAliveConfig
	reusePort bool
	reuseAddr bool
	maxConns  int
	timeout   time.Duration
	reject    func(Rejection)
}

func collect(opts []Option) options {
	o := options{timeout: defaultTimeout, reject: func(Rejection) {}}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// Rejection tells of a connection that was closed before any server saw it.
type Rejection struct {
	RemoteAddr   net.Addr
	ServerName   string              // the name the client asked for, if it came that far
	Certificates []*x509.Certificate // what the client presented, leaf first, verified or not
	Err          error               // why; io.EOF when the client just left
}

// WithTLS makes https and unixs listeners serve TLS by cfg, usually from [TLSOptions.Server]. For
// [Listen].
func WithTLS(cfg *tls.Config) Option { return func(o *options) { o.tls = cfg } }

// WithClear lets a TLS listener serve clients in the clear too, told apart by their first byte: a
// TLS handshake record begins with 22, no request of HTTP does. It is for an address that is listed
// under both http and https. For [Listen].
func WithClear(on bool) Option { return func(o *options) { o.clear = on } }

// WithClientSAN makes a TLS listener refuse a client whose certificate names hosts, none of which
// is where the client connects from. A certificate without names passes. Names are resolved within
// the time of [WithTimeout]. It is for peers, so that a stolen certificate is of no use elsewhere.
// For [Listen].
func WithClientSAN(on bool) Option { return func(o *options) { o.clientSAN = on } }

// WithKeepAlive sets the TCP keepalive of accepted connections. Without it they have Go's default,
// on with 15 s. For [Listen].
func WithKeepAlive(cfg net.KeepAliveConfig) Option { return func(o *options) { o.keepAlive = cfg } }

// WithReusePort sets SO_REUSEPORT: several processes of one user may listen on the port. For [Listen].
func WithReusePort(on bool) Option { return func(o *options) { o.reusePort = on } }

// WithReuseAddress sets SO_REUSEADDR: the address may be bound while old connections linger. Go
// does so by itself on Unix; the option exists for those who want to be sure. For [Listen].
func WithReuseAddress(on bool) Option { return func(o *options) { o.reuseAddr = on } }

// WithMaxConns bounds the open connections of the listener; more wait in the backlog until one closes.
// 0 or less is no bound. For [Listen].
func WithMaxConns(n int) Option { return func(o *options) { o.maxConns = n } }

// WithTimeout bounds the time a client may take for its handshake, or for the first bytes that tell
// what it speaks. The default is 10 s. For [Listen] and [Split].
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithReject has f called for every connection closed before it reached a server: a failed
// handshake, a refused certificate, no first bytes in time. f runs on the connection's own
// goroutine and must not close the listener it is given to. For [Listen] and [Split].
func WithReject(f func(Rejection)) Option { return func(o *options) { o.reject = f } }
