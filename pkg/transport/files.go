package transport

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"sync"
)

// cached is something parsed from files that may change while the program runs. Its load may be called
// from any goroutine.
type cached[T any] struct {
	files []string
	parse func(contents [][]byte) (T, error)

	mu       sync.Mutex
	contents [][]byte // guarded by mu; what value was parsed from, nil before the first time
	value    T        // guarded by mu
}

// load reads the files and returns what they hold. Reading two small files costs far less than a
// handshake does; parsing a key does not, so that is done only when a byte has changed.
func (c *cached[T]) load() (T, error) {
	var none T
	contents := make([][]byte, len(c.files))
	same := true
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, name := range c.files {
		b, err := os.ReadFile(name)
		if err != nil {
			return none, fmt.Errorf("transport: cannot read a TLS file: %w", err)
		}
		contents[i] = b
		same = same && c.contents != nil && bytes.Equal(b, c.contents[i])
	}
	if same {
		return c.value, nil
	}
	v, err := c.parse(contents)
	if err != nil {
		return none, fmt.Errorf("transport: TLS file %s: %w", strings.Join(c.files, " with "), err)
	}
	c.contents, c.value = contents, v
	return v, nil
}

// keyPair is a certificate with its private key.
func keyPair(certFile, keyFile string) *cached[*tls.Certificate] {
	return &cached[*tls.Certificate]{
		files: []string{certFile, keyFile},
		parse: func(contents [][]byte) (*tls.Certificate, error) {
			pair, err := tls.X509KeyPair(contents[0], contents[1])
			return &pair, err
		},
	}
}

// certPool is a set of authorities.
func certPool(file string) *cached[*x509.CertPool] {
	return &cached[*x509.CertPool]{
		files: []string{file},
		parse: func(contents [][]byte) (*x509.CertPool, error) {
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(contents[0]) {
				return nil, fmt.Errorf("holds no certificate in PEM form")
			}
			return pool, nil
		},
	}
}
