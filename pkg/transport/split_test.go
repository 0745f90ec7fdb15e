package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"pgregory.net/rapid"
)

// serve runs a gRPC and an HTTP server on one listener until the test ends. The gRPC server notes the
// security of each call.
func serve(t *testing.T, ln net.Listener) (security <-chan credentials.AuthInfo) {
	g, h := Split(ln)
	ch := make(chan credentials.AuthInfo, 10)
	gs := grpc.NewServer(grpc.Creds(Credentials()), grpc.UnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			p, _ := peer.FromContext(ctx)
			ch <- p.AuthInfo
			return handle(ctx, req)
		}))
	healthpb.RegisterHealthServer(gs, health.NewServer())
	hs := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %v", r.Proto, r.TLS != nil)
	})}
	done := make(chan error, 2)
	go func() { done <- gs.Serve(g) }()
	go func() { done <- hs.Serve(h) }()
	t.Cleanup(func() {
		gs.Stop()
		hs.Close()
		for range 2 {
			if err := <-done; err != nil && !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("a server ended with %v", err)
			}
		}
	})
	return ch
}

func checkHealth(t *testing.T, ln net.Listener, creds credentials.TransportCredentials) {
	t.Helper()
	cc, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	r, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("gRPC: %v, %v", r, err)
	}
}

func checkHTTP(t *testing.T, url string, tr *http.Transport, want string) {
	t.Helper()
	defer tr.CloseIdleConnections()
	r, err := (&http.Client{Transport: tr}).Get(url)
	if err != nil {
		t.Errorf("HTTP: %v", err)
		return
	}
	defer r.Body.Close()
	if b, err := io.ReadAll(r.Body); string(b) != want {
		t.Errorf("HTTP answered %q, %v, want %q", b, err, want)
	}
}

func TestSplitInTheClear(t *testing.T) {
	ln := listen(t, "http")
	security := serve(t, ln)
	checkHealth(t, ln, insecure.NewCredentials())
	if a := <-security; a.AuthType() != "insecure" {
		t.Errorf("auth type %s", a.AuthType())
	}
	checkHTTP(t, "http://"+ln.Addr().String(), &http.Transport{}, "HTTP/1.1 false")
}

func TestSplitUnderTLS(t *testing.T) {
	ca := newAuthority(t)
	o, _ := ca.issue(t.TempDir(), "server", "127.0.0.1")
	o.TrustedCAFile = ca.file
	client, _ := ca.issue(t.TempDir(), "somebody")
	client.TrustedCAFile = ca.file
	ln := listen(t, "https", WithTLS(serverConfig(t, o)))
	security := serve(t, ln)
	cfg := clientConfig(t, client)
	checkHealth(t, ln, credentials.NewTLS(cfg))
	info, ok := (<-security).(credentials.TLSInfo)
	if !ok || info.State.VerifiedChains[0][0].Subject.CommonName != "somebody" || info.SecurityLevel != credentials.PrivacyAndIntegrity {
		t.Errorf("the handler saw %+v", info.CommonAuthInfo)
	}
	// This client offers h2 and http/1.1, and gets http/1.1.
	checkHTTP(t, "https://"+ln.Addr().String(), &http.Transport{TLSClientConfig: cfg.Clone(), ForceAttemptHTTP2: true}, "HTTP/1.1 true")
	// This one offers nothing.
	checkHTTP(t, "https://"+ln.Addr().String(), &http.Transport{TLSClientConfig: cfg.Clone(), TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}, "HTTP/1.1 true")
}

func TestSplitMixed(t *testing.T) {
	ca := newAuthority(t)
	o, _ := ca.issue(t.TempDir(), "server", "127.0.0.1")
	ln := listen(t, "https", WithTLS(serverConfig(t, o)), WithClear(true))
	serve(t, ln)
	cfg := &tls.Config{RootCAs: ca.pool()}
	checkHealth(t, ln, insecure.NewCredentials())
	checkHealth(t, ln, credentials.NewTLS(cfg))
	checkHTTP(t, "http://"+ln.Addr().String(), &http.Transport{}, "HTTP/1.1 false")
	checkHTTP(t, "https://"+ln.Addr().String(), &http.Transport{TLSClientConfig: cfg}, "HTTP/1.1 true")
}

// TestSplitTakesForeignTLS uses a listener of crypto/tls, whose connections come before their
// handshake.
func TestSplitTakesForeignTLS(t *testing.T) {
	ca := newAuthority(t)
	o, _ := ca.issue(t.TempDir(), "server", "127.0.0.1")
	ln := tls.NewListener(listen(t, "http"), serverConfig(t, o))
	serve(t, ln)
	checkHealth(t, ln, credentials.NewTLS(&tls.Config{RootCAs: ca.pool()}))
}

