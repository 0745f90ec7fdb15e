package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coordd/coordd/api/requestpb"
	"github.com/coordd/coordd/member"
	"github.com/coordd/coordd/peer"
)

// kindOther stands for requests that are too rare to have a name of their own.
const kindOther = "Other"

// kindOf is the name under which a request is timed.
func kindOf(r *requestpb.InternalRaftRequest) string {
	switch {
	case r.Put != nil:
		return "Put"
	case r.Txn != nil:
		return "Txn"
	case r.DeleteRange != nil:
		return "DeleteRange"
	case r.Compaction != nil:
		return "Compaction"
	case r.LeaseGrant != nil:
		return "LeaseGrant"
	case r.LeaseRevoke != nil:
		return "LeaseRevoke"
	case r.LeaseCheckpoint != nil:
		return "LeaseCheckpoint"
	case r.Alarm != nil:
		return "Alarm"
	case r.ClusterVersionSet != nil:
		return "ClusterVersionSet"
	case r.ClusterMemberAttrSet != nil:
		return "ClusterMemberAttrSet"
	case r.DowngradeInfoSet != nil:
		return "DowngradeInfoSet"
	}
	return kindOther
}

// timings are the histograms of one vector by kind and success, looked up once:
// finding a series by its labels costs more than all else of a measurement.
type timings map[string][2]prometheus.Observer

func newTimings(v prometheus.ObserverVec) timings {
	t := timings{}
	for _, kind := range []string{
		"Range", "ReadonlyTxn", "Put", "Txn", "DeleteRange", "Compaction", "LeaseGrant", "LeaseRevoke", "LeaseCheckpoint",
		"Alarm", "ClusterVersionSet", "ClusterMemberAttrSet", "DowngradeInfoSet", kindOther,
	} {
		t[kind] = [2]prometheus.Observer{v.WithLabelValues(kind, "false"), v.WithLabelValues(kind, "true")}
	}
	return t
}

// observe records what began at begin.
func (t timings) observe(kind string, begin time.Time, err error) {
	success := 0
	if err == nil {
		success = 1
	}
	t[kind][success].Observe(time.Since(begin).Seconds())
}

// network counts the traffic with other members.
type network struct {
	sent, received, sendFailures *prometheus.CounterVec
}

func newNetwork(r *registry) network {
	counter := func(name, help, label string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		r.add(c)
		return c
	}
	return network{
		sent:         counter("etcd_network_peer_sent_bytes_total", "Bytes sent to another member.", "To"),
		received:     counter("etcd_network_peer_received_bytes_total", "Bytes received from another member.", "From"),
		sendFailures: counter("etcd_network_peer_sent_failures_total", "Messages to another member that were dropped.", "To"),
	}
}

// hooks feed the counters from the peer layer.
func (c network) hooks() peer.Hooks {
	name := func(id uint64) string { return member.ID(id).String() }
	return peer.Hooks{
		Sent:       func(to uint64, bytes int) { c.sent.WithLabelValues(name(to)).Add(float64(bytes)) },
		Received:   func(from uint64, bytes int) { c.received.WithLabelValues(name(from)).Add(float64(bytes)) },
		SendFailed: func(to uint64, messages int) { c.sendFailures.WithLabelValues(name(to)).Add(float64(messages)) },
	}
}
