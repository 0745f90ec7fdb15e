package client_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

// Options end up in the requests they are meant for.
func TestRequests(t *testing.T) {
	for _, tt := range []struct {
		op   client.Op
		want proto.Message
	}{
		{client.OpGet("k"), &rpcpb.RangeRequest{Key: []byte("k")}},
		{client.OpGet("k", client.WithPrefix(), client.WithRev(3), client.WithLimit(4), client.WithKeysOnly(), client.WithSerializable()),
			&rpcpb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l"), Revision: 3, Limit: 4, KeysOnly: true, Serializable: true}},
		{client.OpGet("", client.WithPrefix(), client.WithCountOnly()),
			&rpcpb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, CountOnly: true}},
		{client.OpGet("k", client.WithFromKey(), client.WithSort(client.SortByValue, client.SortDescend)),
			&rpcpb.RangeRequest{Key: []byte("k"), RangeEnd: []byte{0}, SortTarget: rpcpb.RangeRequest_VALUE, SortOrder: rpcpb.RangeRequest_DESCEND}},
		{client.OpGet("k", client.WithSort(client.SortByKey, client.SortAscend)), &rpcpb.RangeRequest{Key: []byte("k")}},
		{client.OpGet("k", client.WithModRevBetween(1, 2), client.WithCreateRevBetween(3, 4)),
			&rpcpb.RangeRequest{Key: []byte("k"), MinModRevision: 1, MaxModRevision: 2, MinCreateRevision: 3, MaxCreateRevision: 4}},
		{client.OpPut("k", "v", client.WithLease(9), client.WithPrevKV()), &rpcpb.PutRequest{Key: []byte("k"), Value: []byte("v"), Lease: 9, PrevKv: true}},
		{client.OpPut("k", "", client.WithIgnoreValue(), client.WithIgnoreLease()), &rpcpb.PutRequest{Key: []byte("k"), IgnoreValue: true, IgnoreLease: true}},
		{client.OpDelete("k", client.WithRange("m"), client.WithPrevKV()), &rpcpb.DeleteRangeRequest{Key: []byte("k"), RangeEnd: []byte("m"), PrevKv: true}},
	} {
		var got proto.Message
		switch r := tt.op.Request(); {
		case r.GetRequestRange() != nil:
			got = r.GetRequestRange()
		case r.GetRequestPut() != nil:
			got = r.GetRequestPut()
		default:
			got = r.GetRequestDeleteRange()
		}
		if !proto.Equal(got, tt.want) {
			t.Errorf("got %v, want %v", got, tt.want)
		}
	}
}

func TestTxnRequest(t *testing.T) {
	n := newNetwork(t, "a")
	var got *rpcpb.TxnRequest
	n.at("a").onTxn = func(_ context.Context, r *rpcpb.TxnRequest) (*rpcpb.TxnResponse, error) {
		got = r
		return &rpcpb.TxnResponse{Succeeded: true}, nil
	}
	resp, err := n.client([]string{"a"}).Txn(deadline(t, 5*time.Second)).
		If(client.KeyMissing("a"), client.Value("b").Less("x"), client.LeaseOf("c", client.WithPrefix()).NotEqual(4)).
		If(client.ModRevision("d").Greater(5), client.Version("e").Equal(6)).
		Then(client.OpPut("a", "1")).
		Else(client.OpGet("a"), client.OpTxn([]client.Cmp{client.KeyExists("f")}, nil, []client.Op{client.OpDelete("f")})).
		Commit()
	if err != nil || !resp.Succeeded {
		t.Fatal(resp, err)
	}
	want := &rpcpb.TxnRequest{
		Compare: []*rpcpb.Compare{
			{Key: []byte("a"), Target: rpcpb.Compare_CREATE, TargetUnion: &rpcpb.Compare_CreateRevision{}},
			{Key: []byte("b"), Target: rpcpb.Compare_VALUE, Result: rpcpb.Compare_LESS, TargetUnion: &rpcpb.Compare_Value{Value: []byte("x")}},
			{Key: []byte("c"), RangeEnd: []byte("d"), Target: rpcpb.Compare_LEASE, Result: rpcpb.Compare_NOT_EQUAL, TargetUnion: &rpcpb.Compare_Lease{Lease: 4}},
			{Key: []byte("d"), Target: rpcpb.Compare_MOD, Result: rpcpb.Compare_GREATER, TargetUnion: &rpcpb.Compare_ModRevision{ModRevision: 5}},
			{Key: []byte("e"), Target: rpcpb.Compare_VERSION, TargetUnion: &rpcpb.Compare_Version{Version: 6}},
		},
		Success: []*rpcpb.RequestOp{{Request: &rpcpb.RequestOp_RequestPut{RequestPut: &rpcpb.PutRequest{Key: []byte("a"), Value: []byte("1")}}}},
		Failure: []*rpcpb.RequestOp{
			{Request: &rpcpb.RequestOp_RequestRange{RequestRange: &rpcpb.RangeRequest{Key: []byte("a")}}},
			{Request: &rpcpb.RequestOp_RequestTxn{RequestTxn: &rpcpb.TxnRequest{
				Compare: []*rpcpb.Compare{{Key: []byte("f"), Target: rpcpb.Compare_CREATE, Result: rpcpb.Compare_GREATER, TargetUnion: &rpcpb.Compare_CreateRevision{}}},
				Failure: []*rpcpb.RequestOp{{Request: &rpcpb.RequestOp_RequestDeleteRange{RequestDeleteRange: &rpcpb.DeleteRangeRequest{Key: []byte("f")}}}},
			}}},
		},
	}
	if !proto.Equal(got, want) {
		t.Fatalf("got  %v\nwant %v", got, want)
	}
}
