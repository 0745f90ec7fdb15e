package transport

import (
	"crypto/tls"
	"fmt"
	"strings"
)

// ParseVersion reads a TLS version as users write it: TLS1.2, TLS1.3, or empty for 0, the default.
func ParseVersion(text string) (uint16, error) {
	switch text {
	case "":
		return 0, nil
	case "TLS1.2":
		return tls.VersionTLS12, nil
	case "TLS1.3":
		return tls.VersionTLS13, nil
	}
	return 0, fmt.Errorf("transport: unexpected TLS version %q: want TLS1.2 or TLS1.3", text)
}

// ParseCipherSuites reads names of cipher suites as package crypto/tls spells them. Names of
// insecure suites are known too: who lists them by name is taken to know.
func ParseCipherSuites(names []string) ([]uint16, error) {
	var ids []uint16
	for _, name := range names {
		id, ok := cipherSuite(name)
		if !ok {
			return nil, fmt.Errorf("transport: unexpected TLS cipher suite %q: known are %s", name, suiteNames())
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func cipherSuite(name string) (uint16, bool) {
	for _, list := range [][]*tls.CipherSuite{tls.CipherSuites(), tls.InsecureCipherSuites()} {
		for _, s := range list {
			if s.Name == name {
				return s.ID, true
			}
		}
	}
	return 0, false
}

// suiteNames lists the secure suites that can be chosen, for messages.
func suiteNames() string {
	var names []string
	for _, s := range tls.CipherSuites() {
		if s.SupportedVersions[0] < tls.VersionTLS13 {
			names = append(names, s.Name)
		}
	}
	return strings.Join(names, ", ")
}
