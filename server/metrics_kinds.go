package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coordd/coordd/api/requestpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/apply"
	"github.com/coordd/coordd/lease"
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

// outcomes are the histograms of a vector by success alone.
func outcomes(v *prometheus.HistogramVec) [2]prometheus.Observer {
	return [2]prometheus.Observer{v.WithLabelValues("false"), v.WithLabelValues("true")}
}

// txnOps is how many operations of keys a transaction has carried out.
func txnOps(r *rpcpb.TxnResponse) (n int) {
	for _, op := range r.GetResponses() {
		if nested := op.GetResponseTxn(); nested != nil {
			n += txnOps(nested)
		} else {
			n++
		}
	}
	return n
}

// pairBytes is the length of the key and the value in a row, its only fields that are bytes.
func pairBytes(row []byte) (total int) {
	for len(row) > 0 {
		num, typ, n := protowire.ConsumeTag(row)
		if n < 0 {
			return total
		}
		size := protowire.ConsumeFieldValue(num, typ, row[n:])
		if size < 0 {
			return total
		}
		if typ == protowire.BytesType {
			_, prefix := protowire.ConsumeVarint(row[n:])
			total += size - prefix
		}
		row = row[n+size:]
	}
	return total
}

// count keeps the counters of applied work.
func (m *metrics) count(res apply.Result) {
	for i := range res.Events {
		if e := &res.Events[i]; e.Tombstone {
			m.deletes.Inc()
		} else {
			m.puts.Inc()
			m.putBytes.Add(float64(pairBytes(e.Row)))
		}
	}
	if r, ok := res.Response.(*rpcpb.TxnResponse); ok && txnOps(r) > 1 {
		m.txns.Inc()
	}
	for _, c := range res.Leases {
		switch c.Op {
		case lease.Granted:
			m.leaseGranted.Inc()
			m.leaseTTL.Observe(float64(c.Lease.TTL))
		case lease.Revoked:
			m.leaseRevoked.Inc()
		}
	}
}
