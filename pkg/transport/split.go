package transport

import (
	"crypto/tls"
	"net"
)

// preface is what an HTTP/2 client sends first: RFC 9113, section 3.4.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// protoHTTP2 and protoHTTP1 are protocol names of ALPN: RFC 7301 and RFC 9113, section 3.1.
const (
	protoHTTP2 = "h2"
	protoHTTP1 = "http/1.1"
)

// Split parts the connections of ln: those of HTTP/2 clients, which are taken to speak gRPC, and
// all others, for an HTTP/1.1 server. TLS connections, such as come from [Listen] with [WithTLS] or
// from crypto/tls, are judged by the protocol agreed in their handshake and stay *tls.Conn, so
// serve the gRPC side with [Credentials]. Plain connections are judged by their first bytes.
//
// Nothing is read before the first Accept on either side. A side that does not accept holds up its
// own clients only. Closing one side closes its clients that wait, and later ones as they come;
// closing both closes ln and waits until all goroutines have ended. If ln fails or is closed by its
// owner, both sides return its error. Split heeds [WithTimeout] and [WithReject].
func Split(ln net.Listener, opts ...Option) (grpc, http net.Listener) {
	o := collect(opts)
	f := newFunnel(ln)
	g, h := f.outlet(), f.outlet()
	f.prepare = func(conn net.Conn) (net.Conn, *outlet, error) {
		ready, isHTTP2, err := o.judge(conn)
		if isHTTP2 {
			return ready, g, err
		}
		return ready, h, err
	}
	return g, h
}

// judge tells whether conn speaks HTTP/2, and returns a connection from which nothing has been read.
func (o options) judge(conn net.Conn) (ready net.Conn, isHTTP2 bool, err error) {
	if tc, ok := conn.(*tls.Conn); ok {
		if err := o.handshake(tc); err != nil {
			o.rejectTLS(tc, err)
			return nil, false, err
		}
		return tc, tc.ConnectionState().NegotiatedProtocol == protoHTTP2, nil
	}
	err = within(conn, o.timeout, func() (err error) {
		ready, isHTTP2, err = peek(conn, []byte(preface))
		return err
	})
	if err != nil {
		o.reject(Rejection{RemoteAddr: conn.RemoteAddr(), Err: err})
	}
	return ready, isHTTP2, err
}

// peek reads until it is sure whether conn begins with want, and returns a connection that yields
// what it read once more.
func peek(conn net.Conn, want []byte) (again net.Conn, same bool, err error) {
	buf := make([]byte, len(want))
	n := 0
	for n < len(want) {
		m, err := conn.Read(buf[n:])
		for i := n; i < n+m; i++ {
			if buf[i] != want[i] {
				return &rereadConn{conn, buf[:n+m]}, false, nil
			}
		}
		n += m
		if err != nil && n < len(want) {
			return conn, false, err
		}
	}
	return &rereadConn{conn, buf}, true, nil
}

// rereadConn yields the bytes in again before those of the connection. Like any connection it has
// one reader at a time.
type rereadConn struct {
	net.Conn
	again []byte
}

// Read reads what was read before, then the connection.
func (c *rereadConn) Read(p []byte) (int, error) {
	if len(c.again) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.again)
	if c.again = c.again[n:]; len(c.again) == 0 {
		c.again = nil // let go of the buffer
	}
	return n, nil
}
