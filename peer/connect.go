package peer

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/coordd/coordd/api/codec"
	"github.com/coordd/coordd/api/peerpb"
	"github.com/coordd/coordd/api/services"
)

// connect prepares a connection to url; it is made when first used. gRPC's own
// pauses between tries are kept short, because the callers limit theirs.
func (d Dialing) connect(url string) (*grpc.ClientConn, error) {
	t, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	creds := insecure.NewCredentials()
	if t.secure {
		if d.ClientTLS == nil {
			return nil, fmt.Errorf("peer: %s needs TLS, but no client certificate settings for peers are given", url)
		}
		creds = d.ClientTLS
	}
	conn, err := grpc.NewClient("passthrough:///"+t.addr,
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(d.dial),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec.New()),
			grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithReadBufferSize(ioBuffer), grpc.WithWriteBufferSize(ioBuffer),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: keepaliveTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: dialTimeout,
		}),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
	)
	if err != nil {
		return nil, fmt.Errorf("peer: %s: %w", url, err)
	}
	return conn, nil
}

// FetchInfo asks the member at url who it is and whom it knows. It needs no
// Transport, so a member can use it before it knows its cluster.
func FetchInfo(ctx context.Context, url string, d Dialing) (*peerpb.InfoResponse, error) {
	conn, err := d.connect(url)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return services.NewPeerClient(conn).Info(ctx, &peerpb.InfoRequest{})
}
