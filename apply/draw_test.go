package apply_test

import (
	"pgregory.net/rapid"

	"github.com/coordd/coordd/api/requestpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/apply/check"
)

// generators of requests. Few keys and leases, so that requests meet.
var (
	genKey = rapid.Custom(func(t *rapid.T) []byte {
		return []byte(rapid.SampledFrom([]string{"a", "b", "b\x00", "c", "ca", "d", "\xff", "\xff\xff"}).Draw(t, "key"))
	})
	genEnd = rapid.Custom(func(t *rapid.T) []byte {
		return []byte(rapid.SampledFrom([]string{"", "", "\x00", "a", "b", "c", "cb", "d", "\xff"}).Draw(t, "end"))
	})
	genLease = rapid.SampledFrom([]int64{0, 0, -5, 1, 2, 1 << 40})
	genValue = rapid.Custom(func(t *rapid.T) []byte {
		return []byte(rapid.SampledFrom([]string{"", "x", "y", "yy", "\xff"}).Draw(t, "value"))
	})
	genBool = rapid.Bool()
)

// drawRev draws a revision around the known ones.
func drawRev(t *rapid.T, m *model) int64 {
	return rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(-2, m.rev+2)).Draw(t, "rev")
}

func drawRange(t *rapid.T, m *model) *rpcpb.RangeRequest {
	r := &rpcpb.RangeRequest{Key: genKey.Draw(t, "key"), RangeEnd: genEnd.Draw(t, "end")}
	r.Revision = drawRev(t, m)
	r.Limit = rapid.Int64Range(-1, 5).Draw(t, "limit")
	r.KeysOnly, r.CountOnly = genBool.Draw(t, "keysOnly"), rapid.IntRange(0, 9).Draw(t, "countOnly") == 0
	r.SortOrder = rpcpb.RangeRequest_SortOrder(rapid.Int32Range(0, 2).Draw(t, "order"))
	r.SortTarget = rpcpb.RangeRequest_SortTarget(rapid.Int32Range(0, 4).Draw(t, "target"))
	if genBool.Draw(t, "filter") {
		rev := func(name string) int64 {
			return rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, m.rev+1)).Draw(t, name)
		}
		r.MinModRevision, r.MaxModRevision = rev("minMod"), rev("maxMod")
		r.MinCreateRevision, r.MaxCreateRevision = rev("minCreate"), rev("maxCreate")
	}
	return r
}

func drawPut(t *rapid.T) *rpcpb.PutRequest {
	r := &rpcpb.PutRequest{Key: genKey.Draw(t, "key"), PrevKv: genBool.Draw(t, "prev")}
	switch rapid.IntRange(0, 5).Draw(t, "keep") {
	case 0:
		r.IgnoreValue, r.Lease = true, genLease.Draw(t, "lease")
	case 1:
		r.IgnoreLease, r.Value = true, genValue.Draw(t, "value")
	default:
		r.Value, r.Lease = genValue.Draw(t, "value"), genLease.Draw(t, "lease")
	}
	return r
}

func drawDelete(t *rapid.T) *rpcpb.DeleteRangeRequest {
	return &rpcpb.DeleteRangeRequest{Key: genKey.Draw(t, "key"), RangeEnd: genEnd.Draw(t, "end"), PrevKv: genBool.Draw(t, "prev")}
}

func drawCompare(t *rapid.T, m *model) *rpcpb.Compare {
	c := &rpcpb.Compare{
		Key:    genKey.Draw(t, "key"),
		Result: rpcpb.Compare_CompareResult(rapid.Int32Range(0, 4).Draw(t, "result")), // 4 is unknown
		Target: rpcpb.Compare_CompareTarget(rapid.Int32Range(0, 5).Draw(t, "target")), // 5 is unknown
	}
	if rapid.IntRange(0, 3).Draw(t, "interval") == 0 {
		c.RangeEnd = genEnd.Draw(t, "end")
	}
	operand := int32(c.Target)
	if rapid.IntRange(0, 9).Draw(t, "mixed") == 0 {
		operand = rapid.Int32Range(0, 5).Draw(t, "operand")
	}
	small := rapid.Int64Range(0, 3)
	switch operand {
	case 0:
		c.TargetUnion = &rpcpb.Compare_Version{Version: small.Draw(t, "version")}
	case 1:
		c.TargetUnion = &rpcpb.Compare_CreateRevision{CreateRevision: rapid.Int64Range(0, m.rev).Draw(t, "create")}
	case 2:
		c.TargetUnion = &rpcpb.Compare_ModRevision{ModRevision: rapid.Int64Range(0, m.rev).Draw(t, "mod")}
	case 3:
		c.TargetUnion = &rpcpb.Compare_Value{Value: genValue.Draw(t, "value")}
	case 4:
		c.TargetUnion = &rpcpb.Compare_Lease{Lease: genLease.Draw(t, "lease")}
	}
	return c
}

