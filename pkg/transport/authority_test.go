package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority issues certificates for tests.
type authority struct {
	t      testing.TB
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	file   string
	serial int64
}

func newAuthority(t testing.TB) *authority {
	a := &authority{t: t, key: testKey(t), file: filepath.Join(t.TempDir(), "ca.pem"), serial: 1}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority " + a.file},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der := must(t)(x509.CreateCertificate(rand.Reader, tmpl, tmpl, &a.key.PublicKey, a.key))
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	testPEM(t, a.file, "CERTIFICATE", der)
	return a
}

// issue writes a certificate for the hosts and its key into dir, over what is there, and returns
// its options and serial.
func (a *authority) issue(dir, cn string, hosts ...string) (TLSOptions, *big.Int) {
	a.serial++
	key := testKey(a.t)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: cn},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	o := TLSOptions{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	testPEM(a.t, o.CertFile, "CERTIFICATE", must(a.t)(x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)))
	testPEM(a.t, o.KeyFile, "EC PRIVATE KEY", must(a.t)(x509.MarshalECPrivateKey(key)))
	return o, c.SerialNumber
}

// revoke writes a revocation list of the serials.
func (a *authority) revoke(file string, serials ...*big.Int) {
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour)}
	for _, s := range serials {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: s, RevocationTime: time.Now()})
	}
	testPEM(a.t, file, "X509 CRL", must(a.t)(x509.CreateRevocationList(rand.Reader, list, a.cert, a.key)))
}

// pool believes this authority.
func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func must(t testing.TB) func([]byte, error) []byte {
	return func(b []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

func testKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func testPEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// serverConfig and clientConfig make configurations that must be right.
func serverConfig(t testing.TB, o TLSOptions) *tls.Config {
	t.Helper()
	cfg, err := o.Server()
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func clientConfig(t testing.TB, o TLSOptions) *tls.Config {
	t.Helper()
	cfg, err := o.Client()
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// listen binds a free loopback port.
func listen(t testing.TB, scheme string, opts ...Option) net.Listener {
	t.Helper()
	ln, err := Listen(t.Context(), scheme+"://127.0.0.1:0", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// dial connects in the clear.
func dial(t testing.TB, addr net.Addr) net.Conn {
	t.Helper()
	c, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
