package apply_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/memberpb"
	"github.com/coordd/coordd/api/requestpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/apply"
	"github.com/coordd/coordd/lease"
	"github.com/coordd/coordd/member"
	"github.com/coordd/coordd/mvcc"
)

// contextOf is a context for reads of a test.
func contextOf(tb) context.Context { return context.Background() }

func sameEvent(a, b mvcc.Event) bool {
	return a.Rev == b.Rev && a.Tombstone == b.Tombstone && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Row, b.Row) &&
		a.Lease == b.Lease && a.PrevLease == b.PrevLease && a.PrevRev == b.PrevRev
}

func newReplica(t *testing.T) *replica {
	t.Helper()
	r := openReplica(t, filepath.Join(t.TempDir(), "db"))
	t.Cleanup(func() { _ = r.m.Close() })
	return r
}

func put(key, value string, id int64) *requestpb.InternalRaftRequest {
	return &requestpb.InternalRaftRequest{Put: &rpcpb.PutRequest{Key: []byte(key), Value: []byte(value), Lease: id}}
}

func revoke(id int64, leaseTerm uint64) *requestpb.InternalRaftRequest {
	return &requestpb.InternalRaftRequest{
		Header:      &requestpb.RequestHeader{LeaseTerm: leaseTerm},
		LeaseRevoke: &rpcpb.LeaseRevokeRequest{ID: id},
	}
}

func grantReq(id, ttl int64) *requestpb.InternalRaftRequest {
	return &requestpb.InternalRaftRequest{LeaseGrant: &rpcpb.LeaseGrantRequest{ID: id, TTL: ttl}}
}

func alarmReq(action rpcpb.AlarmRequest_AlarmAction, id uint64, typ rpcpb.AlarmType) *requestpb.InternalRaftRequest {
	return &requestpb.InternalRaftRequest{Alarm: &rpcpb.AlarmRequest{Action: action, MemberID: id, Alarm: typ}}
}

func TestEntries(t *testing.T) {
	r := newReplica(t)
	req := put("k", "v", 0)
	req.Header = &requestpb.RequestHeader{ID: 42}
	asked := uint64(0)
	id, res := r.m.Apply(entryOf(t, 1, 1, req), func(id uint64) bool { asked = id; return true })
	if id != 42 || asked != 42 || res.Err != nil {
		t.Fatalf("id %d, asked %d, %v", id, asked, res.Err)
	}
	id, res = r.m.Apply(entryOf(t, 1, 1, req), always) // once more, as after a restart
	if id != 0 || res.Response != nil || len(res.Events) != 0 {
		t.Errorf("applied twice: %d, %+v", id, res)
	}
	if id, res = r.m.Apply(entryOf(t, 2, 3, nil), always); id != 0 || res.Err != nil || r.m.Position().Index != 2 || r.m.Position().Term != 3 {
		t.Errorf("empty entry: %d, %+v at %+v", id, res, r.m.Position())
	}
	old := put("k", "w", 0)
	old.ID = 43 // from before there was a header
	if id, _ = r.m.Apply(entryOf(t, 3, 3, old), nil); id != 43 {
		t.Errorf("id %d", id)
	}
	index, term := uint64(4), uint64(3)
	garbage := &raftpb.Entry{Index: &index, Term: &term, Data: []byte("\xff\xff\xff")}
	if _, res = r.m.Apply(garbage, nil); !errors.Is(res.Err, apply.ErrUnknownRequest) || r.m.Position().Index != 4 {
		t.Errorf("garbage: %v at %+v", res.Err, r.m.Position())
	}
	if _, res = r.m.Apply(entryOf(t, 5, 3, &requestpb.InternalRaftRequest{ID: 9}), nil); !errors.Is(res.Err, apply.ErrUnknownRequest) {
		t.Errorf("no request: %v", res.Err)
	}
	rev, events := r.m.Publish()
	if rev != 3 || len(events) != 2 {
		t.Errorf("revision %d with %d events", rev, len(events))
	}
	if _, events = r.m.Publish(); events != nil {
		t.Errorf("events are given twice: %v", events)
	}
	defer func() {
		if recover() == nil {
			t.Error("a gap in the log was accepted")
		}
	}()
	r.m.Apply(entryOf(t, 7, 3, nil), nil)
}

