package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// SelfSigned returns options for a certificate that signs itself, kept in the folder dir as
// cert.pem and key.pem, both made when missing. Hosts are the names and addresses it is good for;
// validity counts from now. The key stays the same; the certificate is renewed when it has expired,
// is for other hosts, or does not fit the key.
//
// It protects against listeners, not against impostors: the options have clients believe any server.
func SelfSigned(dir string, hosts []string, validity time.Duration, now time.Time) (TLSOptions, error) {
	t := TLSOptions{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"), InsecureSkipVerify: true}
	if len(hosts) == 0 || validity <= 0 {
		return TLSOptions{}, fmt.Errorf("transport: a self-signed certificate needs a host and a validity above 0, got %d hosts and %s", len(hosts), validity)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return TLSOptions{}, fmt.Errorf("transport: cannot make the folder of the self-signed certificate: %w", err)
	}
	key, err := ownKey(t.KeyFile)
	if err != nil {
		return TLSOptions{}, err
	}
	if usable(t.CertFile, key, hosts, now) {
		return t, nil
	}
	der, err := selfSign(key, hosts, now, now.Add(validity))
	if err != nil {
		return TLSOptions{}, fmt.Errorf("transport: cannot make a self-signed certificate: %w", err)
	}
	return t, writePEM(t.CertFile, 0o644, "CERTIFICATE", der)
}

// ownKey reads the private key, or makes one.
func ownKey(file string) (*ecdsa.PrivateKey, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return newKey(file)
	}
	if err != nil {
		return nil, fmt.Errorf("transport: cannot read the key of the self-signed certificate: %w", err)
	}
	if block, _ := pem.Decode(content); block != nil {
		if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
			return key, nil
		}
	}
	return nil, fmt.Errorf("transport: %s is not an EC private key in PEM form: remove it to have a new one made", file)
}

func newKey(file string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("transport: cannot make a private key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("transport: cannot make a private key: %w", err)
	}
	return key, writePEM(file, 0o600, "EC PRIVATE KEY", der)
}

// usable reports whether the file holds a certificate that fits the key, is good now, and good for
// all hosts.
func usable(file string, key *ecdsa.PrivateKey, hosts []string, now time.Time) bool {
	content, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || now.Before(cert.NotBefore) || now.After(cert.NotAfter) || !key.PublicKey.Equal(cert.PublicKey) {
		return false
	}
	return !slices.ContainsFunc(hosts, func(h string) bool { return cert.VerifyHostname(h) != nil })
}

// selfSign makes a certificate, good for servers and clients and as its own authority.
func selfSign(key *ecdsa.PrivateKey, hosts []string, from, to time.Time) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	const skew = 5 * time.Minute // clocks that are a little late must believe it too
	c := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{"coordd"}},
		NotBefore:             from.Add(-skew),
		NotAfter:              to,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	return x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
}

// writePEM writes the file so that it appears whole or not at all.
func writePEM(file string, mode os.FileMode, kind string, der []byte) error {
	part := file + ".part"
	err := os.WriteFile(part, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
	if err == nil {
		err = os.Rename(part, file)
	}
	if err != nil {
		return fmt.Errorf("transport: cannot write the self-signed certificate: %w", err)
	}
	return nil
}
