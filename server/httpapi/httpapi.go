package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/mvcc/query"
)

// Node is the member as far as its health goes. Any goroutine may call it.
type Node interface {
	Alarmed(typ rpcpb.AlarmType) bool // whether any member has an alarm of the type
	Leader() uint64                   // the id of the member that leads, 0 when none is known
	IsLearner() bool                  // whether this member has no vote
	ClusterVersion() string           // what the members have agreed on, "" before they have
	// Range reads; linearizable unless the request says serializable.
	Range(ctx context.Context, r *rpcpb.RangeRequest, visit func(row []byte) error) (query.Result, error)
}

// Versions are what /version tells, all as "X.Y.Z": clients take them apart as three numbers.
type Versions struct {
	Server  string // the etcd release whose API is served
	Storage string // of the data file's layout; "" = not known
	Coordd  string // coordd's own
}

// Config is what the handlers work with. Node and Gatherer are required.
type Config struct {
	Node     Node
	Versions Versions
	Gatherer prometheus.Gatherer // what /metrics tells
	// Registerer takes the metrics of the handlers themselves; nil = they are kept but not registered.
	Registerer prometheus.Registerer

	HostWhitelist  []string      // host names allowed in the clear; nil or with "*" = all
	CORS           []string      // origins allowed; nil or with "*" = all
	Pprof          bool          // serve profiles
	Gateway        http.Handler  // serves /v3/; nil = 404
	RequestTimeout time.Duration // for the reads of checks; 0 = 7 s

	Logger *zap.Logger // nil = none
}

// defaultRequestTimeout is the time a request may take in a cluster with default settings.
const defaultRequestTimeout = 7 * time.Second

// API makes the handlers.
type API struct {
	cfg     Config
	metrics http.Handler
	results *checkMetrics
}

// New checks the configuration and registers the metrics.
func New(cfg Config) (*API, error) {
	if cfg.Node == nil || cfg.Gatherer == nil {
		return nil, errors.New("httpapi: a node and a gatherer of metrics are needed")
	}
	if cfg.Registerer == nil {
		cfg.Registerer = prometheus.NewRegistry()
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = defaultRequestTimeout
	}
	results, err := newCheckMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	return &API{
		cfg:     cfg,
		metrics: promhttp.InstrumentMetricHandler(cfg.Registerer, promhttp.HandlerFor(cfg.Gatherer, promhttp.HandlerOpts{})),
		results: results,
	}, nil
}

// Handler serves all paths, with the rules of access.
func (a *API) Handler() http.Handler {
	mux := a.monitoring()
	mux.HandleFunc("/version", a.version)
	if a.cfg.Gateway != nil {
		mux.Handle("/v3/", a.cfg.Gateway)
	}
	if a.cfg.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index) // with the named profiles below it
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return newAccess(a.cfg.HostWhitelist, a.cfg.CORS, mux)
}

// MetricsHandler serves /metrics, /health, /livez and /readyz, to everybody.
func (a *API) MetricsHandler() http.Handler { return a.monitoring() }

// monitoring makes a mux with what monitoring asks.
func (a *API) monitoring() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/metrics", a.metrics)
	mux.HandleFunc("/health", a.health)
	a.addChecks(mux, "livez", a.livez())
	a.addChecks(mux, "readyz", a.readyz())
	return mux
}

// version tells the versions.
func (a *API) version(w http.ResponseWriter, r *http.Request) {
	if !onlyGet(w, r) {
		return
	}
	v := struct {
		Server  string `json:"etcdserver"`
		Cluster string `json:"etcdcluster"`
		Storage string `json:"storage"`
		Coordd  string `json:"coordd"`
	}{a.cfg.Versions.Server, a.cfg.Node.ClusterVersion(), a.cfg.Versions.Storage, a.cfg.Versions.Coordd}
	if v.Cluster == "" {
		v.Cluster = "not_decided"
	}
	if v.Storage == "" {
		v.Storage = "unknown"
	}
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, fmt.Sprintf("versions: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // the client has gone if this fails
}

// onlyGet answers other methods than GET with 405 and false.
func onlyGet(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet {
		return true
	}
	w.Header().Set("Allow", http.MethodGet)
	http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
	return false
}

// read makes the smallest read there is: the first key.
func (a *API) read(ctx context.Context, serializable bool) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.RequestTimeout)
	defer cancel()
	r := &rpcpb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Limit: 1, KeysOnly: true, Serializable: serializable}
	_, err := a.cfg.Node.Range(ctx, r, func([]byte) error { return nil })
	return err
}
