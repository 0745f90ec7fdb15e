package transport

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// server runs an echo behind a TLS listener and returns its address and the reasons of rejections.
func server(t *testing.T, cfg *tls.Config, opts ...Option) (addr net.Addr, rejected <-chan Rejection) {
	ch := make(chan Rejection, 10)
	ln := listen(t, "https", append(opts, WithTLS(cfg), WithReject(func(r Rejection) { ch <- r }))...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			io.Copy(c, c)
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr(), ch
}

// echo sends a byte through a fresh connection; nil if it came back. With TLS 1.3 a client learns
// that it was refused only at its first read.
func echo(addr net.Addr, cfg *tls.Config) (tls.ConnectionState, error) {
	c, err := tls.Dial("tcp", addr.String(), cfg)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer c.Close()
	if _, err := c.Write([]byte{'x'}); err != nil {
		return tls.ConnectionState{}, err
	}
	_, err = io.ReadFull(c, make([]byte, 1))
	return c.ConnectionState(), err
}

func wantRejection(t *testing.T, rejected <-chan Rejection, err error, reason string) {
	t.Helper()
	if err == nil {
		t.Errorf("a client was accepted that should fail with %q", reason)
		return
	}
	r := <-rejected
	if !strings.Contains(r.Err.Error(), reason) || r.RemoteAddr == nil {
		t.Errorf("rejected %v for %v, want %q", r.RemoteAddr, r.Err, reason)
	}
}

func TestCertificateIsReloaded(t *testing.T) {
	ca, dir := newAuthority(t), t.TempDir()
	o, first := ca.issue(dir, "one", "127.0.0.1")
	addr, rejected := server(t, serverConfig(t, o))
	client := &tls.Config{RootCAs: ca.pool()}
	s, err := echo(addr, client)
	if err != nil || s.PeerCertificates[0].SerialNumber.Cmp(first) != 0 {
		t.Fatalf("first certificate: %v", err)
	}
	_, second := ca.issue(dir, "two", "127.0.0.1")
	s, err = echo(addr, client)
	if err != nil || s.PeerCertificates[0].SerialNumber.Cmp(second) != 0 {
		t.Fatalf("the renewed certificate is not shown: %v", err)
	}
	if err := os.WriteFile(o.CertFile, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = echo(addr, client)
	wantRejection(t, rejected, err, o.CertFile)
	ca.issue(dir, "three", "127.0.0.1")
	if _, err = echo(addr, client); err != nil {
		t.Errorf("a mended file was not taken: %v", err)
	}
}

func TestClientCertificateRequired(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	for _, required := range []bool{true, false} { // an authority alone requires it too
		o, _ := ca.issue(t.TempDir(), "server", "127.0.0.1")
		o.TrustedCAFile, o.ClientCertAuth = ca.file, required
		addr, rejected := server(t, serverConfig(t, o))
		good, _ := ca.issue(t.TempDir(), "client")
		good.TrustedCAFile = ca.file
		if _, err := echo(addr, clientConfig(t, good)); err != nil {
			t.Errorf("a good client failed: %v", err)
		}
		_, err := echo(addr, clientConfig(t, TLSOptions{TrustedCAFile: ca.file}))
		wantRejection(t, rejected, err, "didn't provide a certificate")
		bad, _ := stranger.issue(t.TempDir(), "client")
		bad.TrustedCAFile = ca.file
		_, err = echo(addr, clientConfig(t, bad))
		wantRejection(t, rejected, err, "certificate")
	}
}

func TestTrustedAuthoritiesAreReloaded(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	o, _ := ca.issue(t.TempDir(), "server", "127.0.0.1")
	o.TrustedCAFile = filepath.Join(t.TempDir(), "trusted.pem")
	testPEM(t, o.TrustedCAFile, "CERTIFICATE", ca.cert.Raw)
	addr, rejected := server(t, serverConfig(t, o))
	client, _ := other.issue(t.TempDir(), "client")
	client.TrustedCAFile = ca.file
	_, err := echo(addr, clientConfig(t, client))
	wantRejection(t, rejected, err, "certificate")
	testPEM(t, o.TrustedCAFile, "CERTIFICATE", other.cert.Raw)
	if _, err := echo(addr, clientConfig(t, client)); err != nil {
		t.Errorf("the new authority is not believed: %v", err)
	}
}

func TestClientShowsItsOwnCertificate(t *testing.T) {
	ca := newAuthority(t)
	o, _ := ca.issue(t.TempDir(), "server", "127.0.0.1")
	o.TrustedCAFile, o.AllowedCNs = ca.file, []string{"client"}
	addr, rejected := server(t, serverConfig(t, o))
	mine, _ := ca.issue(t.TempDir(), "client")
	both := o
	if _, err := echo(addr, clientConfig(t, both)); err == nil {
		t.Error("the server's certificate passed as a client's")
	}
	<-rejected
	both.ClientCertFile, both.ClientKeyFile = mine.CertFile, mine.KeyFile
	if _, err := echo(addr, clientConfig(t, both)); err != nil {
		t.Error(err)
	}
}

func TestRevocationList(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	client, serial := ca.issue(t.TempDir(), "client")
	client.TrustedCAFile = ca.file
	o, _ := ca.issue(t.TempDir(), "server", "127.0.0.1")
	o.TrustedCAFile, o.CRLFile = ca.file, filepath.Join(t.TempDir(), "crl.pem")
	other.revoke(o.CRLFile, serial) // the same number of another authority is another certificate
	addr, rejected := server(t, serverConfig(t, o))
	cfg := clientConfig(t, client)
	cfg.ClientSessionCache = tls.NewLRUClientSessionCache(1) // resumed sessions must be checked as well
	for range 2 {
		if _, err := echo(addr, cfg); err != nil {
			t.Fatal(err)
		}
	}
	ca.revoke(o.CRLFile, serial)
	_, err := echo(addr, cfg)
	wantRejection(t, rejected, err, "is revoked")
	if err := os.Remove(o.CRLFile); err != nil {
		t.Fatal(err)
	}
	_, err = echo(addr, cfg)
	wantRejection(t, rejected, err, o.CRLFile)
}

func TestAllowedNames(t *testing.T) {
	ca := newAuthority(t)
	client, _ := ca.issue(t.TempDir(), "worker", "a.example.com", "*.b.example.com")
	client.TrustedCAFile = ca.file
	for _, c := range []struct {
		cns, hosts []string
		reason     string
	}{
		{[]string{"boss", "worker"}, nil, ""},
		{[]string{"boss"}, nil, `common name "worker"`},
		{nil, []string{"x.example.com", "a.example.com"}, ""},
		{nil, []string{"x.b.example.com"}, ""},
		{nil, []string{"x.example.com"}, "none of the allowed hostnames"},
		{nil, []string{"worker"}, "none of the allowed hostnames"},
	} {
		o, _ := ca.issue(t.TempDir(), "server", "127.0.0.1")
		o.TrustedCAFile, o.AllowedCNs, o.AllowedHostnames = ca.file, c.cns, c.hosts
		addr, rejected := server(t, serverConfig(t, o))
		_, err := echo(addr, clientConfig(t, client))
		switch {
		case c.reason != "":
			wantRejection(t, rejected, err, c.reason)
		case err != nil:
			t.Errorf("%v %v: %v", c.cns, c.hosts, err)
		}
	}
}

func TestVersionsAndSuites(t *testing.T) {
	ca := newAuthority(t)
	suites, err := ParseCipherSuites([]string{"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"})
	if err != nil {
		t.Fatal(err)
	}
	o, _ := ca.issue(t.TempDir(), "server", "127.0.0.1")
	newest, old := o, o
	newest.MinVersion = tls.VersionTLS13
	old.MaxVersion, old.CipherSuites = tls.VersionTLS12, suites
	newestAddr, rejected := server(t, serverConfig(t, newest))
	oldAddr, _ := server(t, serverConfig(t, old))
	_, err = echo(newestAddr, &tls.Config{RootCAs: ca.pool(), MaxVersion: tls.VersionTLS12})
	wantRejection(t, rejected, err, "version")
	s, err := echo(oldAddr, &tls.Config{RootCAs: ca.pool()})
	if err != nil || s.Version != tls.VersionTLS12 || s.CipherSuite != suites[0] {
		t.Errorf("version %x, suite %x, %v", s.Version, s.CipherSuite, err)
	}
}

func TestOptionsRefused(t *testing.T) {
	ca := newAuthority(t)
	good, _ := ca.issue(t.TempDir(), "x")
	other, _ := ca.issue(t.TempDir(), "y")
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for reason, change := range map[string]func(*TLSOptions){
		"key file is \"\"":             func(o *TLSOptions) { o.KeyFile = "" },
		"client key file is \"\"":      func(o *TLSOptions) { o.ClientCertFile = "x" },
		"exclude each other":           func(o *TLSOptions) { o.AllowedCNs, o.AllowedHostnames = []string{"a"}, []string{"b"} },
		"min TLS version (TLS 1.3)":    func(o *TLSOptions) { o.MinVersion, o.MaxVersion = tls.VersionTLS13, tls.VersionTLS12 },
		"cannot be chosen for TLS 1.3": func(o *TLSOptions) { o.MinVersion, o.CipherSuites = tls.VersionTLS13, []uint16{1} },
		"needs a certificate":          func(o *TLSOptions) { *o = TLSOptions{} },
		missing:                        func(o *TLSOptions) { o.TrustedCAFile = missing },
		"private key does not match":   func(o *TLSOptions) { o.KeyFile = other.KeyFile },
		"no certificate in PEM form":   func(o *TLSOptions) { o.TrustedCAFile = o.KeyFile },
		"no revocation list":           func(o *TLSOptions) { o.CRLFile = o.KeyFile },
	} {
		o := good
		change(&o)
		if _, err := o.Server(); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("want an error with %q, got %v", reason, err)
		}
	}
	if !(TLSOptions{}).Empty() || good.Empty() {
		t.Error("Empty is wrong")
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]uint16{"": 0, "TLS1.2": tls.VersionTLS12, "TLS1.3": tls.VersionTLS13} {
		if got, err := ParseVersion(text); err != nil || got != want {
			t.Errorf("%q: %x, %v", text, got, err)
		}
	}
	if _, err := ParseVersion("TLS1.1"); err == nil || !strings.Contains(err.Error(), "TLS1.1") {
		t.Errorf("TLS1.1: %v", err)
	}
	if _, err := ParseCipherSuites([]string{"ROT13"}); err == nil || !strings.Contains(err.Error(), "ROT13") {
		t.Errorf("ROT13: %v", err)
	}
	if ids, err := ParseCipherSuites([]string{"TLS_RSA_WITH_AES_128_CBC_SHA"}); err != nil || ids[0] != tls.TLS_RSA_WITH_AES_128_CBC_SHA {
		t.Errorf("an insecure suite: %v, %v", ids, err)
	}
}
