package server

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coordd/coordd/member"
)

// metrics are the node's own figures. Names, labels and buckets are etcd's, so
// that dashboards and alerts made for it go on working; some gauges are called
// counters there and the reverse, and stay so.
type metrics struct {
	proposalsPending prometheus.Gauge
	proposalsFailed  prometheus.Counter
	readIndexFailed  prometheus.Counter
	readIndexSlow    prometheus.Counter
	leaderChanges    prometheus.Counter
	slowApply        prometheus.Counter
	leaseExpired     prometheus.Counter
	leaseGranted     prometheus.Counter
	leaseRevoked     prometheus.Counter
	leaseRenewed     prometheus.Counter
	snapshotApply    prometheus.Gauge
	puts             prometheus.Counter
	deletes          prometheus.Counter
	txns             prometheus.Counter
	ranges           prometheus.Counter
	leaseTTL         prometheus.Histogram
	putBytes         prometheus.Gauge
	hash, hashKV     prometheus.Histogram
	apply, request   timings
	rangeTime        [2]prometheus.Observer // of reads that failed, and of those that did not
	compaction       compaction
	heartbeats       heartbeats
	disk             disk
	network          network
}

// registry adds collectors to a Registerer and remembers what failed, so that
// a second node on one Registerer is an error instead of a panic.
type registry struct {
	to  prometheus.Registerer
	err error
}

func (r *registry) add(c prometheus.Collector) {
	if err := r.to.Register(c); err != nil {
		r.err = errors.Join(r.err, err)
	}
}

func (r *registry) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	r.add(c)
	return c
}

func (r *registry) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	r.add(g)
	return g
}

func (r *registry) gaugeFunc(name, help string, f func() float64) {
	r.add(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f))
}

// fixed is a gauge whose label is the message and whose value is 1.
func (r *registry) fixed(name, help, label, value string) {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{label: value}})
	g.Set(1)
	r.add(g)
}

func (r *registry) histogram(name, help string, start, factor float64, count int) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(start, factor, count)})
	r.add(h)
	return h
}

func (r *registry) histogramVec(name, help string, start, factor float64, count int, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(start, factor, count)}, labels)
	r.add(h)
	return h
}

// newMetrics registers the figures that need no running node.
func newMetrics(to prometheus.Registerer) (*metrics, *registry) {
	r := &registry{to: to}
	return &metrics{
		proposalsPending: r.gauge("etcd_server_proposals_pending", "Proposals that wait for their result."),
		proposalsFailed:  r.counter("etcd_server_proposals_failed_total", "Proposals that got no result."),
		readIndexFailed:  r.counter("etcd_server_read_indexes_failed_total", "Rounds of linearizable reads that failed."),
		readIndexSlow:    r.counter("etcd_server_slow_read_indexes_total", "ReadIndex requests sent again for want of an answer."),
		leaderChanges:    r.counter("etcd_server_leader_changes_seen_total", "Changes of the leader seen."),
		slowApply:        r.counter("etcd_server_slow_apply_total", "Batches whose apply took longer than the warning limit."),
		leaseExpired:     r.counter("etcd_debugging_server_lease_expired_total", "Leases that this member proposed to revoke because they expired."),
		leaseGranted:     r.counter("etcd_debugging_lease_granted_total", "Lease grants applied."),
		leaseRevoked:     r.counter("etcd_debugging_lease_revoked_total", "Lease revokes applied."),
		leaseRenewed:     r.counter("etcd_debugging_lease_renewed_total", "Lease renewals answered while leading."),
		snapshotApply:    r.gauge("etcd_server_snapshot_apply_in_progress_total", "1 while a snapshot is being installed."),
		puts:             r.counter("etcd_mvcc_put_total", "Keys put."),
		deletes:          r.counter("etcd_mvcc_delete_total", "Keys deleted."),
		txns:             r.counter("etcd_mvcc_txn_total", "Transactions applied."),
		ranges:           r.counter("etcd_mvcc_range_total", "Ranges read."),
		leaseTTL:         r.histogram("etcd_debugging_lease_ttl_total", "Times to live of granted leases, in seconds.", 1, 2, 24),
		putBytes:         r.gauge("etcd_debugging_mvcc_total_put_size_in_bytes", "Bytes of keys and values put."),
		hash:             r.histogram("etcd_mvcc_hash_duration_seconds", "Time to hash the backend file.", 0.01, 2, 15),
		hashKV:           r.histogram("etcd_mvcc_hash_rev_duration_seconds", "Time to hash the keys' history.", 0.01, 2, 15),
		apply:            newTimings(r.histogramVec("etcd_server_apply_duration_seconds", "Time to apply one request.", 0.0001, 2, 20, "version", "op", "success").MustCurryWith(prometheus.Labels{"version": "v3"})),
		request:          newTimings(r.histogramVec("etcd_server_request_duration_seconds", "Time of a request from its arrival to its result.", 0.001, 2, 14, "type", "success")),
		rangeTime:        outcomes(r.histogramVec("etcd_server_range_duration_seconds", "Time of a read, without the wait for leader and log.", 0.0001, 2, 20, "success")),
		compaction:       newCompaction(r),
		heartbeats:       heartbeats{late: r.counter("etcd_server_heartbeat_send_failures_total", "Heartbeats that this leader sent late, as on a slow disk or a busy machine.")},
		disk:             newDisk(r),
		network:          newNetwork(r),
	}, r
}

