package rpc

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/coordd/coordd/server/lock"
)

// TrackConnections gives credentials of a server by which its services know when the connection of a caller ends: a session made
// for a lock lives as long as that.
//
// gRPC tells a handler nothing of the connection but its peer.Peer, and offers only a stats handler to follow connections, which is
// called several times in each call. The address in peer.Peer, however, is the one that the connection itself gave when it was made,
// and credentials may replace the connection. So the connection given here has an address that carries a context, which ends
// when the connection is closed. That costs nothing in a call.
func TrackConnections(c credentials.TransportCredentials) credentials.TransportCredentials {
	return tracking{c}
}

type tracking struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (t tracking) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := t.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return conn, info, err
	}
	alive, end := context.WithCancel(context.Background())
	return &trackedConn{Conn: conn, end: end, remote: trackedAddr{conn.RemoteAddr(), alive}}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (t tracking) Clone() credentials.TransportCredentials {
	return tracking{t.TransportCredentials.Clone()}
}

// trackedConn is a connection whose end can be noticed.
type trackedConn struct {
	net.Conn
	end    context.CancelFunc
	remote trackedAddr
}

// RemoteAddr implements net.Conn.
func (c *trackedConn) RemoteAddr() net.Addr { return c.remote }

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	c.end()
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
