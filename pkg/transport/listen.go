package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"

	"golang.org/x/net/netutil"
)

// Address takes a listen URL apart: the network and address to bind, and whether it is for TLS.
// Schemes are http, https (tcp; the host must be an IP address or localhost, and there must be a
// port but no path), unix and unixs (the socket file is what follows the scheme:
// unix://localhost:1234 is the file localhost:1234 in the working directory, unix:///run/c.sock an
// absolute one).
func Address(rawURL string) (network, address string, secure bool, err error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "", "", false, fmt.Errorf("transport: %q is not a URL: %w", rawURL, err)
	}
	switch u.Scheme {
	case "unix", "unixs":
		address = u.Host + u.Path + u.Opaque
		if address == "" {
			return "", "", false, fmt.Errorf("transport: %s names no socket file: write %s://<path>", rawURL, u.Scheme)
		}
		return "unix", address, u.Scheme == "unixs", nil
	case "http", "https":
	default:
		return "", "", false, fmt.Errorf("transport: URL scheme of %q must be http, https, unix, or unixs", rawURL)
	}
	switch {
	case u.Hostname() != "localhost" && net.ParseIP(u.Hostname()) == nil:
		return "", "", false, fmt.Errorf("transport: expected IP in URL for binding (%s): write an address of this machine, 0.0.0.0 or [::] for all of them, or localhost", rawURL)
	case u.Port() == "":
		return "", "", false, fmt.Errorf("transport: %s has no port: write %s://%s:<port>", rawURL, u.Scheme, u.Host)
	case u.Path != "" && u.Path != "/":
		return "", "", false, fmt.Errorf("transport: %s must not have a path: drop %q", rawURL, u.Path)
	}
	return "tcp", u.Host, u.Scheme == "https", nil
}

// Listen binds the address of a listen URL (see [Address]). The context bounds the look-up of
// localhost, not the listener's life. For https and unixs, [WithTLS] must be given, and Accept
// returns a *tls.Conn whose handshake is done. For http and unix TLS is not used, unless
// [WithClear] asks for both; then Accept may return either kind. A socket file left behind by a
// process that died is replaced.
//
// Errors say what is wrong with the address and what to do about it, and wrap the system's error.
func Listen(ctx context.Context, rawURL string, opts ...Option) (net.Listener, error) {
	o := collect(opts)
	network, address, secure, err := Address(rawURL)
	if err != nil {
		return nil, err
	}
	if secure && o.tls == nil {
		return nil, fmt.Errorf("transport: %s needs TLS but has no certificate: give a certificate and key file, or switch on auto-tls", rawURL)
	}
	lc := net.ListenConfig{KeepAliveConfig: o.keepAlive, Control: o.control()}
	ln, err := lc.Listen(ctx, network, address)
	if network == "unix" && errors.Is(err, syscall.EADDRINUSE) && abandoned(ctx, address) {
		if err = os.Remove(address); err == nil {
			ln, err = lc.Listen(ctx, network, address)
		}
	}
	if err != nil {
		return nil, explain(rawURL, network, address, err)
	}
	if o.maxConns > 0 {
		ln = netutil.LimitListener(ln, o.maxConns)
	}
	if secure || o.tls != nil && o.clear {
		ln = handshakes(ln, o)
	}
	return ln, nil
}

// abandoned reports whether a socket file has no process behind it.
func abandoned(ctx context.Context, file string) bool {
	info, err := os.Stat(file)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", file)
	if err == nil {
		conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// explain turns a failure to bind into one that says what to do.
func explain(rawURL, network, address string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && network == "unix":
		hint = "another process serves this socket; stop it, or choose another listen URL"
	case errors.Is(err, syscall.EADDRINUSE):
		_, port, _ := net.SplitHostPort(address)
		hint = fmt.Sprintf("%s is taken; find the process with `ss -ltnp 'sport = :%s'` and stop it, or choose another listen URL", address, port)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		hint = fmt.Sprintf("no interface of this machine has the address %s; use one of its own, or 0.0.0.0 for all", address)
	case errors.Is(err, syscall.EACCES) && network == "unix":
		hint = "this user may not create the socket file; change the rights of its folder or choose another"
	case errors.Is(err, syscall.EACCES):
		hint = "this user may not bind the port; choose one above 1023"
	case errors.Is(err, syscall.ENOENT):
		hint = "the folder of the socket file does not exist; create it"
	default:
		return fmt.Errorf("transport: cannot listen on %s: %w", rawURL, err)
	}
	return fmt.Errorf("transport: cannot listen on %s: %s: %w", rawURL, hint, err)
}
