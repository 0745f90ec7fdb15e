package embed

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
)

// onlyGo are fields that the table does not have.
var onlyGo = []string{"Logger", "Registerer", "Gatherer", "PeerListeners", "PeerDialer"}

// leaves gives the addresses of all fields of a struct that are no structs, by their paths.
func leaves(v reflect.Value, path string, into map[uintptr]string) {
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if path == "" && slices.Contains(onlyGo, name) {
			continue
		}
		if f := v.Field(i); f.Kind() == reflect.Struct {
			leaves(f, path+name+".", into)
		} else {
			into[f.Addr().Pointer()] = path + name
		}
	}
}

// change sets a field to something else than it is.
func change(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Slice:
		v.Set(reflect.ValueOf([]string{"http://127.0.0.1:77"}))
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() - 1)
	default:
		v.SetInt(v.Int() + int64(time.Hour)) // for durations in ms, too
	}
}

// Every field has exactly one line in the table, and the line has a flag or a key, and a sentence.
func TestEveryFieldHasFlagAndSentence(t *testing.T) {
	cfg := newServerConfig()
	fields := map[uintptr]string{}
	leaves(reflect.ValueOf(cfg).Elem(), "", fields)
	if len(fields) < 100 {
		t.Fatalf("found %d fields: the walk is wrong", len(fields))
	}
	before := texts(cfg)
	used := map[int]string{}
	for addr, path := range fields {
		v := fieldAt(reflect.ValueOf(cfg).Elem(), addr)
		old := reflect.ValueOf(v.Interface())
		change(v)
		var changed []int
		for i, text := range texts(cfg) {
			if text != before[i] {
				changed = append(changed, i)
			}
		}
		v.Set(old)
		if len(changed) != 1 {
			t.Errorf("field %s has %d lines in the table", path, len(changed))
			continue
		}
		if other := used[changed[0]]; other != "" {
			t.Errorf("fields %s and %s have one line", path, other)
		}
		used[changed[0]] = path
	}
	names := map[string]bool{}
	for i, s := range settings(cfg) {
		if !s.obsolete && used[i] == "" {
			t.Errorf("%s is no field", s.name())
		}
		if s.flag == "" && s.key == "" || !strings.HasSuffix(s.help, ".") {
			t.Errorf("%s: flag %q, key %q, sentence %q", used[i], s.flag, s.key, s.help)
		}
		for _, n := range []string{"flag " + s.flag, "key " + s.key} {
			if names[n] && !strings.HasSuffix(n, " ") {
				t.Errorf("%s is there twice", n)
			}
			names[n] = true
		}
	}
}

func texts(cfg *Config) []string {
	var all []string
	for _, s := range settings(cfg) {
		all = append(all, s.value.String())
	}
	return all
}

// fieldAt finds the field with an address.
func fieldAt(v reflect.Value, addr uintptr) reflect.Value {
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() == reflect.Struct {
			if found := fieldAt(f, addr); found.IsValid() {
				return found
			}
		} else if f.Addr().Pointer() == addr {
			return f
		}
	}
	return reflect.Value{}
}

// etcdFlags are all flags that etcd's command lines may hold, from its documentation.
const etcdFlags = `name data-dir wal-dir snapshot-count snapshot-catchup-entries max-wals heartbeat-interval election-timeout
initial-election-tick-advance listen-peer-urls listen-client-urls listen-client-http-urls listen-metrics-urls quota-backend-bytes
backend-bbolt-freelist-type backend-batch-interval backend-batch-limit max-txn-ops max-request-bytes max-concurrent-streams
grpc-keepalive-min-time grpc-keepalive-interval grpc-keepalive-timeout socket-reuse-port socket-reuse-address raft-read-timeout
raft-write-timeout memory-mlock initial-advertise-peer-urls initial-cluster initial-cluster-state initial-cluster-token
advertise-client-urls strict-reconfig-check pre-vote max-learners discovery-token discovery-endpoints discovery-dial-timeout
discovery-request-timeout discovery-keepalive-time discovery-keepalive-timeout discovery-insecure-transport
discovery-insecure-skip-tls-verify discovery-cert discovery-key discovery-cacert discovery-user discovery-password
discovery-fallback discovery-srv discovery-srv-name cert-file key-file client-cert-file client-key-file client-cert-auth
client-crl-file client-cert-allowed-hostname trusted-ca-file auto-tls peer-cert-file peer-key-file peer-client-cert-file
peer-client-key-file peer-client-cert-auth peer-trusted-ca-file peer-auto-tls peer-crl-file peer-cert-allowed-cn
peer-cert-allowed-hostname peer-skip-client-san-verification self-signed-cert-validity cipher-suites tls-min-version
tls-max-version cors host-whitelist auth-token auth-token-ttl bcrypt-cost logger log-outputs log-level log-format
enable-log-rotation log-rotation-config-json enable-pprof metrics enable-distributed-tracing distributed-tracing-address
distributed-tracing-service-name distributed-tracing-instance-id distributed-tracing-sampling-rate auto-compaction-mode
auto-compaction-retention compaction-batch-limit compaction-sleep-interval corrupt-check-time compact-hash-check-time
watch-progress-notify-interval downgrade-check-time warning-apply-duration warning-unary-request-duration
bootstrap-defrag-threshold-megabytes enable-grpc-gateway feature-gates force-new-cluster unsafe-no-fsync cluster-active-size
cluster-remove-delay cluster-sync-interval config force max-result-buffer max-retry-attempts peer-heartbeat-interval
peer-election-timeout retry-interval snapshot v vv test.coverprofile test.outputdir max-snapshots v2-deprecation`

