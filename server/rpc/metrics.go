package rpc

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"

	"github.com/coordd/coordd/api/codec"
)

// codesCount is the number of gRPC's status codes.
const codesCount = int(codes.Unauthenticated) + 1

// metrics are the figures about calls, under the names and labels they have in etcd.
type metrics struct {
	started  *prometheus.CounterVec
	handled  *prometheus.CounterVec
	received *prometheus.CounterVec
	sent     *prometheus.CounterVec
	seconds  *prometheus.HistogramVec // nil unless wanted

	bytesReceived prometheus.Counter
	bytesSent     prometheus.Counter
	unary         clientVersions
	stream        clientVersions
}

// newMetrics makes and registers the figures.
func newMetrics(to prometheus.Registerer, extensive bool) (*metrics, error) {
	method := []string{"grpc_type", "grpc_service", "grpc_method"}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		started:       vec("grpc_server_started_total", "Calls begun.", method...),
		handled:       vec("grpc_server_handled_total", "Calls ended, by code.", append(method, "grpc_code")...),
		received:      vec("grpc_server_msg_received_total", "Messages received.", method...),
		sent:          vec("grpc_server_msg_sent_total", "Messages sent.", method...),
		bytesReceived: prometheus.NewCounter(prometheus.CounterOpts{Name: "etcd_network_client_grpc_received_bytes_total", Help: "Bytes of messages received from clients."}),
		bytesSent:     prometheus.NewCounter(prometheus.CounterOpts{Name: "etcd_network_client_grpc_sent_bytes_total", Help: "Bytes of messages sent to clients."}),
	}
	requests := vec("etcd_server_client_requests_total", "Calls, by the client's API version.", "type", "client_api_version")
	m.unary.vec, m.unary.typ = requests, "unary"
	m.stream.vec, m.stream.typ = requests, "stream"
	revision := prometheus.NewGauge(prometheus.GaugeOpts{Name: "etcd_debugging_auth_revision", Help: "The revision of users and roles."})
	revision.Set(authRevision)
	all := []prometheus.Collector{m.started, m.handled, m.received, m.sent, m.bytesReceived, m.bytesSent, requests, revision}
	if extensive {
		m.seconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "grpc_server_handling_seconds", Help: "Time from the request to the end of the call.", Buckets: prometheus.DefBuckets,
		}, method)
		all = append(all, m.seconds)
	}
	var err error
	for _, c := range all {
		err = errors.Join(err, to.Register(c))
	}
	if err != nil {
		return nil, fmt.Errorf("rpc: metrics: %w (two sets of services in one program need a registerer each)", err)
	}
	return m, nil
}

// counters are the figures of one method.
type counters struct {
	started  prometheus.Counter
	received prometheus.Counter
	sent     prometheus.Counter
	handled  [codesCount]prometheus.Counter
	seconds  prometheus.Observer // nil unless wanted
}

// of looks up, and so creates with value 0, the figures of a method. full is "service/method".
func (m *metrics) of(full string, clientStreams, serverStreams bool) counters {
	service, method, _ := strings.Cut(full, "/")
	labels := []string{"unary", service, method}
	switch {
	case clientStreams && serverStreams:
		labels[0] = "bidi_stream"
	case clientStreams:
		labels[0] = "client_stream"
	case serverStreams:
		labels[0] = "server_stream"
	}
	c := counters{
		started:  m.started.WithLabelValues(labels...),
		received: m.received.WithLabelValues(labels...),
		sent:     m.sent.WithLabelValues(labels...),
	}
	for code := range c.handled {
		c.handled[code] = m.handled.WithLabelValues(append(labels[:3:3], codes.Code(code).String())...)
	}
	if m.seconds != nil {
		c.seconds = m.seconds.WithLabelValues(labels...)
	}
	return c
}

// end counts the end of a call.
func (c *counters) end(code codes.Code) {
	if int(code) >= codesCount {
		code = codes.Unknown
	}
	c.handled[code].Inc()
}

// maxClientVersions bounds how many versions that clients name are told apart: they may name
// anything, and each is a time series for ever.
const maxClientVersions = 64

// clientVersions counts calls by the version the client names. Any goroutine may use it.
type clientVersions struct {
	vec *prometheus.CounterVec
	typ string

	known atomic.Pointer[map[string]prometheus.Counter] // replaced as a whole
	mu    sync.Mutex                                    // guards the replacement
}

// count counts a call of a client of this version, "" if it names none.
func (v *clientVersions) count(version string) {
	if m := v.known.Load(); m != nil {
		if c, ok := (*m)[version]; ok {
			c.Inc()
			return
		}
	}
	v.learn(version).Inc()
}

// learn looks up the counter of a version.
func (v *clientVersions) learn(version string) prometheus.Counter {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := map[string]prometheus.Counter{}
	if m := v.known.Load(); m != nil {
		known = maps.Clone(*m)
	}
	if c, ok := known[version]; ok {
		return c
	}
	label := version
	switch {
	case version == "":
		label = "unknown"
	case len(known) >= maxClientVersions:
		return v.vec.WithLabelValues(v.typ, "other")
	}
	c := v.vec.WithLabelValues(v.typ, label)
	known[version] = c
	v.known.Store(&known)
	return c
}

// meteredCodec is the API's codec, counting bytes.
type meteredCodec struct {
	codec.Codec
	m *metrics
}

// Marshal encodes v.
func (c meteredCodec) Marshal(v any) (mem.BufferSlice, error) {
	data, err := c.Codec.Marshal(v)
	c.m.bytesSent.Add(float64(data.Len()))
	return data, err
}

// Unmarshal decodes into v.
func (c meteredCodec) Unmarshal(data mem.BufferSlice, v any) error {
	c.m.bytesReceived.Add(float64(data.Len()))
	return c.Codec.Unmarshal(data, v)
}
