package apply_test

import (
	"path/filepath"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/coordd/coordd/api/requestpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/member"
)

// FuzzEntry applies arbitrary bytes as entries of each type, twice from the same state, and
// expects the same outcome and no panic.
func FuzzEntry(f *testing.F) {
	seeds := []*requestpb.InternalRaftRequest{
		put("k", "v", 0), revoke(1, 3), grantReq(1, 5), alarmReq(1, 2, 1),
		{Txn: &rpcpb.TxnRequest{Failure: []*rpcpb.RequestOp{{}}}},
		{Txn: &rpcpb.TxnRequest{Success: []*rpcpb.RequestOp{{Request: &rpcpb.RequestOp_RequestPut{
			RequestPut: &rpcpb.PutRequest{Key: []byte("a"), IgnoreValue: true},
		}}}}},
		{Range: &rpcpb.RangeRequest{Key: []byte("a"), RangeEnd: []byte{0}, Limit: 1 << 62, SortOrder: 2}},
		{Compaction: &rpcpb.CompactionRequest{Revision: 1}},
	}
	for _, req := range seeds {
		data, err := req.MarshalVT()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, false)
	}
	_, conf, err := raftpb.MarshalConfChange(member.NewAdd(1, member.Member{ID: 9, PeerURLs: []string{"http://a:1"}}, 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(conf, true)
	f.Fuzz(func(t *testing.T, data []byte, isConf bool) {
		a := openReplica(t, filepath.Join(t.TempDir(), "a"))
		b := openReplica(t, filepath.Join(t.TempDir(), "b"))
		defer func() { a.close(); b.close() }()
		for _, r := range []*replica{a, b} {
			r.do(grantReq(1, 10))
			r.do(put("a", "v", 1))
		}
		e := entryOf(t, 3, 2, nil)
		e.Data = data
		if isConf {
			e.Type = raftpb.EntryConfChange.Enum()
			ca, ia := a.m.ApplyConf(e)
			cb, ib := b.m.ApplyConf(e)
			if !sameMessage(ca, cb) || !sameError(ia.Err, ib.Err) {
				t.Fatalf("%v (%v) and %v (%v)", ca, ia.Err, cb, ib.Err)
			}
			return
		}
		_, ra := a.m.Apply(e, always)
		b.m.Publish()
		_, rb := b.m.Apply(e, always)
		sameResult(t, 3, rb, ra)
		a.m.Publish()
		b.m.Publish()
		if ha, hb := a.hash(0), b.hash(0); ha != hb {
			t.Fatalf("hashes %x and %x", ha, hb)
		}
	})
}
