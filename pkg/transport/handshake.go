package transport

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// handshakes returns a listener that does the TLS handshake before Accept returns a connection,
// each on a goroutine of its own.
func handshakes(ln net.Listener, o options) net.Listener {
	f := newFunnel(ln)
	out := f.outlet()
	f.prepare = func(conn net.Conn) (net.Conn, *outlet, error) {
		ready, err := o.secure(conn)
		return ready, out, err
	}
	return out
}

// secure makes conn a TLS connection, or leaves it in the clear where that is allowed and wanted.
func (o options) secure(conn net.Conn) (net.Conn, error) {
	const handshakeRecord = 22 // RFC 8446, section 5.1
	if o.clear {
		var isTLS bool
		err := within(conn, o.timeout, func() (err error) {
			conn, isTLS, err = peek(conn, []byte{handshakeRecord})
			return err
		})
		if err != nil {
			o.reject(Rejection{RemoteAddr: conn.RemoteAddr(), Err: err})
			return nil, err
		}
		if !isTLS {
			return conn, nil
		}
	}
	tc := tls.Server(conn, o.tls)
	err := o.handshake(tc)
	if err == nil && o.clientSAN {
		err = o.checkClient(tc)
	}
	if err != nil {
		o.rejectTLS(tc, err)
		return nil, err
	}
	return tc, nil
}

// handshake does the TLS handshake in time; nothing if it was done before.
func (o options) handshake(tc *tls.Conn) error {
	return within(tc, o.timeout, tc.Handshake)
}

// checkClient compares the client's certificate, if it has one, with where it connects from.
func (o options) checkClient(tc *tls.Conn) error {
	certs := tc.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	return checkSAN(ctx, new(net.Resolver), certs[0], tc.RemoteAddr())
}

func (o options) rejectTLS(tc *tls.Conn, err error) {
	s := tc.ConnectionState()
	o.reject(Rejection{RemoteAddr: tc.RemoteAddr(), ServerName: s.ServerName, Certificates: s.PeerCertificates, Err: err})
}

// within runs f with a deadline on the connection and takes the deadline off again.
func within(conn net.Conn, d time.Duration, f func() error) error {
	if err := conn.SetDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}
