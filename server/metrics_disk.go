package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coordd/coordd/mvcc"
)

// disk are the figures about files.
type disk struct {
	walSync, walWrite       prometheus.Histogram
	walBytes                prometheus.Gauge
	commit                  prometheus.Histogram
	rebalance, spill, write prometheus.Histogram // the parts of a commit
	snapshot                prometheus.Histogram
	snapSync, snapSave      prometheus.Histogram
}

func newDisk(r *registry) disk {
	seconds := func(name, help string) prometheus.Histogram { return r.histogram(name, help, 0.001, 2, 14) }
	return disk{
		walSync:   seconds("etcd_disk_wal_fsync_duration_seconds", "Time of one fsync of the write-ahead log."),
		walWrite:  seconds("etcd_disk_wal_write_duration_seconds", "Time of one write to the write-ahead log."),
		walBytes:  r.gauge("etcd_disk_wal_write_bytes_total", "Bytes written to the write-ahead log."),
		commit:    seconds("etcd_disk_backend_commit_duration_seconds", "Time of one commit of the backend file."),
		rebalance: seconds("etcd_debugging_disk_backend_commit_rebalance_duration_seconds", "Time to rebalance pages in one commit."),
		spill:     seconds("etcd_debugging_disk_backend_commit_spill_duration_seconds", "Time to spill pages in one commit."),
		write:     seconds("etcd_debugging_disk_backend_commit_write_duration_seconds", "Time to write pages in one commit."),
		snapshot:  r.histogram("etcd_disk_backend_snapshot_duration_seconds", "Time for which a snapshot of the backend file was read.", 0.01, 2, 17),
		snapSync:  seconds("etcd_snap_db_fsync_duration_seconds", "Time of one fsync of a snapshot that was received."),
		snapSave:  r.histogram("etcd_snap_db_save_total_duration_seconds", "Time to receive a snapshot and make it durable.", 0.1, 2, 10),
	}
}

// wrote records a write to the log.
func (d *disk) wrote(bytes int, took time.Duration) {
	d.walBytes.Add(float64(bytes))
	d.walWrite.Observe(took.Seconds())
}

// phases records the parts of a commit.
func (d *disk) phases(rebalance, spill, write time.Duration) {
	d.rebalance.Observe(rebalance.Seconds())
	d.spill.Observe(spill.Seconds())
	d.write.Observe(write.Seconds())
}

// compaction are the figures about the removal of old rows. It belongs to the apply loop.
type compaction struct {
	rows                     prometheus.Counter
	last                     prometheus.Gauge
	total, rowPause, ixPause prometheus.Histogram // in milliseconds

	begin time.Time // of the removal under way; zero = there is none
}

func newCompaction(r *registry) compaction {
	return compaction{
		rows:     r.counter("etcd_debugging_mvcc_db_compaction_keys_total", "Rows that compaction has removed."),
		last:     r.gauge("etcd_debugging_mvcc_db_compaction_last", "When the last compaction was done, in seconds since 1970; 0 after a start."),
		total:    r.histogram("etcd_debugging_mvcc_db_compaction_total_duration_milliseconds", "Time of a whole compaction.", 100, 2, 14),
		rowPause: r.histogram("etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds", "Time for which a step of compaction that removed rows held up requests.", 1, 2, 13),
		ixPause:  r.histogram("etcd_debugging_mvcc_index_compaction_pause_duration_milliseconds", "Time for which a step of compaction of the index held up requests.", 0.5, 2, 14),
	}
}

// step does one step of the removal under way, if there is one, and records it.
func (c *compaction) step(kv *mvcc.Store, rows int) {
	begin, before := time.Now(), kv.Removed()
	more := kv.CompactStep(rows)
	if !more && c.begin.IsZero() {
		return
	}
	if c.begin.IsZero() {
		c.begin = begin
	}
	end := time.Now()
	pause := c.ixPause
	if removed := kv.Removed() - before; removed > 0 {
		c.rows.Add(float64(removed))
		pause = c.rowPause
	}
	pause.Observe(milliseconds(end.Sub(begin)))
	if !more {
		c.total.Observe(milliseconds(end.Sub(c.begin)))
		c.last.Set(float64(end.Unix()))
		c.begin = time.Time{}
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
