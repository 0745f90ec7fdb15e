package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
)

// The CORS headers' contents.
const (
	corsMethods = "POST, GET, OPTIONS, PUT, DELETE"
	corsHeaders = "accept, content-type, authorization"
)

// access applies the rules of access before it passes a request on.
type access struct {
	hosts   []string // lower case; nil = all
	origins []string // nil = all
	next    http.Handler
}

// newAccess makes the handler. Lists that are nil or hold "*" allow everything.
func newAccess(hosts, origins []string, next http.Handler) *access {
	a := &access{next: next}
	if !allowsAll(hosts) {
		a.hosts = make([]string, 0, len(hosts))
		for _, h := range hosts {
			a.hosts = append(a.hosts, strings.ToLower(hostName(h)))
		}
	}
	if !allowsAll(origins) {
		a.origins = slices.Clone(origins)
	}
	return a
}

func allowsAll(list []string) bool { return list == nil || slices.Contains(list, "*") }

// ServeHTTP implements http.Handler.
func (a *access) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if host := hostName(r.Host); r.TLS == nil && a.hosts != nil && !slices.Contains(a.hosts, strings.ToLower(host)) {
		http.Error(w, fmt.Sprintf("coordd does not answer to the host name %q; if it should, add it to --host-whitelist", host), http.StatusMisdirectedRequest)
		return
	}
	a.cors(w.Header(), r.Header.Get("Origin"))
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusOK)
		return
	}
	a.next.ServeHTTP(w, r)
}

// cors adds the headers that let pages of allowed origins read the answer.
func (a *access) cors(h http.Header, origin string) {
	switch {
	case a.origins == nil:
		h.Set("Access-Control-Allow-Origin", "*")
	case slices.Contains(a.origins, origin):
		h.Set("Access-Control-Allow-Origin", origin)
		h.Add("Vary", "Origin")
	default:
		return
	}
	h.Set("Access-Control-Allow-Methods", corsMethods)
	h.Set("Access-Control-Allow-Headers", corsHeaders)
}

// hostName takes the port, and the brackets of an IPv6 address, off a host.
func hostName(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return strings.Trim(host, "[]")
}
