package member

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/coordd/coordd/api/errs"
)

// ParsePeerURLs checks a list of peer (or client) URLs and returns it in canonical form, sorted.
// The list must not be empty. Each URL is http or https with host:port and no path, or unix or
// unixs with an address. The error wraps [errs.ErrMemberBadURLs] and names the URL.
func ParsePeerURLs(raw []string) ([]string, error) {
	if len(raw) == 0 {
		return nil, fmt.Errorf("%w: no URL given", errs.ErrMemberBadURLs)
	}
	urls := make([]string, 0, len(raw))
	for _, s := range raw {
		u, err := parseURL(strings.TrimSpace(s))
		if err != nil {
			return nil, fmt.Errorf("%w: %q: %s", errs.ErrMemberBadURLs, s, err)
		}
		urls = append(urls, u)
	}
	slices.Sort(urls)
	return urls, nil
}

// parseURL checks one URL and returns it as net/url prints it.
func parseURL(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil {
		return "", fmt.Errorf("not a URL; write it as http://host:port")
	}
	switch u.Scheme {
	case "http", "https":
		host, port, err := net.SplitHostPort(u.Host)
		if err != nil || port == "" {
			return "", fmt.Errorf("the address must be host:port")
		}
		if host == "" {
			return "", fmt.Errorf("the host is missing")
		}
		if u.Path != "" {
			return "", fmt.Errorf("a path is not allowed")
		}
	case "unix", "unixs":
		if u.Host == "" && u.Path == "" {
			return "", fmt.Errorf("the socket address is missing")
		}
	default:
		return "", fmt.Errorf("the scheme must be http, https, unix or unixs")
	}
	if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", fmt.Errorf("only scheme and address are allowed")
	}
	return u.String(), nil
}

// ParseInitialCluster reads the value of the flag initial-cluster, name=url,name=url,…, in which
// a name is repeated for each further URL of that member, and computes the members' ids with
// the cluster token. It returns the members in ascending order of id, all voters, and refuses
// two members with a URL (hence an id) in common.
func ParseInitialCluster(s, token string) ([]Member, error) {
	byName := make(map[string][]string)
	owner := make(map[string]string)
	for pair := range strings.SplitSeq(s, ",") {
		name, raw, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok || name == "" || raw == "" {
			return nil, fmt.Errorf("member: initial cluster %q: %q is not of the form name=url", s, pair)
		}
		urls, err := ParsePeerURLs([]string{raw})
		if err != nil {
			return nil, fmt.Errorf("member: initial cluster %q: %w", s, err)
		}
		if other, used := owner[urls[0]]; used {
			return nil, fmt.Errorf("member: initial cluster %q: URL %s is given to %q and to %q; each member needs its own",
				s, urls[0], other, name)
		}
		owner[urls[0]] = name
		byName[name] = append(byName[name], urls[0])
	}
	members := make([]Member, 0, len(byName))
	for name, urls := range byName {
		slices.Sort(urls)
		members = append(members, Member{ID: BootstrapID(urls, token), PeerURLs: urls, Name: name})
	}
	slices.SortFunc(members, func(a, b Member) int { return compareIDs(a.ID, b.ID) })
	for i := 1; i < len(members); i++ {
		if members[i].ID == members[i-1].ID {
			return nil, fmt.Errorf("member: initial cluster %q: members %q and %q have the same id %s",
				s, members[i-1].Name, members[i].Name, members[i].ID)
		}
	}
	return members, nil
}