func TestRevokeIsFencedAndDeletesInOrder(t *testing.T) {
	r := newReplica(t)
	r.do(grantReq(-5, 60))
	for _, k := range []string{"c", "a", "b"} {
		r.do(put(k, "v", -5))
	}
	r.do(put("free", "v", 0))
	r.do(put("c", "w", 0)) // detaches
	if res := r.append(8, revoke(-5, 7)); !errors.Is(res.Err, errs.ErrLeaderChanged) || len(res.Events) != 0 {
		t.Errorf("a deposed leader's revoke: %+v", res)
	}
	res := r.append(8, revoke(-5, 8))
	if res.Err != nil || len(res.Events) != 2 || string(res.Events[0].Key) != "a" || string(res.Events[1].Key) != "b" ||
		res.Events[0].Rev.Main != res.Events[1].Rev.Main || len(res.Leases) != 1 || res.Leases[0].Op != lease.Revoked {
		t.Errorf("revoke: %+v", res)
	}
	if got := res.Response.(*rpcpb.LeaseRevokeResponse).Header.Revision; got != res.Events[0].Rev.Main {
		t.Errorf("header revision %d", got)
	}
	if res := r.append(8, put("x", "v", -5)); !errors.Is(res.Err, errs.ErrLeaseNotFound) {
		t.Errorf("put with a revoked lease: %v", res.Err)
	}
}

// TestAlarmChain is the table of what each alarm stops.
func TestAlarmChain(t *testing.T) {
	txn := func(op *rpcpb.RequestOp) *requestpb.InternalRaftRequest {
		return &requestpb.InternalRaftRequest{Txn: &rpcpb.TxnRequest{Failure: []*rpcpb.RequestOp{op}}}
	}
	putOp := &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestPut{RequestPut: &rpcpb.PutRequest{Key: []byte("k")}}}
	delOp := &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestDeleteRange{RequestDeleteRange: &rpcpb.DeleteRangeRequest{Key: []byte("k")}}}
	tests := []struct {
		name             string
		req              *requestpb.InternalRaftRequest
		noSpace, corrupt bool // refused while the alarm is active
	}{
		{"put", put("k", "v", 0), true, true},
		{"grant", grantReq(9, 60), true, true},
		{"txn that puts in the other branch", txn(putOp), true, true},
		{"txn that deletes", txn(delOp), false, true},
		{"delete", &requestpb.InternalRaftRequest{DeleteRange: &rpcpb.DeleteRangeRequest{Key: []byte("k")}}, false, true},
		{"range", &requestpb.InternalRaftRequest{Range: &rpcpb.RangeRequest{Key: []byte("k")}}, false, true},
		{"compact", &requestpb.InternalRaftRequest{Compaction: &rpcpb.CompactionRequest{Revision: 2}}, false, true},
		{"revoke", revoke(7, 0), false, true},
		{"checkpoint", &requestpb.InternalRaftRequest{LeaseCheckpoint: &rpcpb.LeaseCheckpointRequest{}}, false, false},
		{"alarm", alarmReq(rpcpb.AlarmRequest_GET, 0, 0), false, false},
	}
	alarms := []struct {
		types []rpcpb.AlarmType
		err   error
	}{
		{nil, nil},
		{[]rpcpb.AlarmType{rpcpb.AlarmType_NOSPACE}, errs.ErrNoSpace},
		{[]rpcpb.AlarmType{rpcpb.AlarmType_CORRUPT}, errs.ErrCorrupt},
		{[]rpcpb.AlarmType{rpcpb.AlarmType_NOSPACE, rpcpb.AlarmType_CORRUPT}, errs.ErrCorrupt},
	}
	for _, tc := range tests {
		for _, a := range alarms {
			r := newReplica(t)
			r.do(grantReq(7, 60))
			r.do(put("k", "v", 7))
			for _, typ := range a.types {
				r.do(alarmReq(rpcpb.AlarmRequest_ACTIVATE, 1, typ))
			}
			var want error
			if errors.Is(a.err, errs.ErrNoSpace) && tc.noSpace || errors.Is(a.err, errs.ErrCorrupt) && tc.corrupt {
				want = a.err
			}
			if err := r.m.Commit(true); err != nil {
				t.Fatal(err)
			}
			r.crash() // the chain is built anew from the file
			if res := r.append(1, tc.req); !errors.Is(res.Err, want) || want == nil && res.Err != nil {
				t.Errorf("%s under %v: got %v, want %v", tc.name, a.types, res.Err, want)
			}
			for _, typ := range a.types {
				r.do(alarmReq(rpcpb.AlarmRequest_DEACTIVATE, 1, typ))
			}
			r.do(put("k", "v", 0))
		}
	}
}

