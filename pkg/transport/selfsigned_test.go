package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestSelfSigned(t *testing.T) {
	dir, now := filepath.Join(t.TempDir(), "fixtures", "client"), time.Now()
	hosts := []string{"127.0.0.1", "localhost"}
	o, err := SelfSigned(dir, hosts, time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	addr, _ := server(t, serverConfig(t, o))
	for name, client := range map[string]TLSOptions{
		"blind":    {InsecureSkipVerify: true},
		"trusting": {TrustedCAFile: o.CertFile},
		"itself":   o,
	} {
		if _, err := echo(addr, clientConfig(t, client)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if info, err := os.Stat(o.KeyFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %v, %v", info.Mode(), err)
	}

	cert, key := read(t, o.CertFile), read(t, o.KeyFile)
	again := func(hosts []string, now time.Time) string {
		t.Helper()
		if _, err := SelfSigned(dir, hosts, time.Hour, now); err != nil {
			t.Fatal(err)
		}
		if read(t, o.KeyFile) != key {
			t.Error("the key changed")
		}
		if _, err := o.Server(); err != nil {
			t.Errorf("what was made cannot be used: %v", err)
		}
		return read(t, o.CertFile)
	}
	if again(hosts, now) != cert || again(hosts[:1], now.Add(time.Minute)) != cert {
		t.Error("a certificate that is still good was replaced")
	}
	expired := again(hosts, now.Add(2*time.Hour))
	if expired == cert {
		t.Error("an expired certificate was kept")
	}
	if again([]string{"10.0.0.1"}, now.Add(2*time.Hour)) == expired {
		t.Error("a certificate for other hosts was kept")
	}
	if err := os.WriteFile(o.CertFile, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	again(hosts, now)
}

func TestSelfSignedRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := SelfSigned(dir, nil, time.Hour, time.Now()); err == nil {
		t.Error("no hosts passed")
	}
	if err := os.WriteFile(filepath.Join(dir, "key.pem"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := SelfSigned(dir, []string{"localhost"}, time.Hour, time.Now())
	if err == nil || !strings.Contains(err.Error(), "key.pem") || read(t, filepath.Join(dir, "key.pem")) != "mine" {
		t.Errorf("a foreign key file: %v", err)
	}
	blocked := filepath.Join(dir, "key.pem", "below")
	if _, err := SelfSigned(blocked, []string{"localhost"}, time.Hour, time.Now()); err == nil || !strings.Contains(err.Error(), blocked[:len(blocked)-6]) {
		t.Errorf("an impossible folder: %v", err)
	}
}

func TestClientSAN(t *testing.T) {
	ca := newAuthority(t)
	o, _ := ca.issue(t.TempDir(), "server", "127.0.0.1")
	o.TrustedCAFile = ca.file
	addr, rejected := server(t, serverConfig(t, o), WithClientSAN(true))
	for _, c := range []struct {
		hosts []string
		good  bool
	}{{nil, true}, {[]string{"10.9.8.7", "127.0.0.1"}, true}, {[]string{"localhost"}, true}, {[]string{"10.9.8.7"}, false}} {
		client, _ := ca.issue(t.TempDir(), "member", c.hosts...)
		client.TrustedCAFile = ca.file
		_, err := echo(addr, clientConfig(t, client))
		switch {
		case !c.good:
			wantRejection(t, rejected, err, "connects from 127.0.0.1")
		case err != nil:
			t.Errorf("%v: %v", c.hosts, err)
		}
	}
}

// TestSANWithoutAddress: a unix socket has no address to compare, and a name that does not resolve
// is no match.
func TestSANWithoutAddress(t *testing.T) {
	cert := &x509.Certificate{DNSNames: []string{"*.example.com"}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}}
	if err := checkSAN(t.Context(), new(net.Resolver), cert, &net.UnixAddr{Name: "x"}); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no look-up leaves this machine
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return nil, ctx.Err() }}
	if err := checkSAN(ctx, r, cert, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}); err == nil {
		t.Error("a foreign address passed")
	}
}

func FuzzParseRevoked(f *testing.F) {
	ca := newAuthority(f)
	_, serial := ca.issue(f.TempDir(), "x")
	file := filepath.Join(f.TempDir(), "crl.pem")
	ca.revoke(file, serial)
	content, err := os.ReadFile(file)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Add(bytes.Repeat(content, 2))
	f.Add([]byte{0x30, 0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRevoked(b)
		if (r == nil) != (err != nil) {
			t.Errorf("%v with %v", r, err)
		}
	})
}

func BenchmarkHandshake(b *testing.B) {
	ca := newAuthority(b)
	o, _ := ca.issue(b.TempDir(), "server", "127.0.0.1")
	cfg := serverConfig(b, o)
	client := &tls.Config{RootCAs: ca.pool(), ServerName: "127.0.0.1"}
	for b.Loop() {
		c, s := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- tls.Server(s, cfg).Handshake() }()
		if err := tls.Client(c, client).Handshake(); err != nil {
			b.Fatal(err)
		}
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		c.Close()
		s.Close()
	}
}
