package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/mvcc/query"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// condition is a member in some state, as far as its health goes.
type condition struct {
	alarm            rpcpb.AlarmType
	noLeader         bool
	learner          bool
	version          string
	readErr, confirm error // of all reads; of linearizable ones
}

func (c *condition) Alarmed(typ rpcpb.AlarmType) bool { return c.alarm == typ }
func (c *condition) IsLearner() bool                  { return c.learner }
func (c *condition) ClusterVersion() string           { return c.version }

func (c *condition) Leader() uint64 {
	if c.noLeader {
		return 0
	}
	return 1
}

func (c *condition) Range(ctx context.Context, r *rpcpb.RangeRequest, _ func([]byte) error) (query.Result, error) {
	if _, bounded := ctx.Deadline(); !bounded || r.Limit != 1 || !r.KeysOnly {
		return query.Result{}, errors.New("a read that may take long")
	}
	if c.readErr != nil {
		return query.Result{}, c.readErr
	}
	if !r.Serializable {
		return query.Result{}, c.confirm
	}
	return query.Result{}, nil
}

// server makes the handlers for a member in a state.
func server(t *testing.T, c *condition, change func(*Config)) *API {
	t.Helper()
	reg := prometheus.NewRegistry()
	cfg := Config{Node: c, Gatherer: reg, Registerer: reg, Versions: Versions{Server: "3.7.3", Storage: "3.7.0", Coordd: "0.1.0"}}
	if change != nil {
		change(&cfg)
	}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// ask sends one request.
func ask(h http.Handler, method, target string, header ...string) *http.Response {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestAnswers holds answers against what monitoring systems expect to the byte.
func TestAnswers(t *testing.T) {
	fine := condition{version: "3.7.0"}
	noSpace := condition{alarm: rpcpb.AlarmType_NOSPACE}
	corrupt := condition{alarm: rpcpb.AlarmType_CORRUPT}
	alone := condition{noLeader: true, confirm: errs.ErrLeaderChanged}
	const sick = `{"health":"false","reason":"%s"}` + "\n"
	ready := "[+]data_corruption ok\n[+]serializable_read ok\n[+]linearizable_read ok\n[+]non_learner ok\n"
	for _, c := range []struct {
		state condition
		path  string
		code  int
		body  string
	}{
		{fine, "/health", 200, `{"health":"true","reason":""}`},
		{noSpace, "/health", 503, fmt.Sprintf(sick, "ALARM NOSPACE")},
		{noSpace, "/health?exclude=CORRUPT&exclude=NOSPACE", 200, `{"health":"true","reason":""}`},
		{corrupt, "/health?exclude=NOSPACE", 503, fmt.Sprintf(sick, "ALARM CORRUPT")},
		{alone, "/health", 503, fmt.Sprintf(sick, "RAFT NO LEADER")},
		{alone, "/health?serializable=true", 200, `{"health":"true","reason":""}`},
		{condition{confirm: errs.ErrTimeout}, "/health", 503, fmt.Sprintf(sick, "RANGE ERROR:etcdserver: request timed out")},
		{condition{readErr: errors.New("disk")}, "/health?serializable=true", 503, fmt.Sprintf(sick, "RANGE ERROR:disk")},

		{alone, "/livez", 200, "ok\n"},
		{alone, "/livez?verbose", 200, "[+]serializable_read ok\nok\n"},
		{alone, "/livez/serializable_read", 200, "ok\n"},
		{condition{readErr: errors.New("disk")}, "/livez", 503, "[-]serializable_read failed: disk\n"},

		{fine, "/readyz", 200, "ok\n"},
		{fine, "/readyz?verbose=true", 200, ready + "ok\n"},
		{noSpace, "/readyz", 200, "ok\n"},
		{alone, "/readyz", 503, strings.Replace(ready, "[+]linearizable_read ok", "[-]linearizable_read failed: etcdserver: leader changed", 1)},
		{alone, "/readyz?exclude=linearizable_read&exclude=nonsense", 200, "ok\n"},
		{alone, "/readyz/linearizable_read", 503, "[-]linearizable_read failed: etcdserver: leader changed\n"},
		{alone, "/readyz/serializable_read?verbose", 200, "[+]serializable_read ok\nok\n"},
		{corrupt, "/readyz/data_corruption", 503, "[-]data_corruption failed: alarm activated: CORRUPT\n"},
		{condition{learner: true}, "/readyz/non_learner", 503, "[-]non_learner failed: not supported for learner\n"},

		{fine, "/version", 200, `{"etcdserver":"3.7.3","etcdcluster":"3.7.0","storage":"3.7.0","coordd":"0.1.0"}`},
		{condition{}, "/version", 200, `{"etcdserver":"3.7.3","etcdcluster":"not_decided","storage":"3.7.0","coordd":"0.1.0"}`},

		{fine, "/", 404, "404 page not found\n"},
		{fine, "/v2/keys", 404, "404 page not found\n"},
		{fine, "/v3/kv/range", 404, "404 page not found\n"},
		{fine, "/debug/pprof/", 404, "404 page not found\n"},
		{fine, "/livez/linearizable_read", 404, "404 page not found\n"},
		{fine, "/healthy", 404, "404 page not found\n"},
	} {
		resp := ask(server(t, &c.state, nil).Handler(), "GET", c.path)
		if got := body(t, resp); resp.StatusCode != c.code || got != c.body {
			t.Errorf("%+v, %s: %d %q, want %d %q", c.state, c.path, resp.StatusCode, got, c.code, c.body)
		}
		if strings.HasPrefix(c.path, "/livez?") && (resp.Header.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain")) {
			t.Errorf("%s: headers %v", c.path, resp.Header)
		}
	}
}

func TestMethods(t *testing.T) {
	h := server(t, &condition{}, nil).Handler()
	for _, path := range []string{"/health", "/livez", "/readyz/non_learner", "/version"} {
		if resp := ask(h, "POST", path); resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET" {
			t.Errorf("POST %s: %s, Allow %q", path, resp.Status, resp.Header.Get("Allow"))
		}
	}
}

func TestMetrics(t *testing.T) {
	a := server(t, &condition{learner: true}, nil)
	h := a.MetricsHandler()
	ask(h, "GET", "/readyz")
	ask(h, "GET", "/livez")
	text := body(t, ask(h, "GET", "/metrics"))
	for _, line := range []string{
		`etcd_server_healthcheck{name="non_learner",type="readyz"} 0`,
		`etcd_server_healthcheck{name="serializable_read",type="livez"} 1`,
		`etcd_server_healthchecks_total{name="non_learner",status="error",type="readyz"} 1`,
		`etcd_server_healthchecks_total{name="linearizable_read",status="success",type="readyz"} 1`,
		`promhttp_metric_handler_requests_total{code="200"} 0`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
	if resp := ask(h, "GET", "/version"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("monitoring listeners serve /version: %s", resp.Status)
	}
}

func TestOptional(t *testing.T) {
	gateway := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "gateway "+r.URL.Path) })
	h := server(t, &condition{}, func(c *Config) { c.Pprof, c.Gateway = true, gateway }).Handler()
	if got := body(t, ask(h, "POST", "/v3/kv/range")); got != "gateway /v3/kv/range" {
		t.Errorf("/v3/: %q", got)
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=1", "/debug/pprof/cmdline"} {
		if resp := ask(h, "GET", path); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

func TestHostWhitelist(t *testing.T) {
	h := server(t, &condition{}, func(c *Config) { c.HostWhitelist = []string{"good.example", "127.0.0.1", "::1"} }).Handler()
	for host, code := range map[string]int{
		"good.example": 200, "GOOD.example:2379": 200, "127.0.0.1:2379": 200, "[::1]:2379": 200, "[::1]": 200,
		"evil.example": 421, "evil.example:2379": 421, "good.example.evil": 421, "": 421,
	} {
		resp := ask(h, "GET", "/health", "Host", host)
		if resp.StatusCode != code {
			t.Errorf("host %q: %s, want %d", host, resp.Status, code)
		}
		if text := body(t, resp); code == 421 && !strings.Contains(text, "--host-whitelist") {
			t.Errorf("host %q: the answer does not say what to do: %q", host, text)
		}
	}
	r := httptest.NewRequest("GET", "/health", nil)
	r.Host, r.TLS = "evil.example", &tls.ConnectionState{}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusOK {
		t.Errorf("over TLS the certificate tells who answers: %d", w.Code)
	}
}

func TestCORS(t *testing.T) {
	all := server(t, &condition{}, nil).Handler()
	some := server(t, &condition{}, func(c *Config) { c.CORS = []string{"https://a.example"} }).Handler()
	for _, c := range []struct {
		h               http.Handler
		origin, allowed string
	}{
		{all, "https://x.example", "*"}, {some, "https://a.example", "https://a.example"}, {some, "https://x.example", ""}, {some, "", ""},
	} {
		for _, method := range []string{"GET", "OPTIONS"} {
			resp := ask(c.h, method, "/version", "Origin", c.origin)
			h := resp.Header
			methods, headers := "POST, GET, OPTIONS, PUT, DELETE", "accept, content-type, authorization"
			if c.allowed == "" {
				methods, headers = "", ""
			}
			if resp.StatusCode != 200 || h.Get("Access-Control-Allow-Origin") != c.allowed ||
				h.Get("Access-Control-Allow-Methods") != methods || h.Get("Access-Control-Allow-Headers") != headers {
				t.Errorf("%s from %q: %s, %v", method, c.origin, resp.Status, h)
			}
			if text := body(t, resp); (method == "OPTIONS") != (text == "") {
				t.Errorf("%s: body %q", method, text)
			}
		}
	}
}

func TestNew(t *testing.T) {
	reg := prometheus.NewRegistry()
	if _, err := New(Config{Gatherer: reg}); err == nil {
		t.Error("no error without a node")
	}
	cfg := Config{Node: &condition{}, Gatherer: reg, Registerer: reg}
	if _, err := New(cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg); err == nil {
		t.Error("no error when the metrics are registered twice")
	}
}

// TestHealthCounted: /health counts its answers.
func TestHealthCounted(t *testing.T) {
	state := &condition{}
	a := server(t, state, nil)
	h := a.Handler()
	ask(h, "GET", "/health")
	state.noLeader = true
	ask(h, "GET", "/health")
	ask(h, "GET", "/health")
	ask(h, "POST", "/health") // none
	text := body(t, ask(h, "GET", "/metrics"))
	for _, line := range []string{"etcd_server_health_success 1", "etcd_server_health_failures 2"} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
}