// confEntry appends a configuration change to the log and applies it.
func (r *replica) confEntry(cc *raftpb.ConfChange) (raftpb.ConfChangeI, apply.ConfInfo) {
	r.t.Helper()
	data, err := proto.Marshal(cc)
	if err != nil {
		r.t.Fatal(err)
	}
	e := entryOf(r.t, uint64(len(r.log))+1, 1, nil)
	e.Type, e.Data = raftpb.EntryConfChange.Enum(), data
	r.log = append(r.log, e)
	r.out = append(r.out, apply.Result{})
	return r.m.ApplyConf(e)
}

func TestConfigurationChanges(t *testing.T) {
	r := newReplica(t)
	one := member.Member{ID: 1, PeerURLs: []string{"http://a:1"}}
	two := member.Member{ID: 2, PeerURLs: []string{"http://b:1"}, IsLearner: true}
	cc, info := r.confEntry(member.NewAdd(11, one, 0))
	if info.Err != nil || info.ID != 11 || info.Member.ID != 1 || cc.AsV2().GetChanges()[0].GetNodeId() != 1 {
		t.Fatalf("got %v, %+v", cc, info)
	}
	r.confEntry(member.NewAdd(12, two, 1))
	cc, info = r.confEntry(member.NewAdd(13, member.Member{ID: 3, PeerURLs: []string{"http://b:1"}}, 0))
	if !errors.Is(info.Err, errs.ErrPeerURLExist) || info.ID != 13 || info.Member != nil || cc.AsV2().GetChanges()[0].GetNodeId() != 0 {
		t.Fatalf("got %v, %+v", cc, info)
	}
	want := &raftpb.ConfState{Voters: []uint64{1}, Learners: []uint64{2}}
	if err := info.ConfState.Equivalent(want); err != nil {
		t.Error(err)
	}
	r.do(&requestpb.InternalRaftRequest{ClusterMemberAttrSet: &memberpb.ClusterMemberAttrSetRequest{
		Member_ID: 2, MemberAttributes: &memberpb.Attributes{Name: "n2", ClientUrls: []string{"http://b:2"}},
	}})
	r.do(&requestpb.InternalRaftRequest{ClusterVersionSet: &memberpb.ClusterVersionSetRequest{Ver: "3.7.0"}})
	r.do(&requestpb.InternalRaftRequest{DowngradeInfoSet: &memberpb.DowngradeInfoSetRequest{Enabled: true, Ver: "3.6.0"}})
	if err := r.m.Commit(true); err != nil {
		t.Fatal(err)
	}
	r.close()
	r.open()
	pos := r.m.Position()
	var stored raftpb.ConfState
	if err := json.Unmarshal(pos.ConfState, &stored); err != nil || pos.Index != 6 {
		t.Fatalf("position %+v: %v", pos, err)
	}
	if err := stored.Equivalent(want); err != nil {
		t.Error(err)
	}
	if got := r.m.Members.Get(2); got == nil || got.Name != "n2" || len(got.ClientURLs) != 1 || !got.IsLearner {
		t.Errorf("member 2 is %+v", got)
	}
	if r.m.Members.Version() != "3.7.0" || r.m.Members.Downgrade() != (member.Downgrade{Enabled: true, TargetVersion: "3.6.0"}) {
		t.Errorf("version %q, downgrade %+v", r.m.Members.Version(), r.m.Members.Downgrade())
	}
	// What the file has is passed over.
	if cc, info := r.m.ApplyConf(r.log[0]); info.Member != nil || cc.AsV2().GetChanges()[0].GetNodeId() != 0 {
		t.Errorf("applied again: %v, %+v", cc, info)
	}
}

func TestMalformedConfigurationChange(t *testing.T) {
	r := newReplica(t)
	r.confEntry(member.NewAdd(1, member.Member{ID: 1, PeerURLs: []string{"http://a:1"}}, 0))
	for _, typ := range []raftpb.EntryType{raftpb.EntryConfChange, raftpb.EntryConfChangeV2} {
		for _, data := range [][]byte{nil, []byte("\xff"), []byte("garbage")} {
			e := entryOf(t, r.m.Position().Index+1, 1, nil)
			e.Type, e.Data = typ.Enum(), data
			cc, info := r.m.ApplyConf(e)
			if !errors.Is(info.Err, member.ErrMalformedChange) || cc.AsV2().GetChanges()[0].GetNodeId() != 0 || len(info.Members) != 1 {
				t.Errorf("%s %q: %v, %+v", typ, data, cc, info)
			}
		}
	}
}

