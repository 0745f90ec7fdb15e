package transport

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// revoked are the certificates of revocation lists (RFC 5280, section 5), by issuer and serial
// number, which together name a certificate.
type revoked map[revokedCert]struct{}

type revokedCert struct {
	issuer string // DER of its name
	serial string // decimal
}

// revocations is the content of a file of revocation lists.
func revocations(file string) *cached[revoked] {
	return &cached[revoked]{
		files: []string{file},
		parse: func(contents [][]byte) (revoked, error) { return parseRevoked(contents[0]) },
	}
}

// parseRevoked reads revocation lists, as PEM blocks or one in DER. Their signatures are not
// checked: the file is part of the configuration, like the authorities themselves.
func parseRevoked(content []byte) (revoked, error) {
	var lists [][]byte
	for rest := content; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type == "X509 CRL" {
			lists = append(lists, block.Bytes)
		}
	}
	if lists == nil {
		lists = [][]byte{content}
	}
	r := revoked{}
	for _, der := range lists {
		list, err := x509.ParseRevocationList(der)
		if err != nil {
			return nil, fmt.Errorf("holds no revocation list: %w", err)
		}
		for _, e := range list.RevokedCertificateEntries {
			r[revokedCert{string(list.RawIssuer), e.SerialNumber.String()}] = struct{}{}
		}
	}
	return r, nil
}

// check passes if one of the verified chains has no revoked certificate.
func (r revoked) check(chains [][]*x509.Certificate) error {
	var errs []error
	for _, chain := range chains {
		err := r.checkChain(chain)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (r revoked) checkChain(chain []*x509.Certificate) error {
	for _, c := range chain {
		if _, bad := r[revokedCert{string(c.RawIssuer), c.SerialNumber.String()}]; bad {
			return fmt.Errorf("transport: the certificate of %s with serial number %x is revoked", c.Subject, c.SerialNumber)
		}
	}
	return nil
}
