package rpc

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// streamMetrics are the figures about Watch and LeaseKeepAlive streams, under the names they have in etcd.
type streamMetrics struct {
	events   prometheus.Counter
	failures *prometheus.CounterVec
	send     prometheus.Histogram // a response with events
	perEvent prometheus.Histogram
	control  prometheus.Histogram // an answer
	progress prometheus.Histogram
}

func newStreamMetrics(to prometheus.Registerer) (*streamMetrics, error) {
	seconds := func(what, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "etcd_debugging_server_watch_send_loop_" + what + "_seconds", Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		})
	}
	m := &streamMetrics{
		events:   prometheus.NewCounter(prometheus.CounterOpts{Name: "etcd_debugging_mvcc_events_total", Help: "Events sent to watchers."}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "etcd_network_server_stream_failures_total", Help: "Streams that failed, not ended by the client."}, []string{"Type", "API"}),
		send:     seconds("watch_stream_duration", "Time to send a watch response with events."),
		perEvent: seconds("watch_stream_duration_per_event", "Time to send a watch response, divided by its events."),
		control:  seconds("control_stream_duration", "Time to send an answer on a watch stream."),
		progress: seconds("progress_duration", "Time to send a progress notice."),
	}
	var err error
	for _, c := range []prometheus.Collector{m.events, m.failures, m.send, m.perEvent, m.control, m.progress} {
		err = errors.Join(err, to.Register(c))
	}
	if err != nil {
		return nil, fmt.Errorf("rpc: metrics: %w (two sets of services in one program need a registerer each)", err)
	}
	return m, nil
}

// sent records a response of a watch stream; see [WatchOptions].OnSend.
func (m *streamMetrics) sent(events int, progress bool, took time.Duration) {
	switch {
	case events > 0:
		m.events.Add(float64(events))
		m.send.Observe(took.Seconds())
		m.perEvent.Observe(took.Seconds() / float64(events))
	case progress:
		m.progress.Observe(took.Seconds())
	default:
		m.control.Observe(took.Seconds())
	}
}

// failed gives a function that records the failure of a stream of an API, "watch" or "lease-keepalive".
func (m *streamMetrics) failed(api string) func(sending bool) {
	return func(sending bool) {
		typ := "receive"
		if sending {
			typ = "send"
		}
		m.failures.WithLabelValues(typ, api).Inc()
	}
}
