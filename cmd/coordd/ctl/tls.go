package ctl

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
)

// tls gives the configuration that the flags ask for, nil for none.
func (s *settings) tls() (*tls.Config, error) {
	wanted := !s.insecure || s.skipVerify || s.ca != "" || s.cert != "" || s.key != ""
	for _, e := range s.endpoints {
		wanted = wanted || strings.HasPrefix(e, "https:") || strings.HasPrefix(e, "unixs:")
	}
	if !wanted {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: s.skipVerify}
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		if err != nil {
			return nil, fail(exitArguments, "cannot read --cacert: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fail(exitArguments, "--cacert %s holds no certificate in PEM form", s.ca)
		}
	}
	if (s.cert == "") != (s.key == "") {
		return nil, fail(exitArguments, "--cert and --key go together; give both or none")
	}
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, fail(exitArguments, "cannot load --cert %s with --key %s: %w", s.cert, s.key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
