package transport

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
)

// checkSAN passes if the certificate names no hosts, or one that is where the other side connects
// from: its address itself, a DNS name that resolves to it, or a wildcard that fits a name its
// address has.
func checkSAN(ctx context.Context, r *net.Resolver, cert *x509.Certificate, remote net.Addr) error {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok || len(cert.IPAddresses) == 0 && len(cert.DNSNames) == 0 {
		return nil
	}
	for _, ip := range cert.IPAddresses {
		if ip.Equal(tcp.IP) {
			return nil
		}
	}
	errs := []error{fmt.Errorf("transport: the client's certificate is for %v %v, but it connects from %s", cert.IPAddresses, cert.DNSNames, tcp.IP)}
	wildcard := false
	for _, name := range cert.DNSNames {
		if strings.HasPrefix(name, "*.") {
			wildcard = true
			continue
		}
		ips, err := r.LookupIP(ctx, "ip", name)
		if err != nil {
			errs = append(errs, err)
		}
		for _, ip := range ips {
			if ip.Equal(tcp.IP) {
				return nil
			}
		}
	}
	if wildcard {
		names, err := r.LookupAddr(ctx, tcp.IP.String())
		if err != nil {
			errs = append(errs, err)
		}
		for _, name := range names {
			if cert.VerifyHostname(strings.TrimSuffix(name, ".")) == nil {
				return nil
			}
		}
	}
	return errors.Join(errs...)
}
