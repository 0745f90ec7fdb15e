// Package transport opens the sockets of a server and decides what speaks on them: listeners for http,
// https, unix and unixs URLs, TLS built from files, and the sharing of one port by gRPC and HTTP.
//
// # From a URL to two servers
//
//	Listen(ctx, url, options…)   binds; with WithTLS its connections arrive with the handshake done
//	Split(listener)              parts them: one listener for gRPC, one for HTTP/1.1
//	Credentials()                lets a grpc.Server serve connections whose handshake is done
//
// [Split] decides per connection. In the clear it reads up to 24 bytes: the HTTP/2 connection
// preface (RFC 9113, section 3.4) means gRPC, anything else HTTP. Under TLS the protocol agreed by
// ALPN (RFC 7301) decides: h2 means gRPC. The configuration made by [TLSOptions.Server] prefers
// http/1.1, so a client that offers both is served HTTP/1.1 and one that offers h2 alone, as gRPC
// clients do, gets h2. So gRPC always runs on grpc-go's own transport.
//
// # TLS
//
// [TLSOptions] holds the files and rules. Certificates, keys, the trusted authorities of a server
// and revocation lists are read again at each handshake and parsed again when their bytes changed,
// so renewing a certificate needs no restart. Only the authorities that a client trusts are fixed
// when [TLSOptions.Client] is called. A file that cannot be read or parsed fails the handshake with
// an error that names it; it never loosens a check. [SelfSigned] makes a certificate for those who
// have none.
//
// # Goroutines
//
// A plain listener has none. A TLS listener and a pair made by Split each run one goroutine that
// accepts, and one for each connection that is not handed over yet, so a client that is slow or
// says nothing holds up nobody else. They start at the first Accept, as connections should wait in
// the backlog until the server is ready. Each preparation ends by a deadline (10 s unless
// [WithTimeout] says otherwise), and Close ends them all and waits for them. A mutex in each funnel
// guards its set of such connections; nothing blocks under it.
package transport
