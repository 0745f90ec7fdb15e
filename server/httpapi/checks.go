package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/coordd/coordd/api/rpcpb"
)

// check is one condition, by its name in paths and metrics.
type check struct {
	name string
	run  func(ctx context.Context) error
}

var (
	errCorrupt = errors.New("alarm activated: CORRUPT")
	errLearner = errors.New("not supported for learner")
)

// livez are the checks of a process that is alive: it can read what it has.
func (a *API) livez() []check { return []check{a.canRead("serializable_read", true)} }

// readyz are the checks of a member that should get requests.
func (a *API) readyz() []check {
	return []check{
		{"data_corruption", func(context.Context) error {
			if a.cfg.Node.Alarmed(rpcpb.AlarmType_CORRUPT) {
				return errCorrupt
			}
			return nil
		}},
		a.canRead("serializable_read", true),
		a.canRead("linearizable_read", false),
		{"non_learner", func(context.Context) error {
			if a.cfg.Node.IsLearner() {
				return errLearner
			}
			return nil
		}},
	}
}

func (a *API) canRead(name string, serializable bool) check {
	return check{name, func(ctx context.Context) error { return a.read(ctx, serializable) }}
}

// addChecks serves all checks together under /<kind>, and each by itself below.
func (a *API) addChecks(mux *http.ServeMux, kind string, checks []check) {
	mux.HandleFunc("/"+kind, func(w http.ResponseWriter, r *http.Request) { a.runChecks(w, r, kind, checks) })
	for _, c := range checks {
		mux.HandleFunc("/"+kind+"/"+c.name, func(w http.ResponseWriter, r *http.Request) { a.runChecks(w, r, kind, []check{c}) })
	}
}

// runChecks answers with the outcome of checks. Parameters: verbose for a line per check also if all is well;
// exclude=<check>, any number of times.
func (a *API) runChecks(w http.ResponseWriter, r *http.Request, kind string, checks []check) {
	if !onlyGet(w, r) {
		return
	}
	excluded := r.URL.Query()["exclude"]
	for _, name := range excluded {
		if !slices.ContainsFunc(checks, func(c check) bool { return c.name == name }) {
			a.cfg.Logger.Warn("ignoring the exclusion of a health check that does not exist", zap.String("type", kind), zap.String("check", name))
		}
	}
	var lines strings.Builder
	failed := false
	for _, c := range checks {
		if slices.Contains(excluded, c.name) {
			continue
		}
		err := c.run(r.Context())
		a.results.record(kind, c.name, err)
		if err != nil {
			failed = true
			fmt.Fprintf(&lines, "[-]%s failed: %v\n", c.name, err)
			continue
		}
		fmt.Fprintf(&lines, "[+]%s ok\n", c.name)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if failed {
		a.cfg.Logger.Warn("health check failed", zap.String("type", kind), zap.String("checks", lines.String()))
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(lines.String())) // the client has gone if this fails
		return
	}
	if !r.URL.Query().Has("verbose") {
		lines.Reset()
	}
	lines.WriteString("ok\n")
	_, _ = w.Write([]byte(lines.String()))
}

// checkMetrics are the figures about checks, under the names they have in etcd.
type checkMetrics struct {
	last  *prometheus.GaugeVec   // 1 if the last run was fine
	total *prometheus.CounterVec // runs

	healthy, sick prometheus.Counter // answers of /health
}

func newCheckMetrics(to prometheus.Registerer) (*checkMetrics, error) {
	m := &checkMetrics{
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "etcd_server_healthcheck", Help: "1 if the last run of a health check succeeded.",
		}, []string{"type", "name"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_server_healthchecks_total", Help: "Runs of health checks.",
		}, []string{"type", "name", "status"}),
		healthy: prometheus.NewCounter(prometheus.CounterOpts{Name: "etcd_server_health_success", Help: "Times that /health found this member healthy."}),
		sick:    prometheus.NewCounter(prometheus.CounterOpts{Name: "etcd_server_health_failures", Help: "Times that /health did not."}),
	}
	if err := errors.Join(to.Register(m.last), to.Register(m.total), to.Register(m.healthy), to.Register(m.sick)); err != nil {
		return nil, fmt.Errorf("httpapi: metrics: %w (two servers in one program need a registerer each)", err)
	}
	return m, nil
}

func (m *checkMetrics) record(kind, name string, err error) {
	value, status := 1.0, "success"
	if err != nil {
		value, status = 0, "error"
	}
	m.last.WithLabelValues(kind, name).Set(value)
	m.total.WithLabelValues(kind, name, status).Inc()
}