func TestAllOfEtcdsFlagsParse(t *testing.T) {
	all := settings(newServerConfig())
	for _, name := range strings.Fields(etcdFlags) {
		i := slices.IndexFunc(all, func(s *setting) bool { return s.flag == name })
		if i < 0 {
			t.Errorf("no flag --%s", name)
			continue
		}
		arg := "--" + name + "=" + all[i].value.String()
		if all[i].obsolete {
			arg = "--" + name + "=1"
		}
		switch name {
		case "listen-client-urls":
			_, err := Load([]string{arg, "--advertise-client-urls=http://localhost:2379"}, nil)
			wantNoError(t, err, arg)
			continue
		case "initial-cluster": // its default follows from the name
			arg = "--initial-cluster=default=" + DefaultPeerURL
		}
		_, err := Load([]string{arg}, nil)
		wantNoError(t, err, arg)
	}
}

func wantNoError(t *testing.T, err error, about any) {
	t.Helper()
	if err != nil {
		t.Errorf("%v: %v", about, err)
	}
}

// load is Load in an empty working directory.
func load(t *testing.T, args, env []string) (*Loaded, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	return Load(args, env)
}

func TestWaysOfSetting(t *testing.T) {
	file := filepath.Join(t.TempDir(), "conf.yaml")
	err := os.WriteFile(file, []byte(`
name: abc
pre-vote: false
max-txn-ops: 7
quota-backend-bytes: 9007199254740993
heartbeat-interval: 20
backend-batch-interval: 50000000
warning-apply-duration: 1m
log-outputs: [stderr, stdout]
cors: a,b
socket-options: {reuse-port: true}
client-transport-security:
  client-cert-auth: false
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	flags := []string{
		"-name", "abc", "--pre-vote=false", "--max-txn-ops=7", "--quota-backend-bytes", "9007199254740993", "--heartbeat-interval=20",
		"--backend-batch-interval=50ms", "--warning-apply-duration=1m", "--log-outputs=stderr,stdout", "--cors=a,b", "--socket-reuse-port",
	}
	env := func(prefix string) []string {
		return []string{
			prefix + "NAME=abc", prefix + "PRE_VOTE=false", prefix + "MAX_TXN_OPS=7", prefix + "QUOTA_BACKEND_BYTES=9007199254740993",
			prefix + "HEARTBEAT_INTERVAL=20", prefix + "BACKEND_BATCH_INTERVAL=50ms", prefix + "WARNING_APPLY_DURATION=1m",
			prefix + "LOG_OUTPUTS=stderr,stdout", prefix + "CORS=a,b", prefix + "SOCKET_REUSE_PORT=true", prefix + "DATA_DIR=", "OTHER=1",
		}
	}
	want := newServerConfig()
	want.Name, want.PreVote, want.MaxTxnOps, want.QuotaBytes = "abc", false, 7, 9007199254740993
	want.Heartbeat, want.BatchInterval, want.WarnApply = 20*time.Millisecond, 50*time.Millisecond, time.Minute
	want.Log.Outputs, want.CORS, want.ReusePort = []string{"stderr", "stdout"}, []string{"a", "b"}, true
	for name, x := range map[string]struct{ args, env []string }{
		"flags":        {flags, nil},
		"ETCD_":        {nil, env("ETCD_")},
		"COORDD_":      {nil, env("COORDD_")},
		"both":         {nil, append(env("ETCD_"), env("COORDD_")...)},
		"file":         {[]string{"--config-file", file, "--name=other", "--max-txn-ops=9"}, []string{"ETCD_NAME=third"}},
		"file by env":  {nil, []string{"ETCD_CONFIG_FILE=" + file}},
		"file by env2": {nil, []string{"COORDD_CONFIG_FILE=" + file}},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := load(t, x.args, x.env)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(l.Config, want) {
				t.Errorf("got %+v\nwant %+v", l.Config, want)
			}
		})
	}
}

func TestNotes(t *testing.T) {
	l, err := load(t, []string{"--max-txn-ops=9"}, []string{"ETCD_NO_SUCH=x", "ETCD_NAME=n", "ETCD_VERIFY=all", "COORDD_VERIFY=all", "ETCD_DISCOVERY_PASSWORD="})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(l.Notes)
	for _, want := range []string{"unrecognized environment variable", "ETCD_NO_SUCH", "recognized and used", "ETCD_NAME", "'data-dir' was empty; using default", "n.etcd"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if strings.Contains(got, "VERIFY") {
		t.Errorf("known variables are complained about: %s", got)
	}
	file := filepath.Join(t.TempDir(), "conf.yaml")
	if err := os.WriteFile(file, []byte("name: a\nno-such: {x: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err = load(t, []string{"--config-file", file, "--max-txn-ops=9"}, []string{"ETCD_NAME=n"}); err != nil {
		t.Fatal(err)
	}
	got = fmt.Sprint(l.Notes)
	for _, want := range []string{"--max-txn-ops", "ETCD_NAME", "no-such", "loaded configuration from a file"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	const c = "http://127.0.0.1:1"
	for _, x := range []struct {
		usage bool
		text  string
		args  string // with blanks between
		env   []string
	}{
		{true, "flag provided but not defined: -no-such-flag", "--no-such-flag", nil},
		{false, `"positional" is not a valid flag`, "--name x positional", nil},
		{false, "--advertise-client-urls is required when --listen-client-urls is set explicitly", "--listen-client-urls " + c, nil},
		{false, "expected IP in URL for binding (http://example.com:1)", "--listen-client-urls http://example.com:1 --advertise-client-urls " + c, nil},
		{true, "for flag -listen-client-urls", "--listen-client-urls 127.0.0.1:1", nil},
		{true, "for flag -listen-peer-urls: URL address does not have the form", "--listen-peer-urls http://127.0.0.1", nil},
		{false, "unexpected empty host", "--advertise-client-urls http://:1", nil},
		{false, "should be at least as 5 times as --heartbeat-interval[500ms]", "--heartbeat-interval 500", nil},
		{false, "--election-timeout[60000ms] is too long", "--election-timeout 60000", nil},
		{false, "--heartbeat-interval must be >0", "--heartbeat-interval 0", nil},
		{false, "unknown auto-compaction-mode", "--auto-compaction-mode sometimes", nil},
		{false, "CompactionRetention", "--auto-compaction-retention nonsense", nil},
		{true, "unrecognized feature gate: Nothing", "--feature-gates Nothing=true", nil},
		{false, "LeaseCheckpointPersist needs LeaseCheckpoint", "--feature-gates LeaseCheckpointPersist=true", nil},
		{false, "auth: invalid auth options", "--auth-token foo", nil},
		{false, "auth: invalid auth", "--auth-token jwt", nil},
		{true, "for flag -quota-backend-bytes", "--quota-backend-bytes lots", nil},
		{true, "for flag -max-concurrent-streams", "--max-concurrent-streams 4294967296", nil},
		{true, "for flag -initial-cluster-state", "--initial-cluster-state old", nil},
		{false, "unknown logger option", "--logger glog", nil},
		{false, "unknown log format: xml", "--log-format xml", nil},
		{false, "--log-level", "--log-level loud", nil},
		{false, "needs exactly one file", "--enable-log-rotation", nil},
		{false, "--log-rotation-config-json", "--enable-log-rotation --log-outputs f --log-rotation-config-json {", nil},
		{false, "unexpected TLS version", "--tls-min-version TLS1.9", nil},
		{false, "is above --tls-max-version", "--tls-min-version TLS1.3 --tls-max-version TLS1.2", nil},
		{false, "unexpected TLS cipher suite", "--cipher-suites NONE", nil},
		{false, "must be provided for client url", "--listen-client-urls https://127.0.0.1:1 --advertise-client-urls " + c, nil},
		{false, "must be provided for peer url", "--listen-peer-urls https://127.0.0.1:1", nil},
		{false, "--compact-hash-check-time must be >0", "--compact-hash-check-time 0", nil},
		{false, "multiple discovery or bootstrap flags are set", "--discovery-srv x --initial-cluster default=" + c, nil},
		{false, "both --discovery-token and --discovery-endpoints", "--discovery-token x", nil},
		{false, "no such file or directory", "--config-file /no/such/file", nil},
		{false, `couldn't find local name "default"`, "--initial-cluster other=" + c, nil},
		{false, "--initial-cluster has default=http://127.0.0.1:1 but --initial-advertise-peer-urls is http://localhost:2380", "--initial-cluster default=" + c, nil},
		{false, "conflicting environment variable ETCD_NAME is shadowed by corresponding command-line flag --name", "--name a", []string{"ETCD_NAME=b"}},
		{false, "ETCD_NAME are for one flag, and differ", "", []string{"ETCD_NAME=b", "COORDD_NAME=c"}},
		{false, "environment variable ETCD_MAX_TXN_OPS", "", []string{"ETCD_MAX_TXN_OPS=many"}},
		// What is not there yet, and would be unsafe to ignore.
		{false, "--cert-file=x is not there yet", "--cert-file x --key-file y", nil},
		{false, "--peer-auto-tls=true is not there yet", "--peer-auto-tls", nil},
		{false, "--force-new-cluster=true is not there yet", "--force-new-cluster", nil},
		{false, "--discovery-srv=x is not there yet", "--discovery-srv x", nil},
		{false, "is not there yet", "--auth-token jwt,sign-method=RS256", nil},
		{false, "not there yet", "", []string{"ETCD_CLIENT_CERT_AUTH=true"}},
	} {
		_, err := load(t, strings.Fields(x.args), x.env)
		var usage *UsageError
		if err == nil || !strings.Contains(err.Error(), x.text) || errors.As(err, &usage) != x.usage || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q %q: %v, want %q", x.args, x.env, err, x.text)
		}
	}
	if _, err := Load([]string{"-h"}, nil); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
	if l, err := Load([]string{"--version"}, []string{"ETCD_NAME=="}); err != nil || !l.Version {
		t.Errorf("--version: %v", err)
	}
}

func TestFileErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "conf.yaml")
	for text, want := range map[string]string{
		"name: [":                                      file,
		"- a":                                          "not a list of key: value lines",
		"max-txn-ops: many":                            "max-txn-ops: it must be a number",
		"pre-vote: 'true'":                             "pre-vote: it must be a true or false",
		"pre-vote: 1":                                  "pre-vote: it cannot be 1",
		"listen-client-urls: 17":                       "listen-client-urls",
		"log-outputs: [1]":                             "log-outputs: 1 in the list is not a text",
		"heartbeat-interval: 1.5":                      "heartbeat-interval",
		"backend-batch-interval: [1]":                  "backend-batch-interval",
		"backend-batch-interval: fast":                 "it must be a duration",
		"listen-client-urls: http://[::1]:1":           "--advertise-client-urls is required",
		"client-transport-security: {x: 1}":            "client-transport-security.x is unknown, and ignoring it would not be safe",
		"client-transport-security: {allowed-cn: [a]}": "client-transport-security.allowed-cn=a is not there yet",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := load(t, []string{"--config-file=" + file}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestDerivedSettings(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, x := range []struct {
		args                 string
		dir, cluster, advert string
	}{
		{"", "default.etcd", "default=http://localhost:2380", "http://localhost:2380"},
		{"--name a", "a.etcd", "a=http://localhost:2380", "http://localhost:2380"},
		{"--data-dir d --listen-peer-urls http://127.0.0.1:7,http://127.0.0.1:8", "d", "default=http://127.0.0.1:7,default=http://127.0.0.1:8", "http://127.0.0.1:7,http://127.0.0.1:8"},
		{"--listen-peer-urls http://127.0.0.1:7 --initial-cluster default=http://localhost:2380", "default.etcd", "default=http://localhost:2380", "http://localhost:2380"},
		{"--initial-advertise-peer-urls http://h:1", "default.etcd", "default=http://h:1", "http://h:1"},
	} {
		l, err := Load(strings.Fields(x.args), nil)
		if err != nil {
			t.Errorf("%s: %v", x.args, err)
			continue
		}
		r := l.Config.resolved()
		if r.Dir != x.dir || r.InitialCluster != x.cluster || strings.Join(r.AdvertisePeerURLs, ",") != x.advert {
			t.Errorf("%s: %s %s %s", x.args, r.Dir, r.InitialCluster, r.AdvertisePeerURLs)
		}
	}
	l, err := Load([]string{"--listen-peer-urls", "http://0.0.0.0:7"}, nil)
	if err != nil || strings.Contains(l.Config.AdvertisePeerURLs[0], "0.0.0.0") {
		t.Errorf("all addresses are advertised as %v, %v", l.Config.AdvertisePeerURLs, err)
	}
}

// A restart does not look at the members named for a new cluster.
func TestInitialClusterIsIgnoredWithData(t *testing.T) {
	cfg := NewConfig()
	cfg.Dir, cfg.InitialCluster = t.TempDir(), "other=http://127.0.0.1:1"
	if cfg.Validate() == nil {
		t.Error("no error for a new member")
	}
	if err := os.Mkdir(filepath.Join(cfg.Dir, "member"), 0o700); err != nil {
		t.Fatal(err)
	}
	wantNoError(t, cfg.Validate(), "with data")
}

func TestWarnings(t *testing.T) {
	l, err := load(t, []string{"--auto-compaction-retention=1", "--max-wals=9", "--quota-backend-bytes=99999999999", "--unsafe-no-fsync"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range l.Config.warnings() {
		got = append(got, n.Text)
	}
	want := []string{
		"--max-wals has no effect: files are released when no member needs them",
		"--auto-compaction-retention=1 is not there yet and is ignored: history is kept until a client compacts it",
		"quota is above what is recommended: all data should fit in memory",
		"--unsafe-no-fsync is set: a power cut loses acknowledged writes",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if w := NewConfig().warnings(); len(w) > 0 {
		t.Errorf("the defaults are warned of: %v", w)
	}
}

// The sample, with its keys in force, is the default configuration.
func TestSampleIsTheDefault(t *testing.T) {
	var sample bytes.Buffer
	wantNoError(t, WriteSample(&sample), "sample")
	var lines []string
	keys := 0
	for line := range strings.Lines(sample.String()) {
		line = strings.TrimPrefix(strings.TrimRight(line, "\n"), "# ")
		if t := strings.TrimSpace(line); strings.Contains(t, ":") && !strings.HasPrefix(t, "#") && strings.Fields(t)[0] == strings.ToLower(strings.Fields(t)[0]) {
			lines = append(lines, line)
			keys++
		}
	}
	file := filepath.Join(t.TempDir(), "conf.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := load(t, []string{"--config-file", file}, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(lines, "\n"))
	}
	if got, want := texts(l.Config), texts(newServerConfig()); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	for _, n := range l.Notes {
		if strings.Contains(n.Text, "unknown key") {
			t.Errorf("%v", n)
		}
	}
	if keys < 100 {
		t.Errorf("the sample has only %d lines with keys", keys)
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	var help bytes.Buffer
	wantNoError(t, WriteHelp(&help), "help")
	for _, s := range settings(newServerConfig()) {
		if s.flag != "" && !strings.Contains(help.String(), "--"+s.flag) {
			t.Errorf("no --%s", s.flag)
		}
	}
}

func TestLogger(t *testing.T) {
	dir := t.TempDir()
	o := NewConfig().Log
	o.Outputs = []string{"stdout", "default", filepath.Join(dir, "log")}
	o.Level = "warn"
	var stdout, stderr bytes.Buffer
	lg, closeLog, err := NewLogger(o, &stdout, &stderr)
	if err != nil {
		t.Fatal(err)
	}
	lg.Info("quiet")
	lg.Named("part").Warn("loud", zap.Int("n", 1))
	wantNoError(t, closeLog(), "close")
	file, err := os.ReadFile(filepath.Join(dir, "log"))
	wantNoError(t, err, "file")
	for _, out := range []string{stdout.String(), stderr.String(), string(file)} {
		for _, want := range []string{`{"level":"warn","ts":"2`, `"logger":"part","caller":"embed/config_test.go:`, `"msg":"loud","n":1}`} {
			if !strings.Contains(out, want) || strings.Contains(out, "quiet") {
				t.Errorf("no %s in %q", want, out)
			}
		}
	}
	o.Format, o.Outputs = "console", []string{"stderr"}
	stderr.Reset()
	if lg, closeLog, err = NewLogger(o, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	lg.Error("text")
	wantNoError(t, closeLog(), "close")
	if !strings.Contains(stderr.String(), "text") || strings.HasPrefix(stderr.String(), "{") {
		t.Errorf("console: %q", stderr.String())
	}
	o.Outputs = []string{filepath.Join(dir, "no", "such")}
	if _, _, err := NewLogger(o, &stdout, &stderr); err == nil || !strings.Contains(err.Error(), "--log-outputs") {
		t.Errorf("a file in no directory: %v", err)
	}
}
