package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// TLSOptions says how one side of a connection proves itself and whom it believes. Paths are of PEM
// files. The zero value is no TLS; see [TLSOptions.Empty]. It is plain data: copy it, change it,
// then call Server or Client.
type TLSOptions struct {
	// CertFile and KeyFile are the certificate (with its chain) and private key shown by a server,
	// and by a client that has no ClientCertFile.
	CertFile, KeyFile string
	// ClientCertFile and ClientKeyFile are shown by a client instead.
	ClientCertFile, ClientKeyFile string
	// TrustedCAFile holds the authorities believed. Empty: those of the system. A server that has
	// one requires every client to show a certificate, as with ClientCertAuth.
	TrustedCAFile string
	// ClientCertAuth makes a server require a certificate of its clients.
	ClientCertAuth bool
	// CRLFile holds revocation lists, PEM or DER; certificates in them are refused. Lists are used
	// whatever their age.
	CRLFile string
	// AllowedCNs, if not empty, are the common names that a client's certificate may have.
	AllowedCNs []string
	// AllowedHostnames, if not empty, are host names of which a client's certificate must be good
	// for one. It excludes AllowedCNs.
	AllowedHostnames []string
	// MinVersion and MaxVersion bound the protocol, as tls.VersionTLS12; 0 is TLS 1.2 and the
	// newest. See [ParseVersion].
	MinVersion, MaxVersion uint16
	// CipherSuites are those allowed up to TLS 1.2, best first; empty is Go's choice. See
	// [ParseCipherSuites].
	CipherSuites []uint16
	// ServerName is what a client requires the server's certificate to be good for; empty is the
	// host it dials.
	ServerName string
	// InsecureSkipVerify makes a client believe any server: for self-signed certificates only.
	InsecureSkipVerify bool
}

// Empty reports whether there is neither a certificate nor an authority, so that TLS is not meant
// to be used.
func (t TLSOptions) Empty() bool {
	return t.CertFile == "" && t.KeyFile == "" && t.ClientCertFile == "" && t.ClientKeyFile == "" && t.TrustedCAFile == ""
}

// Validate checks that the options do not contradict each other. It reads no files.
func (t TLSOptions) Validate() error {
	switch {
	case (t.CertFile == "") != (t.KeyFile == ""):
		return fmt.Errorf("transport: a certificate needs its key: cert file is %q, key file is %q; give both or neither", t.CertFile, t.KeyFile)
	case (t.ClientCertFile == "") != (t.ClientKeyFile == ""):
		return fmt.Errorf("transport: a certificate needs its key: client cert file is %q, client key file is %q; give both or neither", t.ClientCertFile, t.ClientKeyFile)
	case len(t.AllowedCNs) > 0 && len(t.AllowedHostnames) > 0:
		return errors.New("transport: allowed common names and allowed hostnames exclude each other: give one of the two")
	case t.MinVersion != 0 && t.MaxVersion != 0 && t.MinVersion > t.MaxVersion:
		return fmt.Errorf("transport: min TLS version (%s) is above the max version (%s)", tls.VersionName(t.MinVersion), tls.VersionName(t.MaxVersion))
	case len(t.CipherSuites) > 0 && t.MinVersion >= tls.VersionTLS13:
		return errors.New("transport: cipher suites cannot be chosen for TLS 1.3: drop them, or allow TLS 1.2")
	}
	return nil
}

// Server makes the configuration of a server. It reads all files once, so that a wrong one is found
// now; afterwards they are read at each handshake. It offers http/1.1 before h2, which is what
// [Split] needs; set NextProtos of the result to change it.
func (t TLSOptions) Server() (*tls.Config, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	if t.CertFile == "" {
		return nil, errors.New("transport: a TLS server needs a certificate: give a cert file and a key file")
	}
	cfg := t.base()
	cfg.NextProtos = []string{protoHTTP1, protoHTTP2}
	pair := keyPair(t.CertFile, t.KeyFile)
	if _, err := pair.load(); err != nil {
		return nil, err
	}
	cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.load() }
	if t.ClientCertAuth || t.TrustedCAFile != "" {
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if t.TrustedCAFile != "" {
		authorities := certPool(t.TrustedCAFile)
		pool, err := authorities.load()
		if err != nil {
			return nil, err
		}
		cfg.ClientCAs = pool
		cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			pool, err := authorities.load()
			if err != nil {
				return nil, err
			}
			c := cfg.Clone()
			c.GetConfigForClient, c.ClientCAs = nil, pool
			return c, nil
		}
	}
	return cfg, t.addChecks(cfg, t.checkName)
}

// Client makes the configuration of a client. It reads all files once, so that a wrong one is found
// now; the certificate and revocation lists are read again at each handshake, the authorities are
// not.
func (t TLSOptions) Client() (*tls.Config, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	cfg := t.base()
	cfg.ServerName = t.ServerName
	cfg.InsecureSkipVerify = t.InsecureSkipVerify
	cert, key := t.CertFile, t.KeyFile
	if t.ClientCertFile != "" {
		cert, key = t.ClientCertFile, t.ClientKeyFile
	}
	if cert != "" {
		pair := keyPair(cert, key)
		if _, err := pair.load(); err != nil {
			return nil, err
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.load() }
	}
	if t.TrustedCAFile != "" {
		pool, err := certPool(t.TrustedCAFile).load()
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = pool
	}
	return cfg, t.addChecks(cfg, func(*x509.Certificate) error { return nil })
}

func (t TLSOptions) base() *tls.Config {
	return &tls.Config{
		MinVersion:   max(t.MinVersion, tls.VersionTLS12),
		MaxVersion:   t.MaxVersion,
		CipherSuites: slices.Clone(t.CipherSuites),
	}
}

// addChecks has cfg check the other side's verified certificate against the revocation lists and by
// name. VerifyConnection, unlike VerifyPeerCertificate, also runs when a session is resumed.
func (t TLSOptions) addChecks(cfg *tls.Config, name func(leaf *x509.Certificate) error) error {
	check := func(chains [][]*x509.Certificate) error { return nil }
	if t.CRLFile != "" {
		lists := revocations(t.CRLFile)
		if _, err := lists.load(); err != nil {
			return err
		}
		check = func(chains [][]*x509.Certificate) error {
			r, err := lists.load()
			if err != nil {
				return err
			}
			return r.check(chains)
		}
	}
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.VerifiedChains) == 0 {
			return nil // the other side was not asked, or is believed unseen
		}
		if err := check(s.VerifiedChains); err != nil {
			return err
		}
		return name(s.VerifiedChains[0][0])
	}
	return nil
}

// checkName holds a client's certificate against the allowed names.
func (t TLSOptions) checkName(leaf *x509.Certificate) error {
	if len(t.AllowedCNs) > 0 && !slices.Contains(t.AllowedCNs, leaf.Subject.CommonName) {
		return fmt.Errorf("transport: the client's certificate has the common name %q, allowed are %s", leaf.Subject.CommonName, strings.Join(t.AllowedCNs, ", "))
	}
	good := func(host string) bool { return leaf.VerifyHostname(host) == nil }
	if len(t.AllowedHostnames) > 0 && !slices.ContainsFunc(t.AllowedHostnames, good) {
		return fmt.Errorf("transport: the client's certificate (names %v, addresses %v) is good for none of the allowed hostnames %s", leaf.DNSNames, leaf.IPAddresses, strings.Join(t.AllowedHostnames, ", "))
	}
	return nil
}
