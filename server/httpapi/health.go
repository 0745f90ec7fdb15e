package httpapi

import (
	"encoding/json"
	"net/http"
	"slices"

	"go.uber.org/zap"

	"github.com/coordd/coordd/api/rpcpb"
)

// verdict is the answer of /health. Health is a text by tradition.
type verdict struct {
	Health string `json:"health"`
	Reason string `json:"reason"`
}

// health tells in one answer whether the member is fine. Parameters: exclude=<ALARM>, any number of
// times, for alarms that do not count; serializable=true to ask of this member alone.
func (a *API) health(w http.ResponseWriter, r *http.Request) {
	if !onlyGet(w, r) {
		return
	}
	reason := a.sickness(r)
	v := verdict{Health: "true", Reason: reason}
	if reason == "" {
		a.results.healthy.Inc()
	} else {
		a.results.sick.Inc()
		v.Health = "false"
		a.cfg.Logger.Warn("health check failed", zap.String("reason", reason))
	}
	body, err := json.Marshal(v)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case reason != "":
		http.Error(w, string(body), http.StatusServiceUnavailable)
	default:
		_, _ = w.Write(body) // the client has gone if this fails
	}
}

// sickness is the first reason not to call the member healthy, or "".
func (a *API) sickness(r *http.Request) string {
	excluded := r.URL.Query()["exclude"]
	for _, alarm := range []rpcpb.AlarmType{rpcpb.AlarmType_NOSPACE, rpcpb.AlarmType_CORRUPT} {
		if a.cfg.Node.Alarmed(alarm) && !slices.Contains(excluded, alarm.String()) {
			return "ALARM " + alarm.String()
		}
	}
	serializable := r.URL.Query().Get("serializable") == "true"
	if !serializable && a.cfg.Node.Leader() == 0 {
		return "RAFT NO LEADER"
	}
	if err := a.read(r.Context(), serializable); err != nil {
		return "RANGE ERROR:" + err.Error()
	}
	return ""
}
