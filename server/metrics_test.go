package server

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
)

// gathered adds up the series of a name: their values, or of histograms the numbers of observations.
func gathered(t *testing.T, g prometheus.Gatherer, name string) (sum float64) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		return sum
	}
	t.Fatalf("no %s", name)
	return 0
}

// measured is a cluster of one with its metrics.
func measured(t *testing.T) (*Node, prometheus.Gatherer) {
	t.Helper()
	reg := prometheus.NewRegistry()
	c := newCluster(t, 1)
	c.cfgs[0].Registerer = reg
	return c.run().nodes[0], reg
}

// A heartbeat is late when more than two ticks lie between it and the one before to the same member, in one term.
func TestLateHeartbeats(t *testing.T) {
	reg := prometheus.NewRegistry()
	h := heartbeats{late: prometheus.NewCounter(prometheus.CounterOpts{Name: "late"})}
	reg.MustRegister(h.late)
	const tick = 100 * time.Millisecond
	start := time.Now()
	for _, x := range []struct {
		at       time.Duration
		to, term uint64
		typ      raftpb.MessageType
		late     float64
	}{
		{0, 2, 1, raftpb.MsgHeartbeat, 0},
		{200 * time.Millisecond, 2, 1, raftpb.MsgHeartbeat, 0},
		{401 * time.Millisecond, 3, 1, raftpb.MsgHeartbeat, 0}, // the first to that one
		{401 * time.Millisecond, 2, 1, raftpb.MsgHeartbeat, 1},
		{600 * time.Millisecond, 2, 1, raftpb.MsgApp, 1},
		{602 * time.Millisecond, 2, 1, raftpb.MsgHeartbeat, 2},
		{900 * time.Millisecond, 2, 2, raftpb.MsgHeartbeat, 2}, // elected anew
		{1000 * time.Millisecond, 3, 2, raftpb.MsgHeartbeat, 2},
	} {
		h.observe([]*raftpb.Message{{Type: &x.typ, To: &x.to, Term: &x.term}}, start.Add(x.at), tick)
		if got := gathered(t, reg, "late"); got != x.late {
			t.Errorf("at %v: %v late, want %v", x.at, got, x.late)
		}
	}
}

func TestPairBytes(t *testing.T) {
	for _, kv := range []*kvpb.KeyValue{
		{}, {Key: []byte("key")}, {Key: []byte("k"), Value: make([]byte, 300), CreateRevision: 1 << 40, ModRevision: 9, Version: 1, Lease: -5},
	} {
		row, err := kv.MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := pairBytes(row), len(kv.Key)+len(kv.Value); got != want {
			t.Errorf("%d bytes, want %d", got, want)
		}
	}
	if got := pairBytes([]byte{0x0a, 0xff}); got != 0 {
		t.Errorf("a row that is cut off has %d bytes", got)
	}
}

// A compaction is counted once, with its rows, and told of when it is done.
func TestCompactionMetrics(t *testing.T) {
	n, reg := measured(t)
	for range 10 {
		put(t, n, "k", "v")
	}
	const prefix = "etcd_debugging_mvcc_"
	if got := gathered(t, reg, prefix+"db_compaction_last"); got != 0 {
		t.Errorf("before the first compaction: %v", got)
	}
	r := &rpcpb.CompactionRequest{Revision: n.Revision(), Physical: true}
	if _, err := n.Compact(within(t, testWait), r); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"db_compaction_keys_total": 9, "db_compaction_total_duration_milliseconds": 1, "db_compaction_pause_duration_milliseconds": 1, "keys_total": 1,
	} {
		if got := gathered(t, reg, prefix+name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	for _, name := range []string{"db_compaction_last", "index_compaction_pause_duration_milliseconds"} {
		if gathered(t, reg, prefix+name) == 0 {
			t.Errorf("no %s", name)
		}
	}
}

// What is only counted when it happens is counted: transactions of more than one operation, alarms while they are raised, hashes and
// snapshots.
func TestCountedWork(t *testing.T) {
	n, reg := measured(t)
	op := func(key string) *rpcpb.RequestOp {
		return &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestPut{RequestPut: &rpcpb.PutRequest{Key: []byte(key)}}}
	}
	nested := &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestTxn{RequestTxn: &rpcpb.TxnRequest{Success: []*rpcpb.RequestOp{op("a"), op("b")}}}}
	for _, ops := range [][]*rpcpb.RequestOp{{op("a")}, {op("a"), op("b")}, {nested}} {
		if _, err := n.Txn(t.Context(), &rpcpb.TxnRequest{Success: ops}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(name string, want float64) {
		t.Helper()
		if got := gathered(t, reg, name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	want("etcd_mvcc_txn_total", 2)
	const alarms, reads, snapshots = "etcd_debugging_server_alarms", "etcd_mvcc_db_open_read_transactions", "etcd_disk_backend_snapshot_duration_seconds"
	want(alarms, 0)
	r := &rpcpb.AlarmRequest{Action: rpcpb.AlarmRequest_ACTIVATE, MemberID: 77, Alarm: rpcpb.AlarmType_NOSPACE}
	if _, err := n.Alarm(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	want(alarms, 1)
	if _, err := n.HashKV(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Hash(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("etcd_mvcc_hash_duration_seconds", 1)
	want("etcd_mvcc_hash_rev_duration_seconds", 1)
	snapshot, err := n.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := gathered(t, reg, reads); got < 2 { // the snapshot, and what all readers share
		t.Errorf("%v reads of the file are open", got)
	}
	want(snapshots, 0)
	if err := snapshot.Close(); err != nil {
		t.Fatal(err)
	}
	want(snapshots, 1)
}
