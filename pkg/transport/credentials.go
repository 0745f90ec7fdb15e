package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Credentials returns what a grpc.Server needs to serve connections of [Listen] and [Split]: it
// takes a *tls.Conn as it is, its handshake done, and gives its state to the handlers as
// credentials.TLSInfo; other connections are in the clear. It is for servers only.
func Credentials() credentials.TransportCredentials {
	return handshaken{insecure.NewCredentials()}
}

// handshaken is the credentials of connections that need no handshake any more.
type handshaken struct {
	clear credentials.TransportCredentials // for connections without TLS
}

// ServerHandshake returns conn as it is.
func (h handshaken) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	tc, ok := conn.(*tls.Conn)
	if !ok {
		return h.clear.ServerHandshake(conn)
	}
	state := tc.ConnectionState()
	if !state.HandshakeComplete {
		return nil, nil, errors.New("transport: a TLS connection reached gRPC before its handshake: serve listeners made by Listen or Split")
	}
	return tc, credentials.TLSInfo{
		State:          state,
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

// ClientHandshake refuses: these are a server's credentials.
func (h handshaken) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("transport: these credentials are for servers; a client uses credentials.NewTLS")
}

// Info names the protocol, for those who list it.
func (h handshaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone returns a copy; there is no state to part.
func (h handshaken) Clone() credentials.TransportCredentials { return h }

// OverrideServerName does nothing: a server asks for no name.
func (h handshaken) OverrideServerName(string) error { return nil }
