package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// Defaults of the options.
const (
	DefaultDialTimeout      = 3 * time.Second
	DefaultKeepAliveTime    = 10 * time.Second
	DefaultKeepAliveTimeout = 3 * time.Second
	DefaultMaxSendBytes     = 2 << 20
	DefaultMaxReceiveBytes  = math.MaxInt32
	DefaultWatchBufferBytes = 4 << 20
)

// Option sets one thing in [New] or [NewFromConn].
type Option func(*options) error

// options is the sum of what the Options say. It does not change after New.
type options struct {
	tls              *tls.Config
	user, password   string
	token            string
	dialTimeout      time.Duration
	keepAliveTime    time.Duration
	keepAliveTimeout time.Duration
	maxSend          int
	maxReceive       int
	watchBuffer      int64
	retry            RetryPolicy
	autoSync         time.Duration
	dialer           func(ctx context.Context, network, address string) (net.Conn, error)
	dialOptions      []grpc.DialOption
	log              *zap.Logger
}

// newOptions gives the defaults with the options applied, or the first error among them.
func newOptions(list []Option) (options, error) {
	o := options{
		dialTimeout:      DefaultDialTimeout,
		keepAliveTime:    DefaultKeepAliveTime,
		keepAliveTimeout: DefaultKeepAliveTimeout,
		maxSend:          DefaultMaxSendBytes,
		maxReceive:       DefaultMaxReceiveBytes,
		watchBuffer:      DefaultWatchBufferBytes,
		retry:            DefaultRetryPolicy(),
		dialer:           (&net.Dialer{}).DialContext,
		log:              zap.NewNop(),
	}
	for _, set := range list {
		if err := set(&o); err != nil {
			return o, fmt.Errorf("client: %w", err)
		}
	}
	if o.token != "" && o.user != "" {
		return o, fmt.Errorf("client: a token and a user name exclude each other; give one of them")
	}
	return o, nil
}

// WithTLS encrypts the connections to endpoints given as https://, unixs:// or plain host:port, and
// sets how. Endpoints given as http:// and unix:// stay in the clear. The config is not copied
// and must not be changed afterwards. Without this option https:// endpoints are checked against the
// roots of the system.
func WithTLS(config *tls.Config) Option {
	return func(o *options) error {
		if config == nil {
			return fmt.Errorf("WithTLS needs a config; leave the option out for connections in the clear")
		}
		o.tls = config
		return nil
	}
}

// WithCredentials has the client log in with a name and a password: it fetches a token at the first
// call and again whenever the server calls the token invalid or outdated. A cluster with authentication
// switched off is used without a token.
func WithCredentials(user, password string) Option {
	return func(o *options) error {
		if user == "" {
			return fmt.Errorf("WithCredentials needs a user name")
		}
		o.user, o.password = user, password
		return nil
	}
}

// WithToken sends a token got by other means, such as a signed JWT, with every call. It is never renewed.
func WithToken(token string) Option {
	return func(o *options) error { o.token = token; return nil }
}

// WithDialTimeout bounds one attempt to connect, handshakes included. Default: [DefaultDialTimeout].
func WithDialTimeout(d time.Duration) Option {
	return func(o *options) error { return positive(&o.dialTimeout, d, "WithDialTimeout") }
}

// WithKeepAlive sets after how long a silence on a connection with calls in flight it is
// pinged, and how long the answer may take before the connection is given up. gRPC raises an interval
// below 10 s to 10 s. Defaults: [DefaultKeepAliveTime], [DefaultKeepAliveTimeout].
func WithKeepAlive(interval, timeout time.Duration) Option {
	return func(o *options) error {
		if err := positive(&o.keepAliveTime, interval, "WithKeepAlive"); err != nil {
			return err
		}
		return positive(&o.keepAliveTimeout, timeout, "WithKeepAlive")
	}
}

// WithMaxSendBytes bounds a request. Default: [DefaultMaxSendBytes].
func WithMaxSendBytes(n int) Option {
	return func(o *options) error { return positive(&o.maxSend, n, "WithMaxSendBytes") }
}

// WithMaxReceiveBytes bounds an answer. Default: [DefaultMaxReceiveBytes].
func WithMaxReceiveBytes(n int) Option {
	return func(o *options) error { return positive(&o.maxReceive, n, "WithMaxReceiveBytes") }
}

// WithWatchBufferBytes bounds what one watcher holds for a reader who is behind, counted as keys, values
// and 64 bytes an event. A response larger than that is held when it is the only one. Default:
// [DefaultWatchBufferBytes].
func WithWatchBufferBytes(n int64) Option {
	return func(o *options) error { return positive(&o.watchBuffer, n, "WithWatchBufferBytes") }
}

// WithRetry sets how calls are repeated. Default: [DefaultRetryPolicy].
func WithRetry(p RetryPolicy) Option {
	return func(o *options) error {
		if err := p.validate(); err != nil {
			return err
		}
		o.retry = p
		return nil
	}
}

// WithAutoSync calls [Client.Sync] at this interval. Default: never.
func WithAutoSync(interval time.Duration) Option {
	return func(o *options) error { return positive(&o.autoSync, interval, "WithAutoSync") }
}

// WithDialer replaces the way connections are made. network is "tcp" or "unix". The dialer must honour the
// context and may be called by several goroutines at once.
func WithDialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return func(o *options) error {
		if dial == nil {
			return fmt.Errorf("WithDialer needs a function")
		}
		o.dialer = dial
		return nil
	}
}

// WithGRPC adds options for the gRPC connections, such as interceptors or statistics. They come after the
// client's own and so win over them.
func WithGRPC(opts ...grpc.DialOption) Option {
	return func(o *options) error { o.dialOptions = append(o.dialOptions, opts...); return nil }
}

// WithLogger sets where the client tells of endpoints set aside and streams resumed. Default: nowhere.
func WithLogger(log *zap.Logger) Option {
	return func(o *options) error {
		if log != nil {
			o.log = log
		}
		return nil
	}
}

// positive stores a value that must be greater than zero.
func positive[T int | int64 | time.Duration](dst *T, v T, name string) error {
	if v <= 0 {
		return fmt.Errorf("%s needs a value above zero, got %v", name, v)
	}
	*dst = v
	return nil
}