func drawOps(t *rapid.T, m *model, depth int) []*rpcpb.RequestOp {
	kinds := []string{"put", "put", "delete", "range"}
	if depth > 0 {
		kinds = append(kinds, "txn")
	}
	var list []*rpcpb.RequestOp
	for range rapid.IntRange(0, 3).Draw(t, "length") {
		op := new(rpcpb.RequestOp)
		switch rapid.SampledFrom(kinds).Draw(t, "op") {
		case "put":
			op.Request = &rpcpb.RequestOp_RequestPut{RequestPut: drawPut(t)}
		case "delete":
			op.Request = &rpcpb.RequestOp_RequestDeleteRange{RequestDeleteRange: drawDelete(t)}
		case "range":
			op.Request = &rpcpb.RequestOp_RequestRange{RequestRange: drawRange(t, m)}
		case "txn":
			op.Request = &rpcpb.RequestOp_RequestTxn{RequestTxn: drawTxn(t, m, depth-1)}
		}
		list = append(list, op)
	}
	return list
}

func drawTxn(t *rapid.T, m *model, depth int) *rpcpb.TxnRequest {
	r := new(rpcpb.TxnRequest)
	for range rapid.IntRange(0, 2).Draw(t, "compares") {
		r.Compare = append(r.Compare, drawCompare(t, m))
	}
	r.Success, r.Failure = drawOps(t, m, depth), drawOps(t, m, depth)
	return r
}

// drawRequest draws a request that a server would propose, for an entry of this term.
func drawRequest(t *rapid.T, m *model, term uint64) *requestpb.InternalRaftRequest {
	r := &requestpb.InternalRaftRequest{Header: &requestpb.RequestHeader{}}
	switch rapid.SampledFrom([]string{
		"put", "put", "put", "delete", "txn", "txn", "txn", "range", "compact", "grant", "grant", "revoke", "checkpoint", "alarm", "auth",
	}).Draw(t, "request") {
	case "put":
		r.Put = drawPut(t)
	case "delete":
		r.DeleteRange = drawDelete(t)
	case "txn":
		r.Txn = drawTxn(t, m, 2)
		if check.Txn(r.Txn, 128) != nil {
			r.Txn = &rpcpb.TxnRequest{Compare: r.Txn.Compare}
		}
	case "range":
		r.Range = drawRange(t, m)
	case "compact":
		r.Compaction = &rpcpb.CompactionRequest{Revision: drawRev(t, m)}
	case "grant":
		r.LeaseGrant = &rpcpb.LeaseGrantRequest{ID: rapid.SampledFrom([]int64{-5, 1, 2, 1 << 40}).Draw(t, "id"), TTL: rapid.Int64Range(2, 90).Draw(t, "ttl")}
	case "revoke":
		r.LeaseRevoke = &rpcpb.LeaseRevokeRequest{ID: genLease.Draw(t, "id")}
		r.Header.LeaseTerm = rapid.Uint64Range(0, term).Draw(t, "leaseTerm")
	case "checkpoint":
		r.LeaseCheckpoint = &rpcpb.LeaseCheckpointRequest{Checkpoints: []*rpcpb.LeaseCheckpoint{
			{ID: genLease.Draw(t, "id"), Remaining_TTL: 1}, {ID: genLease.Draw(t, "id"), Remaining_TTL: 0},
		}}
		r.Header.LeaseTerm = rapid.Uint64Range(0, term).Draw(t, "leaseTerm")
	case "alarm":
		r.Alarm = drawAlarm(t, m)
	case "auth":
		r.AuthUserList = &rpcpb.AuthUserListRequest{}
	}
	return r
}

// drawAlarm clears an alarm more often than it raises one, or little else would happen.
func drawAlarm(t *rapid.T, m *model) *rpcpb.AlarmRequest {
	for a := range m.alarms {
		if len(m.alarms) == 1 {
			return &rpcpb.AlarmRequest{Action: rpcpb.AlarmRequest_DEACTIVATE, MemberID: uint64(a[0]), Alarm: rpcpb.AlarmType(a[1])}
		}
	}
	return &rpcpb.AlarmRequest{
		Action:   rpcpb.AlarmRequest_AlarmAction(rapid.Int32Range(0, 3).Draw(t, "action")),
		MemberID: rapid.Uint64Range(1, 2).Draw(t, "member"),
		Alarm:    rpcpb.AlarmType(rapid.Int32Range(0, 2).Draw(t, "alarm")),
	}
}
