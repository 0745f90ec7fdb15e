package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/member"
	"github.com/coordd/coordd/peer"
)

// network counts the traffic with other members, each by the other's id.
type network struct {
	sent, received             *prometheus.CounterVec
	sendFailures, recvFailures *prometheus.CounterVec
	disconnected               *prometheus.CounterVec
	roundTrip                  *prometheus.HistogramVec
	snapSent, snapReceived     transfers
}

// transfers are the figures about snapshots in one direction.
type transfers struct {
	fine, failed *prometheus.CounterVec
	seconds      *prometheus.HistogramVec
}

func newNetwork(r *registry) network {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		r.add(c)
		return c
	}
	transfer := func(what, label string) transfers {
		name := "etcd_network_snapshot_" + what
		return transfers{
			fine:    counter(name+"_success", "Snapshots transferred.", label),
			failed:  counter(name+"_failures", "Snapshots whose transfer failed.", label),
			seconds: r.histogramVec(name+"_total_duration_seconds", "Time to transfer a snapshot.", 0.1, 2, 10, label),
		}
	}
	return network{
		sent:         counter("etcd_network_peer_sent_bytes_total", "Bytes sent to another member.", "To"),
		received:     counter("etcd_network_peer_received_bytes_total", "Bytes received from another member.", "From"),
		sendFailures: counter("etcd_network_peer_sent_failures_total", "Messages to another member that were dropped.", "To"),
		recvFailures: counter("etcd_network_peer_received_failures_total", "Streams of another member's messages that broke.", "From"),
		disconnected: counter("etcd_network_disconnected_peers_total", "Connections to another member that broke.", "Local", "Remote"),
		roundTrip:    r.histogramVec("etcd_network_peer_round_trip_time_seconds", "Time of a question to another member and its answer.", 0.0001, 2, 16, "To"),
		snapSent:     transfer("send", "To"),
		snapReceived: transfer("receive", "From"),
	}
}

// hooks feed the figures from the peer layer of the member local.
func (c *network) hooks(local uint64) peer.Hooks {
	name := func(id uint64) string { return member.ID(id).String() }
	return peer.Hooks{
		Sent:         func(to uint64, bytes int) { c.sent.WithLabelValues(name(to)).Add(float64(bytes)) },
		Received:     func(from uint64, bytes int) { c.received.WithLabelValues(name(from)).Add(float64(bytes)) },
		SendFailed:   func(to uint64, messages int) { c.sendFailures.WithLabelValues(name(to)).Add(float64(messages)) },
		Broken:       func(from uint64) { c.recvFailures.WithLabelValues(name(from)).Inc() },
		Disconnected: func(to uint64) { c.disconnected.WithLabelValues(name(local), name(to)).Inc() },
		RoundTrip:    func(to uint64, d time.Duration) { c.roundTrip.WithLabelValues(name(to)).Observe(d.Seconds()) },
		SnapshotSent: func(to uint64, _ int64, d time.Duration, err error) { c.snapSent.record(name(to), d, err) },
		SnapshotReceived: func(from uint64, _ int64, d time.Duration, err error) {
			c.snapReceived.record(name(from), d, err)
		},
	}
}

// record records one try.
func (t *transfers) record(other string, took time.Duration, err error) {
	if err != nil {
		t.failed.WithLabelValues(other).Inc()
		return
	}
	t.fine.WithLabelValues(other).Inc()
	t.seconds.WithLabelValues(other).Observe(took.Seconds())
}

// heartbeats finds those that this leader sends late. It belongs to raft's drive loop.
type heartbeats struct {
	late prometheus.Counter

	term uint64
	last map[uint64]time.Time // by member
}

// observe looks at messages that are sent at now. One that comes more than two ticks after the one before is late.
func (h *heartbeats) observe(msgs []*raftpb.Message, now time.Time, tick time.Duration) {
	for _, m := range msgs {
		if m.GetType() != raftpb.MsgHeartbeat {
			continue
		}
		if h.term != m.GetTerm() { // elected a moment ago
			h.term, h.last = m.GetTerm(), map[uint64]time.Time{}
		}
		if last, ok := h.last[m.GetTo()]; ok && now.Sub(last) > 2*tick {
			h.late.Inc()
		}
		h.last[m.GetTo()] = now
	}
}

// send hands messages to the peer layer. It is called on raft's drive loop.
func (n *Node) send(msgs []*raftpb.Message) {
	n.metrics.heartbeats.observe(msgs, time.Now(), n.cfg.Tick)
	n.transport.Send(msgs)
}

// peersCollector tells which members this one knows, and to which it is connected. It reads the node when it is asked, so
// members that leave leave no series behind.
type peersCollector struct{ n *Node }

func peerDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"Local", "Remote"}, nil)
}

func knownDesc() *prometheus.Desc {
	return peerDesc("etcd_network_known_peers", "1 for each member known, this one included.")
}

func activeDesc() *prometheus.Desc {
	return peerDesc("etcd_network_active_peers", "1 for each other member that messages get through to, 0 for the rest.")
}

// Describe implements prometheus.Collector.
func (c peersCollector) Describe(out chan<- *prometheus.Desc) {
	out <- knownDesc()
	out <- activeDesc()
}

// Collect implements prometheus.Collector.
func (c peersCollector) Collect(out chan<- prometheus.Metric) {
	local := member.ID(c.n.id)
	known, active := knownDesc(), activeDesc()
	for _, m := range c.n.machine.Load().Members.Members() {
		out <- prometheus.MustNewConstMetric(known, prometheus.GaugeValue, 1, local.String(), m.ID.String())
		if m.ID != local {
			on := bit(!c.n.transport.ActiveSince(uint64(m.ID)).IsZero())
			out <- prometheus.MustNewConstMetric(active, prometheus.GaugeValue, on, local.String(), m.ID.String())
		}
	}
}

// alarmsCollector tells which alarms there are: this member's own kinds always, those of others while they are raised.
type alarmsCollector struct{ n *Node }

func alarmDesc() *prometheus.Desc {
	return prometheus.NewDesc("etcd_debugging_server_alarms", "1 if the member has raised the alarm.", []string{"server_id", "alarm_type"}, nil)
}

// Describe implements prometheus.Collector.
func (c alarmsCollector) Describe(out chan<- *prometheus.Desc) { out <- alarmDesc() }

// Collect implements prometheus.Collector.
func (c alarmsCollector) Collect(out chan<- prometheus.Metric) {
	type alarm struct{ member, typ string }
	own := member.ID(c.n.id).String()
	raised := map[alarm]bool{
		{own, rpcpb.AlarmType_NOSPACE.String()}: false, {own, rpcpb.AlarmType_CORRUPT.String()}: false,
	}
	for _, a := range c.n.machine.Load().Alarms.List() {
		raised[alarm{member.ID(a.Member).String(), a.Type.String()}] = true
	}
	for a, on := range raised {
		out <- prometheus.MustNewConstMetric(alarmDesc(), prometheus.GaugeValue, bit(on), a.member, a.typ)
	}
}
