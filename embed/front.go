package embed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/coordd/coordd/pkg/transport"
	"github.com/coordd/coordd/server"
	"github.com/coordd/coordd/server/httpapi"
	"github.com/coordd/coordd/server/rpc"
)

// front serves a node's listeners: one gRPC server and up to two HTTP servers for all of them.
type front struct {
	lg        *zap.Logger
	listeners *listeners
	memory    net.Listener
	grpc      *grpc.Server
	conns     *rpc.Connections // of grpc
	http      *http.Server
	metrics   *http.Server
	serving   errgroup.Group // one goroutine per listener and kind of traffic; they end with the servers
	split     []net.Listener // halves made by transport.Split
	drained   chan struct{}  // closed when the gRPC server has no calls any more
}

// headerTimeout bounds the time a client may take to send the header of an HTTP request.
const headerTimeout = 5 * time.Minute

func newFront(n *Node) (*front, error) {
	c := n.cfg
	pages, err := httpapi.New(httpapi.Config{
		Node:     n.member,
		Versions: httpapi.Versions{Server: APIVersion, Storage: server.ClusterVersion, Coordd: Version},
		Gatherer: c.Gatherer, Registerer: c.Registerer,
		HostWhitelist: c.HostWhitelist, CORS: c.CORS, Pprof: c.Pprof || c.Log.Level == "debug",
		RequestTimeout: 5*time.Second + 2*c.ElectionTimeout, Logger: n.lg,
	})
	if err != nil {
		return nil, err
	}
	errorLog, err := zap.NewStdLogAt(n.lg, zapcore.DebugLevel) // it tells of clients that went away
	if err != nil {
		return nil, fmt.Errorf("embed: log of the HTTP server: %w", err)
	}
	newServer := func(h http.Handler) *http.Server {
		return &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, ErrorLog: errorLog}
	}
	conns := rpc.TrackConnections(transport.Credentials())
	return &front{
		lg: n.lg, listeners: n.listeners, memory: n.memory,
		grpc:    n.services.NewServer(grpc.ChainStreamInterceptor(n.drain.intercept), grpc.Creds(conns)),
		conns:   conns,
		http:    newServer(pages.Handler()),
		metrics: newServer(pages.MetricsHandler()),
		drained: make(chan struct{}),
	}, nil
}

// serve starts to serve all listeners. The first failure of one goes to failed.
func (f *front) serve(failed chan<- error) {
	start := func(what string, serve func(net.Listener) error, ln net.Listener) {
		f.serving.Go(func() error {
			err := serve(ln)
			if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) || isClosed(err) {
				return nil
			}
			select {
			case failed <- fmt.Errorf("serving %s on %s: %w", what, ln.Addr(), err):
			default: // another was first
			}
			return nil
		})
	}
	start("gRPC", f.grpc.Serve, f.memory)
	for _, l := range f.listeners.clients {
		switch l.traffic {
		case "grpc":
			start("gRPC", f.grpc.Serve, l.Listener)
		case "http":
			start("HTTP", f.http.Serve, l.Listener)
		default:
			g, h := transport.Split(l.Listener)
			f.split = append(f.split, g, h)
			start("gRPC", f.grpc.Serve, g)
			start("HTTP", f.http.Serve, h)
		}
		f.lg.Info("ready to serve client requests")
		f.lg.Info("serving client traffic insecurely; this is strongly discouraged!", zap.String("traffic", l.traffic), zap.String("address", l.Addr().String()))
	}
	for _, l := range f.listeners.metrics {
		start("metrics", f.metrics.Serve, l.Listener)
		f.lg.Info("serving metrics", zap.String("address", l.url))
	}
}

// drain stops accepting, and lets calls under way finish within the timeout.
func (f *front) drain(timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	go func() { // ends when no call is left; stop sees to that
		f.grpc.GracefulStop()
		close(f.drained)
	}()
	_ = f.http.Shutdown(ctx)    // fails when the time is up; stop does the rest
	_ = f.metrics.Shutdown(ctx) // likewise
	select {
	case <-f.drained:
	case <-ctx.Done():
	}
}

// stop ends what drain has left, after the member has ended, so that no call waits for it any more.
func (f *front) stop() {
	f.conns.Cut() // or Stop would wait for those that have not greeted yet
	f.grpc.Stop()
	_ = f.http.Close()    // of its listeners, which are closed already
	_ = f.metrics.Close() // likewise
	<-f.drained
	for _, ln := range f.split {
		_ = ln.Close()
	}
	_ = f.serving.Wait() // its functions return nil
}
