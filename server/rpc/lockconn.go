package rpc

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/coordd/coordd/server/lock"
)

// Connections are those of one gRPC server, which gets them as its credentials. They serve two ends.
//
// Its services know by them when the connection of a caller ends: a session made for a lock lives as long as that. gRPC tells
// a handler nothing of the connection but its peer.Peer, and offers only a stats handler to follow connections, which is
// called several times in each call. The address in peer.Peer, however, is the one that the connection itself gave when it was made,
// and credentials may replace the connection. So the connection given here has an address that carries a context, which ends
// when the connection is closed. That costs nothing in a call.
//
// And they can be cut: a server that is stopped waits for connections that have not sent all of HTTP/2's greeting yet, so that a client
// that says nothing would hold it up until that times out.
type Connections struct {
	credentials.TransportCredentials
	open *openConns // shared by clones
}

// openConns are the connections that are open. They are closed without mu, which is a leaf.
type openConns struct {
	mu  sync.Mutex
	cut bool // no more
	all map[*trackedConn]struct{}
}

// TrackConnections gives credentials of a server that follow its connections.
func TrackConnections(c credentials.TransportCredentials) *Connections {
	return &Connections{c, &openConns{all: map[*trackedConn]struct{}{}}}
}

// Cut closes all connections, and those that come later. Call it before Stop of the server, and not before its GracefulStop has had its
// time. Any goroutine may call it, more than once.
func (t *Connections) Cut() {
	t.open.mu.Lock()
	t.open.cut = true
	all := slices.Collect(maps.Keys(t.open.all))
	t.open.mu.Unlock()
	for _, c := range all {
		_ = c.Close() // it may have gone
	}
}

// ServerHandshake implements credentials.TransportCredentials.
func (t *Connections) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := t.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return conn, info, err
	}
	alive, end := context.WithCancel(context.Background())
	tracked := &trackedConn{Conn: conn, in: t.open, end: end, remote: trackedAddr{conn.RemoteAddr(), alive}}
	if !t.open.add(tracked) {
		_ = tracked.Close()
		return nil, nil, net.ErrClosed
	}
	return tracked, info, nil
}

// Clone implements credentials.TransportCredentials.
func (t *Connections) Clone() credentials.TransportCredentials {
	return &Connections{t.TransportCredentials.Clone(), t.open}
}

func (o *openConns) add(c *trackedConn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.cut {
		o.all[c] = struct{}{}
	}
	return !o.cut
}

func (o *openConns) remove(c *trackedConn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, c)
}

// trackedConn is a connection whose end can be noticed.
type trackedConn struct {
	net.Conn
	in     *openConns
	end    context.CancelFunc
	remote trackedAddr
}

// RemoteAddr implements net.Conn.
func (c *trackedConn) RemoteAddr() net.Addr { return c.remote }

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	c.end()
	c.in.remove(c)
	return c.Conn.Close()
}

// trackedAddr is the address of the other end of a connection.
type trackedAddr struct {
	net.Addr
	alive context.Context
}

// connectionOf finds the connection of a caller. One in the same process has none, and lives as long as everything here.
func connectionOf(ctx context.Context) lock.Connection {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return lock.Connection{Alive: context.Background()}
	}
	if a, ok := p.Addr.(trackedAddr); ok {
		return lock.Connection{Alive: a.alive}
	}
	return lock.Connection{}
}
