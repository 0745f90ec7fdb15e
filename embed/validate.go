package embed

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/coordd/coordd/member"
	"github.com/coordd/coordd/pkg/transport"
)

// Validate reports the first setting that cannot work, or that asks for a feature without which it
// would not be safe to go on. It names the flag, since those are documented best.
func (c *Config) Validate() error {
	r := c.resolved()
	for _, check := range []func() error{
		r.checkTimes, r.checkLimits, r.checkURLs, r.checkMaintenance, r.checkAuth, r.checkTLS, r.Log.check, r.checkLacks, r.checkCluster,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

const maxElection = 50 * time.Second

func (c *Config) checkTimes() error {
	hb, el := c.Heartbeat.Milliseconds(), c.ElectionTimeout.Milliseconds()
	switch {
	case hb <= 0:
		return fmt.Errorf("--heartbeat-interval must be >0 (set to %dms)", hb)
	case el <= 0:
		return fmt.Errorf("--election-timeout must be >0 (set to %dms)", el)
	case 5*hb > el:
		return fmt.Errorf("--election-timeout[%dms] should be at least as 5 times as --heartbeat-interval[%dms]", el, hb)
	case c.ElectionTimeout > maxElection:
		return fmt.Errorf("--election-timeout[%dms] is too long, and should be set less than %dms", el, maxElection.Milliseconds())
	case c.WatchProgressInterval != 0 && c.WatchProgressInterval < 100*time.Millisecond:
		return fmt.Errorf("--watch-progress-notify-interval=%v is too short: it must be at least 100ms, or 0 for 10m", c.WatchProgressInterval)
	}
	return nil
}

func (c *Config) checkLimits() error {
	switch {
	case c.Name == "":
		return errors.New("--name is empty: give this member a name")
	case strings.ContainsAny(c.Name, "=,"):
		return fmt.Errorf("--name %q has a comma or an equals sign, which --initial-cluster could not be read with", c.Name)
	case c.MaxTxnOps == 0:
		return errors.New("--max-txn-ops is 0: it must be at least 1")
	case c.MaxRequestBytes == 0 || c.MaxRequestBytes > 1<<30:
		return fmt.Errorf("--max-request-bytes is %d: it must be from 1 to %d", c.MaxRequestBytes, 1<<30)
	case c.MaxLearners < 0:
		return fmt.Errorf("--max-learners is %d: it cannot be negative", c.MaxLearners)
	case c.BatchInterval < 0, c.BatchOps < 0, c.CompactionBatch < 0:
		return errors.New("--backend-batch-interval, --backend-batch-limit and --compaction-batch-limit cannot be negative")
	}
	return nil
}

// checkURLs checks all addresses. Some were checked already when flags were parsed, but not those set from Go.
func (c *Config) checkURLs() error {
	for _, l := range []struct {
		flag string
		urls []string
	}{{"--listen-peer-urls", c.ListenPeerURLs}, {"--listen-client-urls", c.ListenClientURLs}, {"--listen-client-http-urls", c.ListenClientHTTPURLs}, {"--listen-metrics-urls", c.ListenMetricsURLs}} {
		for _, u := range l.urls {
			if err := checkURL(u); err != nil {
				return fmt.Errorf("%s: %w", l.flag, err)
			}
			if _, _, _, err := transport.Address(u); err != nil {
				return fmt.Errorf("%s: expected IP in URL for binding (%s): %w", l.flag, u, err)
			}
		}
	}
	for _, l := range []struct {
		flag string
		urls []string
	}{{"--initial-advertise-peer-urls", c.AdvertisePeerURLs}, {"--advertise-client-urls", c.AdvertiseClientURLs}} {
		for _, raw := range l.urls {
			if err := checkURL(raw); err != nil {
				return fmt.Errorf("%s: %w", l.flag, err)
			}
			if u, err := url.Parse(raw); err == nil && strings.HasPrefix(u.Scheme, "http") && u.Hostname() == "" {
				return fmt.Errorf("%s: unexpected empty host (%s)", l.flag, raw)
			}
		}
	}
	return nil
}

func (c *Config) checkMaintenance() error {
	switch c.AutoCompactionMode {
	case "periodic":
		if _, err := strconv.ParseUint(c.AutoCompactionRetention, 10, 32); err == nil {
			break
		}
		if d, err := time.ParseDuration(c.AutoCompactionRetention); err != nil || d < 0 {
			return fmt.Errorf("error parsing CompactionRetention: --auto-compaction-retention %q is neither a number of hours nor a duration", c.AutoCompactionRetention)
		}
	case "revision":
		if _, err := strconv.ParseUint(c.AutoCompactionRetention, 10, 63); err != nil {
			return fmt.Errorf("error parsing CompactionRetention: --auto-compaction-retention %q is not a number of revisions", c.AutoCompactionRetention)
		}
	default:
		return fmt.Errorf("unknown auto-compaction-mode %q: it is periodic or revision", c.AutoCompactionMode)
	}
	if c.CompactHashCheckTime <= 0 {
		return fmt.Errorf("--compact-hash-check-time must be >0 (set to %v)", c.CompactHashCheckTime)
	}
	if c.TracingSamplingRate < 0 || c.TracingSamplingRate > 1_000_000 {
		return fmt.Errorf("--distributed-tracing-sampling-rate is %d: it must be from 0 to 1000000", c.TracingSamplingRate)
	}
	return checkGates(c.FeatureGates)
}

func (c *Config) checkAuth() error {
	kind, options, _ := strings.Cut(c.AuthToken, ",")
	switch {
	case kind == "simple" && options == "", kind == "jwt" && strings.Contains(options, "sign-method="):
	case kind == "jwt":
		return errors.New("auth: invalid auth signature method: --auth-token jwt needs sign-method=…")
	default:
		return fmt.Errorf("auth: invalid auth options: --auth-token %q is neither simple nor jwt with its options", c.AuthToken)
	}
	if c.BcryptCost < 4 || c.BcryptCost > 31 {
		return fmt.Errorf("--bcrypt-cost is %d: it must be from 4 to 31", c.BcryptCost)
	}
	if c.DiscoveryFallback == "proxy" {
		return errors.New("--discovery-fallback=proxy is no longer known; only exit is")
	}
	return nil
}

func (c *Config) checkTLS() error {
	least, most := c.TLSMinVersion, c.TLSMaxVersion
	for _, v := range []string{least, most} {
		if _, err := transport.ParseVersion(v); err != nil {
			return fmt.Errorf("unexpected TLS version %q: it must be TLS1.2 or TLS1.3", v)
		}
	}
	if most != "" && most < least {
		return fmt.Errorf("--tls-min-version %s is above --tls-max-version %s", least, most)
	}
	for _, name := range c.CipherSuites {
		known := slices.ContainsFunc(slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()), func(s *tls.CipherSuite) bool { return s.Name == name })
		if !known {
			return fmt.Errorf("unexpected TLS cipher suite %q: use the names that Go's package crypto/tls has", name)
		}
	}
	if len(c.CipherSuites) > 0 && least == "TLS1.3" {
		return errors.New("--cipher-suites cannot be set with --tls-min-version TLS1.3, whose suites are fixed")
	}
	for _, u := range slices.Concat(c.ListenClientURLs, c.ListenClientHTTPURLs, c.ListenMetricsURLs) {
		if isSecure(u) && !c.ClientTLS.used() {
			return fmt.Errorf("TLS key/cert (--cert-file, --key-file) must be provided for client url %s with HTTPS scheme", u)
		}
	}
	for _, u := range slices.Concat(c.ListenPeerURLs, c.AdvertisePeerURLs) {
		if isSecure(u) && !c.PeerTLS.used() {
			return fmt.Errorf("TLS key/cert (--peer-cert-file, --peer-key-file) must be provided for peer url %s with HTTPS scheme", u)
		}
	}
	return nil
}

func isSecure(u string) bool {
	return strings.HasPrefix(u, "https:") || strings.HasPrefix(u, "unixs:")
}

// checkLacks refuses settings whose feature lacks where ignoring them would not be safe.
func (c *Config) checkLacks() error {
	for _, s := range c.lacking() {
		if s.lack.refuse {
			return errors.New(s.message())
		}
	}
	return nil
}

// warnings are about settings that are ignored, and values that are odd.
func (c *Config) warnings() []Note {
	var notes []Note
	warn := func(text string) { notes = append(notes, Note{zapcore.WarnLevel, text, nil}) }
	for _, s := range c.lacking() {
		if !s.lack.refuse {
			warn(s.message())
		}
	}
	if c.MaxRequestBytes > 10<<20 {
		notes = append(notes, Note{zapcore.WarnLevel, "exceeded recommended request limit", []zap.Field{zap.Uint("max-request-bytes", c.MaxRequestBytes), zap.Uint("recommended", 10<<20)}})
	}
	if c.QuotaBytes > 8<<30 {
		notes = append(notes, Note{zapcore.WarnLevel, "quota is above what is recommended: all data should fit in memory", []zap.Field{zap.Int64("quota-backend-bytes", c.QuotaBytes), zap.Int64("recommended", 8<<30)}})
	}
	if c.UnsafeNoFsync {
		warn("--unsafe-no-fsync is set: a power cut loses acknowledged writes")
	}
	return notes
}

// checkCluster checks that a member that is about to be founded is among the members. A restart
// ignores these settings, so they are not looked at if there is data.
func (c *Config) checkCluster() error {
	if _, err := os.Stat(filepath.Join(c.Dir, "member")); err == nil {
		return nil
	}
	members, err := member.ParseInitialCluster(c.InitialCluster, c.ClusterToken)
	if err != nil {
		return fmt.Errorf("--initial-cluster: %w", err)
	}
	i := slices.IndexFunc(members, func(m member.Member) bool { return m.Name == c.Name })
	if i < 0 {
		return fmt.Errorf("couldn't find local name %q in the initial cluster configuration: add it to --initial-cluster %q, or correct --name", c.Name, c.InitialCluster)
	}
	advertised, err := member.ParsePeerURLs(c.AdvertisePeerURLs)
	if err != nil {
		return fmt.Errorf("--initial-advertise-peer-urls: %w", err)
	}
	if !slices.Equal(advertised, slices.Sorted(slices.Values(members[i].PeerURLs))) {
		return fmt.Errorf("--initial-cluster has %s=%s but --initial-advertise-peer-urls is %s: make them the same",
			c.Name, strings.Join(members[i].PeerURLs, ","), strings.Join(advertised, ","))
	}
	return nil
}
