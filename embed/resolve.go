package embed

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// inProcessURL is advertised to other members by a member that none can reach.
const inProcessURL = "http://in-process:2380"

// resolved returns a copy in which everything that follows from other fields is filled in.
func (c *Config) resolved() *Config {
	r := *c
	for _, p := range []*[]string{&r.ListenPeerURLs, &r.ListenClientURLs, &r.ListenClientHTTPURLs, &r.ListenMetricsURLs, &r.AdvertisePeerURLs, &r.AdvertiseClientURLs} {
		*p = slices.Clone(*p)
	}
	if r.Dir == "" {
		r.Dir = r.Name + ".etcd"
	}
	if len(r.AdvertisePeerURLs) == 0 {
		r.AdvertisePeerURLs = reachable(r.ListenPeerURLs)
	}
	if len(r.AdvertisePeerURLs) == 0 {
		r.AdvertisePeerURLs = []string{inProcessURL}
	}
	if len(r.AdvertiseClientURLs) == 0 {
		r.AdvertiseClientURLs = reachable(r.ListenClientURLs)
	}
	if r.InitialCluster == "" {
		var pairs []string
		for _, u := range r.AdvertisePeerURLs {
			pairs = append(pairs, r.Name+"="+u)
		}
		r.InitialCluster = strings.Join(pairs, ",")
	}
	return &r
}

// reachable turns URLs to listen on into URLs to connect to: a host that stands for all addresses is
// replaced by this machine's address.
func reachable(listen []string) []string {
	var all []string
	for _, raw := range listen {
		u, err := url.Parse(raw)
		if err != nil {
			continue // found by Validate
		}
		if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsUnspecified() {
			u.Host = net.JoinHostPort(localAddress(), u.Port())
		}
		all = append(all, u.String())
	}
	return all
}

// localAddress is the address from which this machine reaches others, localhost if it reaches none.
// Connecting a UDP socket asks the routing table and sends nothing; the address is one for documentation.
func localAddress() string {
	c, err := net.Dial("udp", "192.0.2.1:9")
	if err != nil {
		return "localhost"
	}
	defer c.Close()
	host, _, err := net.SplitHostPort(c.LocalAddr().String())
	if err != nil {
		return "localhost"
	}
	return host
}

// withPort returns a listen URL with the port that the system chose, if it left the choice to it.
func withPort(raw string, addr net.Addr) string {
	u, err := url.Parse(raw)
	tcp, ok := addr.(*net.TCPAddr)
	if err != nil || !ok || u.Port() != "0" {
		return raw
	}
	u.Host = net.JoinHostPort(u.Hostname(), fmt.Sprint(tcp.Port))
	return u.String()
}
