package embed

import (
	"context"
	"errors"
	"net"
	"slices"
	"syscall"

	"go.uber.org/zap"

	"github.com/coordd/coordd/pkg/transport"
)

// listener is a bound address and what is served there.
type listener struct {
	net.Listener
	url     string // with the port that was chosen, if it was 0
	traffic string // grpc, http, grpc+http or metrics
}

// listeners are all of a node, bound before the node starts, so that a taken port is found early and clients that
// come early wait in the backlog.
type listeners struct {
	peer    []listener
	clients []listener
	metrics []listener
}

// spareFiles are file descriptors kept from client connections, for the log, the data file and peers.
const spareFiles = 150

// bind opens all listeners of the configuration, or none.
func bind(ctx context.Context, c *Config, lg *zap.Logger) (_ *listeners, err error) {
	ls := &listeners{}
	defer func() {
		if err != nil {
			ls.close()
		}
	}()
	grpc := "grpc+http"
	if len(c.ListenClientHTTPURLs) > 0 {
		grpc = "grpc"
	}
	for _, l := range []struct {
		to      *[]listener
		urls    []string
		traffic string
		what    string
	}{
		{&ls.peer, c.ListenPeerURLs, "", "configuring peer listeners"},
		{&ls.clients, c.ListenClientURLs, grpc, "configuring client listeners"},
		{&ls.clients, c.ListenClientHTTPURLs, "http", "configuring HTTP client listeners"},
		{&ls.metrics, c.ListenMetricsURLs, "metrics", "configuring metrics listeners"},
	} {
		if len(l.urls) > 0 {
			lg.Info(l.what, zap.Strings("listen-urls", l.urls))
		}
		for _, u := range l.urls {
			ln, err := transport.Listen(ctx, u, transport.WithReusePort(c.ReusePort), transport.WithReuseAddress(c.ReuseAddress), transport.WithMaxConns(maxConns()))
			if err != nil {
				return nil, err
			}
			*l.to = append(*l.to, listener{ln, withPort(u, ln.Addr()), l.traffic})
		}
	}
	for _, ln := range c.PeerListeners {
		ls.peer = append(ls.peer, listener{Listener: ln})
	}
	return ls, nil
}

// maxConns is how many connections one listener may have, 0 for no limit.
func maxConns() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<30 {
		return 0
	}
	return max(int(limit.Cur)-spareFiles, 1)
}

// close closes all listeners; those that were closed already are no error.
func (ls *listeners) close() {
	for _, list := range [][]listener{ls.peer, ls.clients, ls.metrics} {
		for _, l := range list {
			_ = l.Close() // fails only when it is closed already
		}
	}
}

// advertise puts the ports that the system chose into the URLs advertised to clients, each listener's into the
// first that still has port 0.
func (ls *listeners) advertise(c *Config) {
	for i, listen := range c.ListenClientURLs {
		as := reachable([]string{listen})
		if j := slices.Index(c.AdvertiseClientURLs, as[0]); j >= 0 {
			c.AdvertiseClientURLs[j] = withPort(as[0], ls.clients[i].Addr())
		}
	}
}

// isClosed reports an error that only says that a listener was closed, as it is at the end.
func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) }
