package server

import (
	"math"
	"os"
	"syscall"

	"github.com/coordd/coordd/mvcc"
)

// registerProcess adds what etcd tells of its process.
func registerProcess(r *registry) {
	r.gaugeFunc("os_fd_used", "File descriptors this process has open.", func() float64 {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return math.NaN() // not known on this system
		}
		return float64(len(entries) - 1) // one was opened to look
	})
	r.gaugeFunc("os_fd_limit", "File descriptors this process may have open.", func() float64 {
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			return math.NaN()
		}
		return float64(limit.Cur)
	})
}

// registerUnused adds figures that etcd shows from the start, about what does not exist here, so that a dashboard or a check
// that asks for them finds the true value, which is 0.
func registerUnused(r *registry) {
	for name, help := range map[string]string{
		"etcd_server_learner_promote_successes":     "Learners promoted.",
		"etcd_debugging_store_expires_total":        "Always 0: there is no v2 store.",
		"etcd_debugging_store_watch_requests_total": "Always 0: there is no v2 store.",
		"etcd_grpc_proxy_events_coalescing_total":   "Always 0: this is no proxy.",
	} {
		r.counter(name, help)
	}
	for name, help := range map[string]string{
		"etcd_disk_defrag_inflight":                 "1 while the backend file is defragmented.",
		"etcd_debugging_store_watchers":             "Always 0: there is no v2 store.",
		"etcd_grpc_proxy_cache_hits_total":          "Always 0: this is no proxy.",
		"etcd_grpc_proxy_cache_keys_total":          "Always 0: this is no proxy.",
		"etcd_grpc_proxy_cache_misses_total":        "Always 0: this is no proxy.",
		"etcd_grpc_proxy_watchers_coalescing_total": "Always 0: this is no proxy.",
	} {
		r.gauge(name, help)
	}
	r.histogram("etcd_disk_backend_defrag_duration_seconds", "Time of a defragmentation of the backend file.", 0.1, 2, 13)
	r.histogram("etcd_snap_fsync_duration_seconds", "Never observed: snapshots are the backend file alone.", 0.001, 2, 14)
	r.histogram("etcd_debugging_snap_save_marshalling_duration_seconds", "Never observed: snapshots are the backend file alone.", 0.001, 2, 14)
	r.histogram("etcd_debugging_snap_save_total_duration_seconds", "Never observed: snapshots are the backend file alone.", 0.001, 2, 14)
}

// countKeys is the number of keys.
func (n *Node) countKeys() float64 {
	res, err := n.machine.Load().KV.Range([]byte{0}, []byte{0}, mvcc.RangeOptions{CountOnly: true}, nil)
	if err != nil {
		return math.NaN() // it is closed, or damaged, which others report
	}
	return float64(res.Count)
}
