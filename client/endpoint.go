package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/coordd/coordd/api/codec"
)

// defaultPort is used for an endpoint that names only a host.
const defaultPort = "2379"

// security is what the form of an endpoint says about encryption.
type security uint8

const (
	byOption security = iota // encrypted if WithTLS was given
	inClear
	encrypted
)

// address is an endpoint taken apart.
type address struct {
	network   string // tcp or unix
	dial      string // what the dialer gets
	authority string // what is sent as the name of the server, and checked in its certificate
	security  security
}

// parseEndpoint takes host:port, host, http://host:port, https://host:port, unix:path, unix://path and
// their encrypted form with unixs.
func parseEndpoint(s string) (address, error) {
	scheme, rest, found := strings.Cut(s, ":")
	if found && (scheme == "unix" || scheme == "unixs") {
		path := strings.TrimPrefix(rest, "//")
		if path == "" {
			return address{}, fmt.Errorf("client: endpoint %q names no socket file", s)
		}
		a := address{network: "unix", dial: path, authority: "localhost", security: inClear}
		if scheme == "unixs" {
			a.security = encrypted
		}
		return a, nil
	}
	a := address{network: "tcp", security: byOption}
	host := s
	if strings.Contains(s, "://") {
		u, err := url.Parse(s)
		if err != nil {
			return address{}, fmt.Errorf("client: endpoint %q is no URL: %w", s, errors.Unwrap(err))
		}
		switch u.Scheme {
		case "http":
			a.security = inClear
		case "https":
			a.security = encrypted
		default:
			return address{}, fmt.Errorf("client: endpoint %q has the unknown scheme %q; use http, https, unix or unixs", s, u.Scheme)
		}
		if u.Path != "" && u.Path != "/" {
			return address{}, fmt.Errorf("client: endpoint %q must not have a path", s)
		}
		host = u.Host
	}
	hostport, err := withPort(host)
	if err != nil {
		return address{}, fmt.Errorf("client: endpoint %q: %w", s, err)
	}
	a.dial, a.authority = hostport, hostport
	return a, nil
}

// withPort completes host to host:port.
func withPort(host string) (string, error) {
	if h, p, err := net.SplitHostPort(host); err == nil {
		if h == "" || p == "" {
			return "", errors.New("host or port is missing")
		}
		return host, nil
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if bare == "" || strings.ContainsAny(bare, " /?#@") {
		return "", errors.New("not of the form host:port")
	}
	if strings.Contains(bare, ":") && net.ParseIP(bare) == nil {
		return "", errors.New("not of the form host:port")
	}
	return net.JoinHostPort(bare, defaultPort), nil
}

// connect makes the gRPC connection of an endpoint. It does not dial yet.
func (o *options) connect(name string) (*grpc.ClientConn, error) {
	a, err := parseEndpoint(name)
	if err != nil {
		return nil, err
	}
	creds := insecure.NewCredentials()
	switch {
	case a.security == inClear || a.security == byOption && o.tls == nil:
	case o.tls != nil:
		creds = credentials.NewTLS(o.tls)
	default:
		creds = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	dial := o.dialer
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithAuthority(a.authority),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return dial(ctx, a.network, a.dial)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: o.retry.Base * 2, Multiplier: 1.6, Jitter: 0.2, MaxDelay: o.retry.Max},
			MinConnectTimeout: o.dialTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: o.keepAliveTime, Timeout: o.keepAliveTimeout}),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(codec.New()),
			grpc.MaxCallSendMsgSize(o.maxSend),
			grpc.MaxCallRecvMsgSize(o.maxReceive),
		),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
	}
	// passthrough leaves the resolution of names to the dialer, which does it anew at each attempt.
	conn, err := grpc.NewClient("passthrough:///"+a.dial, append(opts, o.dialOptions...)...)
	if err != nil {
		return nil, fmt.Errorf("client: endpoint %q: %w", name, err)
	}
	return conn, nil
}
