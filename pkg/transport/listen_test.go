package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAddress(t *testing.T) {
	for _, c := range []struct {
		url, network, address string
		secure                bool
		wrong                 string
	}{
		{"http://127.0.0.1:2379", "tcp", "127.0.0.1:2379", false, ""},
		{"https://[::1]:2379/", "tcp", "[::1]:2379", true, ""},
		{"http://localhost:0", "tcp", "localhost:0", false, ""},
		{"unix://localhost:1234", "unix", "localhost:1234", false, ""},
		{"unix:///run/c.sock", "unix", "/run/c.sock", false, ""},
		{"unixs:c.sock", "unix", "c.sock", true, ""},
		{"http://example.com:1", "", "", false, "expected IP in URL for binding"},
		{"http://:2379", "", "", false, "expected IP in URL for binding"},
		{"http://127.0.0.1", "", "", false, "has no port"},
		{"http://127.0.0.1:1/x", "", "", false, "must not have a path"},
		{"ftp://127.0.0.1:1", "", "", false, "must be http, https, unix, or unixs"},
		{"127.0.0.1:1", "", "", false, "127.0.0.1:1"},
		{"unix://", "", "", false, "names no socket file"},
		{"http://127.0.0.1:1\x00", "", "", false, "is not a URL"},
	} {
		network, address, secure, err := Address(c.url)
		if network != c.network || address != c.address || secure != c.secure {
			t.Errorf("%q: %q %q %v", c.url, network, address, secure)
		}
		if (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%q: error %v, want %q", c.url, err, c.wrong)
		}
	}
}

func TestTakenPort(t *testing.T) {
	ln := listen(t, "http")
	defer ln.Close()
	_, err := Listen(t.Context(), "http://"+ln.Addr().String())
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("a taken port answered %v", err)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	for _, part := range []string{ln.Addr().String() + " is taken", "ss -ltnp 'sport = :" + port, "choose another"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
}

func TestListenRefuses(t *testing.T) {
	for url, wrong := range map[string]string{
		"https://127.0.0.1:0":  "has no certificate",
		"unixs://x.sock":       "has no certificate",
		"http://192.0.2.1:1":   "no interface of this machine",
		"http://127.0.0.1:x":   "not a URL",
		"unix:///nowhere/at/a": "the folder of the socket file does not exist",
	} {
		ln, err := Listen(t.Context(), url)
		if err == nil {
			ln.Close()
		}
		if err == nil || !strings.Contains(err.Error(), wrong) || !strings.Contains(err.Error(), url) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestUnixSocket(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s")
	ln, err := Listen(t.Context(), "unix://"+file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), "unix://"+file); err == nil || !strings.Contains(err.Error(), "another process serves this socket") {
		t.Errorf("a socket in use answered %v", err)
	}
	// A process that dies leaves the file.
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	ln.Close()
	if ln, err = Listen(t.Context(), "unix://"+file); err != nil {
		t.Fatalf("a socket left behind is in the way: %v", err)
	}
	ln.Close()
	// A file that is not a socket is not ours to remove.
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), "unix://"+file); err == nil {
		t.Error("listening on a plain file worked")
	}
	if b, err := os.ReadFile(file); string(b) != "precious" {
		t.Errorf("the file holds %q now, %v", b, err)
	}
}

func TestReusePort(t *testing.T) {
	one := listen(t, "http", WithReusePort(true), WithReuseAddress(true))
	defer one.Close()
	two, err := Listen(t.Context(), "http://"+one.Addr().String(), WithReusePort(true))
	if err != nil {
		t.Fatalf("a second listener with SO_REUSEPORT: %v", err)
	}
	two.Close()
}

func TestMaxConns(t *testing.T) {
	ln := listen(t, "http", WithMaxConns(1))
	defer ln.Close()
	accepted := make(chan net.Conn)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()
	dial(t, ln.Addr())
	first := <-accepted
	dial(t, ln.Addr())
	select {
	case <-accepted:
		t.Fatal("a second connection passed a limit of one")
	case <-time.After(20 * time.Millisecond):
	}
	first.Close()
	second := <-accepted
	second.Close()
	ln.Close()
	for range accepted {
	}
}

// failing is a listener whose first calls fail, as the system's do when descriptors run out.
type failing struct {
	net.Listener
	errs []error
}

func (l *failing) Accept() (net.Conn, error) {
	if len(l.errs) == 0 {
		return l.Listener.Accept()
	}
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, err
}

func TestAcceptOutlivesShortage(t *testing.T) {
	short := &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	base := listen(t, "http")
	grpc, http := Split(&failing{base, []error{short, short}})
	defer grpc.Close()
	defer http.Close()
	c := dial(t, base.Addr())
	if _, err := io.WriteString(c, "GET"); err != nil {
		t.Fatal(err)
	}
	got, err := http.Accept()
	if err != nil {
		t.Fatalf("a shortage of descriptors ended the listener: %v", err)
	}
	got.Close()
}

func TestAcceptReportsFailure(t *testing.T) {
	broken := errors.New("broken for good")
	base := listen(t, "http")
	grpc, http := Split(&failing{base, []error{broken}})
	defer grpc.Close()
	defer http.Close()
	for range 2 {
		if _, err := http.Accept(); !errors.Is(err, broken) {
			t.Errorf("http: %v", err)
		}
		if _, err := grpc.Accept(); !errors.Is(err, broken) {
			t.Errorf("grpc: %v", err)
		}
	}
}

func TestListenHeedsItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if ln, err := Listen(ctx, "http://localhost:0"); err == nil {
		ln.Close()
		t.Error("a cancelled context was not heeded")
	}
}