// TestHangingClientsHoldUpNobody opens connections that say nothing, or half a preface, before good
// ones.
func TestHangingClientsHoldUpNobody(t *testing.T) {
	ca := newAuthority(t)
	o, _ := ca.issue(t.TempDir(), "server", "127.0.0.1")
	for _, scheme := range []string{"http", "https"} {
		ln := listen(t, scheme, WithTLS(serverConfig(t, o)))
		serve(t, ln)
		for i := range 10 {
			c := dial(t, ln.Addr())
			if i%2 == 0 {
				if _, err := io.WriteString(c, preface[:5]); err != nil {
					t.Fatal(err)
				}
			}
		}
		if scheme == "http" {
			checkHealth(t, ln, insecure.NewCredentials())
		} else {
			checkHealth(t, ln, credentials.NewTLS(&tls.Config{RootCAs: ca.pool()}))
		}
	}
}

func TestHangingClientsAreCut(t *testing.T) {
	ca := newAuthority(t)
	o, _ := ca.issue(t.TempDir(), "server", "127.0.0.1")
	for _, scheme := range []string{"http", "https"} {
		rejected := make(chan Rejection, 1)
		opts := []Option{WithTLS(serverConfig(t, o)), WithTimeout(30 * time.Millisecond), WithReject(func(r Rejection) { rejected <- r })}
		ln := listen(t, scheme, opts...)
		g, h := Split(ln, opts...)
		failed := make(chan error, 1)
		go func() { _, err := h.Accept(); failed <- err }()
		c := dial(t, ln.Addr())
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("read something")
		}
		r := <-rejected
		if e := net.Error(nil); !errors.As(r.Err, &e) || !e.Timeout() || r.RemoteAddr.String() != c.LocalAddr().String() {
			t.Errorf("%s: rejected %v for %v", scheme, r.RemoteAddr, r.Err)
		}
		g.Close()
		h.Close()
		if err := <-failed; !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: Accept ended with %v", scheme, err)
		}
	}
}

// TestCloseEndsEverything closes while clients are in every state; TestMain sees to it that no
// goroutine stays.
func TestCloseEndsEverything(t *testing.T) {
	ln := listen(t, "http")
	g, h := Split(ln)
	failed := make(chan error, 2)
	accepted, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if _, err := io.WriteString(accepted, "GET / HTTP/1.1\r\n"); err != nil {
		t.Fatal(err)
	}
	mine, err := h.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	dial(t, ln.Addr()) // says nothing
	waiting := dial(t, ln.Addr())
	if _, err := io.WriteString(waiting, "GET"); err != nil { // ready, but nobody accepts
		t.Fatal(err)
	}
	go func() { _, err := g.Accept(); failed <- err }()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept on the closed side: %v", err)
	}
	if c, err := h.Accept(); err != nil { // the other side lives on
		t.Error(err)
	} else {
		c.Close()
	}
	for range 2 {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	if c, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		c.Close()
		t.Error("the port is still open")
	}
	if _, err := io.WriteString(mine, "x"); err != nil {
		t.Errorf("a connection that was handed over was cut: %v", err)
	}
}

func TestOwnerClosesTheListener(t *testing.T) {
	ln := listen(t, "http")
	g, h := Split(ln)
	c := dial(t, ln.Addr())
	failed := make(chan error, 2)
	for _, side := range []net.Listener{g, h} {
		go func() { _, err := side.Accept(); failed <- err }()
	}
	ln.Close()
	for range 2 {
		if err := <-failed; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a waiting client was not cut")
	}
	for _, side := range []net.Listener{g, h} {
		if err := side.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestCloseBeforeAccept(t *testing.T) {
	ln := listen(t, "http")
	g, h := Split(ln)
	g.Close()
	h.Close()
	if _, err := g.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener below is open: %v", err)
	}
}

// TestPeek feeds any beginning in any pieces; the verdict must be right and no byte lost.
func TestPeek(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sent := preface[:rapid.IntRange(0, len(preface)).Draw(rt, "cut")] + rapid.String().Draw(rt, "rest")
		client, srv := net.Pipe()
		defer srv.Close()
		cuts := rapid.SliceOf(rapid.IntRange(1, 30)).Draw(rt, "pieces")
		go func() {
			defer client.Close()
			for rest := sent; rest != ""; {
				n := len(rest)
				if len(cuts) > 0 {
					n, cuts = min(n, cuts[0]), cuts[1:]
				}
				if _, err := io.WriteString(client, rest[:n]); err != nil {
					return
				}
				rest = rest[n:]
			}
		}()
		conn, same, err := peek(srv, []byte(preface))
		if err != nil {
			if !strings.HasPrefix(preface, sent) || !errors.Is(err, io.EOF) {
				rt.Fatalf("%q: %v", sent, err)
			}
			return
		}
		if same != strings.HasPrefix(sent, preface) {
			rt.Fatalf("%q judged %v", sent, same)
		}
		if got, err := io.ReadAll(conn); string(got) != sent {
			rt.Fatalf("sent %q, got %q, %v", sent, got, err)
		}
	})
}

func TestCredentialsRefuse(t *testing.T) {
	c := Credentials().Clone()
	client, srv := net.Pipe()
	defer client.Close()
	defer srv.Close()
	if _, _, err := c.ServerHandshake(tls.Server(srv, &tls.Config{})); err == nil || !strings.Contains(err.Error(), "before its handshake") {
		t.Errorf("a connection without a handshake: %v", err)
	}
	if _, _, err := c.ClientHandshake(t.Context(), "x", client); err == nil {
		t.Error("a client used the server's credentials")
	}
}