// registerNode adds the figures that are read off the running node.
func (n *Node) registerNode(r *registry) error {
	r.add(peersCollector{n})
	r.add(alarmsCollector{n})
	registerProcess(r)
	registerUnused(r)
	r.fixed("etcd_server_id", "This member's id.", "server_id", member.ID(n.id).String())
	r.fixed("etcd_server_version", "The version served.", "server_version", APIVersion)
	r.fixed("etcd_server_go_version", "The Go release this program was built with.", "server_go_version", runtime.Version())
	r.fixed("etcd_cluster_version", "The version the cluster has agreed on.", "cluster_version", majorMinor(ClusterVersion))
	r.gaugeFunc("etcd_server_has_leader", "1 if a leader is known.", func() float64 { return bit(n.Leader() != 0) })
	r.gaugeFunc("etcd_server_is_leader", "1 if this member leads.", func() float64 { return bit(n.Leader() == n.id) })
	r.gaugeFunc("etcd_server_is_learner", "1 if this member is a learner.", func() float64 { return bit(n.IsLearner()) })
	r.gaugeFunc("etcd_server_proposals_committed_total", "The commit index.", func() float64 { return float64(n.raft.Status().Commit) })
	r.gaugeFunc("etcd_server_proposals_applied_total", "The applied index.", func() float64 { return float64(n.appliedIndex.Load()) })
	r.gaugeFunc("etcd_server_quota_backend_bytes", "The backend's quota.", func() float64 { return float64(n.cfg.QuotaBytes) })
	r.gaugeFunc("etcd_debugging_mvcc_current_revision", "The store's revision.", func() float64 { return float64(n.Revision()) })
	r.gaugeFunc("etcd_debugging_mvcc_compact_revision", "The compacted revision.", func() float64 { return float64(n.machine.Load().KV.CompactedRevision()) })
	r.gaugeFunc("etcd_debugging_mvcc_keys_total", "Keys.", n.countKeys)
	r.gaugeFunc("etcd_mvcc_db_open_read_transactions", "Read transactions of the backend file that are open.", func() float64 { return float64(n.machine.Load().Backend.OpenReads()) })
	r.gaugeFunc("etcd_mvcc_db_total_size_in_bytes", "The backend file's size.", func() float64 { total, _ := n.machine.Load().Backend.Size(); return float64(total) })
	r.gaugeFunc("etcd_mvcc_db_total_size_in_use_in_bytes", "The backend file's size without free pages.", func() float64 { _, used := n.machine.Load().Backend.Size(); return float64(used) })
	r.gaugeFunc("etcd_debugging_mvcc_watch_stream_total", "Open watch streams.", func() float64 { return float64(n.hub.Stats().Streams) })
	r.gaugeFunc("etcd_debugging_mvcc_watcher_total", "Watchers.", func() float64 { return float64(n.hub.Stats().Watchers) })
	r.gaugeFunc("etcd_debugging_mvcc_slow_watcher_total", "Watchers that are catching up.", func() float64 { return float64(n.hub.Stats().Slow) })
	r.gaugeFunc("etcd_debugging_mvcc_pending_events_total", "Events queued to watch streams.", func() float64 { return float64(n.hub.Stats().Pending) })
	if r.err != nil {
		return fmt.Errorf("server: metrics: %w (two nodes of one program need a registerer each)", r.err)
	}
	return nil
}

// majorMinor cuts a version X.Y.Z to X.Y.
func majorMinor(v string) string { return v[:strings.LastIndexByte(v, '.')] }

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