func TestRemovedMemberTakesItsSpaceAlarm(t *testing.T) {
	r := newReplica(t)
	for id := range member.ID(2) {
		r.confEntry(member.NewAdd(1, member.Member{ID: id + 1, PeerURLs: []string{"http://" + id.String() + ":1"}}, 0))
	}
	r.do(alarmReq(rpcpb.AlarmRequest_ACTIVATE, 2, rpcpb.AlarmType_NOSPACE))
	r.do(alarmReq(rpcpb.AlarmRequest_ACTIVATE, 2, rpcpb.AlarmType_CORRUPT))
	r.do(alarmReq(rpcpb.AlarmRequest_DEACTIVATE, 2, rpcpb.AlarmType_CORRUPT))
	if res := r.append(1, put("k", "v", 0)); !errors.Is(res.Err, errs.ErrNoSpace) {
		t.Fatalf("got %v", res.Err)
	}
	if _, info := r.confEntry(member.NewRemove(1, 2)); info.Err != nil || info.Member.ID != 2 {
		t.Fatalf("got %+v", info)
	}
	r.do(put("k", "v", 0))
}

func TestFound(t *testing.T) {
	r := newReplica(t)
	if err := r.m.Found(1, 1, []member.Member{{ID: 5, Name: "n", PeerURLs: []string{"http://a:1"}}}); err != nil {
		t.Fatal(err)
	}
	r.close()
	r.open()
	cs, err := apply.ConfStateOf(r.m.Position())
	if err != nil || r.m.Position().Index != 1 || len(cs.Voters) != 1 || cs.Voters[0] != 5 || r.m.Members.Get(5) == nil {
		t.Errorf("%+v, %v, %v", r.m.Position(), cs, err)
	}
	if _, res := r.m.Apply(entryOf(t, 2, 1, put("k", "v", 0)), always); res.Err != nil {
		t.Error(res.Err)
	}
}

func TestReadTxnEndsWithContext(t *testing.T) {
	r := newReplica(t)
	for i := range 2000 {
		r.do(put(string(rune('a'+i%26))+string(rune(i)), "v", 0))
	}
	r.m.Publish()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req := &rpcpb.TxnRequest{Success: []*rpcpb.RequestOp{{Request: &rpcpb.RequestOp_RequestRange{
		RequestRange: &rpcpb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}},
	}}}}
	if _, err := apply.ReadTxn(ctx, r.m.KV, req); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if resp, err := apply.ReadTxn(t.Context(), r.m.KV, req); err != nil || len(resp.Responses[0].GetResponseRange().Kvs) != 2000 {
		t.Errorf("got %v", err)
	}
}

func TestOpenReportsTheFile(t *testing.T) {
	r := newReplica(t)
	if _, err := apply.Open(filepath.Dir(r.path), apply.Options{}); err == nil {
		t.Error("a directory was opened")
	}
	_, err := apply.Open(r.path, apply.Options{})
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte(r.path)) {
		t.Errorf("a file in use: %v", err)
	}
}

// TestOutcomeDoesNotWaitForPublish compacts and reads within one batch: what readers are told yet
// must play no part.
func TestOutcomeDoesNotWaitForPublish(t *testing.T) {
	for _, publish := range []bool{false, true} {
		r := newReplica(t)
		for range 5 {
			r.do(put("k", "v", 0))
			if publish {
				r.m.Publish()
			}
		}
		read := func(rev int64) error {
			op := &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestRange{RequestRange: &rpcpb.RangeRequest{Key: []byte("k"), Revision: rev}}}
			put := &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestPut{RequestPut: &rpcpb.PutRequest{Key: []byte("x")}}}
			return r.append(1, &requestpb.InternalRaftRequest{Txn: &rpcpb.TxnRequest{Success: []*rpcpb.RequestOp{put, op}}}).Err
		}
		compact := func(rev int64) error {
			return r.append(1, &requestpb.InternalRaftRequest{Compaction: &rpcpb.CompactionRequest{Revision: rev}}).Err
		}
		if err := compact(4); err != nil {
			t.Fatal(err)
		}
		if publish {
			r.m.Publish()
		}
		for rev, want := range map[int64]error{3: errs.ErrCompacted, -1: errs.ErrCompacted, 99: errs.ErrFutureRev} {
			if err := read(rev); !errors.Is(err, want) {
				t.Errorf("published %t: reading at %d: %v, want %v", publish, rev, err, want)
			}
		}
		if err := read(6); err != nil {
			t.Errorf("published %t: reading at the newest revision: %v", publish, err)
		}
		if err := compact(4); !errors.Is(err, errs.ErrCompacted) {
			t.Errorf("published %t: compacting twice: %v", publish, err)
		}
	}
}
