package api_test

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/coordd/coordd/api/electionpb"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/lockpb"
	"github.com/coordd/coordd/api/memberpb"
	"github.com/coordd/coordd/api/requestpb"
	"github.com/coordd/coordd/api/rpcpb"
)

// TestGolden pins encodings worked out by hand, one for each thing that can be got wrong.
func TestGolden(t *testing.T) {
	tests := []struct {
		name string
		msg  vtMessage
		hex  string
	}{
		{"scalars", &rpcpb.PutRequest{Key: []byte("k"), Value: []byte("vv"), Lease: 300, PrevKv: true, IgnoreValue: true, IgnoreLease: true},
			"0a016b 12027676 18ac02 2001 2801 3001"},
		{"negative numbers take ten bytes", &kvpb.KeyValue{Key: []byte("k"), Lease: -1},
			"0a016b 30ffffffffffffffffff01"},
		{"field 64 beside a oneof", &rpcpb.Compare{Result: rpcpb.Compare_NOT_EQUAL, Target: rpcpb.Compare_LEASE, Key: []byte("a"), TargetUnion: &rpcpb.Compare_Lease{Lease: 5}, RangeEnd: []byte("b")},
			"0803 1004 1a0161 4005 82040162"},
		{"zero in a oneof is sent", &rpcpb.Compare{TargetUnion: &rpcpb.Compare_Version{}},
			"2000"},
		{"enums in a list are packed", &rpcpb.WatchCreateRequest{Key: []byte("a"), Filters: []rpcpb.WatchCreateRequest_FilterType{rpcpb.WatchCreateRequest_NODELETE, rpcpb.WatchCreateRequest_NOPUT}, WatchId: 3},
			"0a0161 2a020100 3803"},
		{"events have number 11", &rpcpb.WatchResponse{WatchId: 1, Fragment: true, Events: []*kvpb.Event{{Type: kvpb.Event_DELETE, Kv: &kvpb.KeyValue{Key: []byte("k"), ModRevision: 9}}}},
			"1001 3801 5a09 0801 1205 0a016b 1809"},
		{"an empty message in a oneof", &rpcpb.WatchRequest{RequestUnion: &rpcpb.WatchRequest_ProgressRequest{ProgressRequest: &rpcpb.WatchProgressRequest{}}},
			"1a00"},
		{"nested transaction", &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestTxn{RequestTxn: &rpcpb.TxnRequest{Failure: []*rpcpb.RequestOp{{Request: &rpcpb.RequestOp_RequestRange{RequestRange: &rpcpb.RangeRequest{Key: []byte("k")}}}}}}},
			"2207 1a05 0a03 0a016b"},
		{"strings in a list", &rpcpb.MemberUpdateRequest{ID: 1 << 63, PeerURLs: []string{"a", ""}},
			"0880808080808080808001 120161 1200"},
		{"bytes in a list", &rpcpb.LeaseTimeToLiveResponse{ID: 1, TTL: -1, GrantedTTL: 2, Keys: [][]byte{[]byte("x"), {}}},
			"1001 18ffffffffffffffffff01 2002 2a0178 2a00"},
		{"uint32", &rpcpb.HashKVResponse{Hash: 0xffffffff, CompactRevision: 1, HashRevision: 2},
			"10ffffffff0f 1801 2002"},
		{"empty message", &rpcpb.StatusRequest{}, ""},
		{"envelope", &requestpb.InternalRaftRequest{Header: &requestpb.RequestHeader{ID: 1, LeaseTerm: 2}, LeaseRevoke: &rpcpb.LeaseRevokeRequest{ID: 7}, ClusterMemberAttrSet: &memberpb.ClusterMemberAttrSetRequest{Member_ID: 3}},
			"4a020807 a206060801 80e20902 aa51020803"},
		{"addition to a lock", &lockpb.LockRequest{Name: []byte("n"), Try: true, Ttl: 5},
			"0a016e a00601 c00605"},
		{"leader key", &electionpb.LeaderKey{Name: []byte("n"), Key: []byte("k"), Rev: 1, Lease: 2},
			"0a016e 12016b 1801 2002"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want, err := hex.DecodeString(strings.ReplaceAll(tt.hex, " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			got, err := tt.msg.MarshalVT()
			if err != nil {
				t.Fatal(err)
			}
			// The order of fields is not part of the wire format.
			if !bytes.Equal(inOrder(t, got), inOrder(t, want)) {
				t.Errorf("encoded as %x, want %x", got, want)
			}
			back := tt.msg.ProtoReflect().New().Interface().(vtMessage)
			if err := back.UnmarshalVT(want); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(back, tt.msg) {
				t.Errorf("decoded as %v, want %v", back, tt.msg)
			}
		})
	}
}

// inOrder gives the message with its fields in the order of their numbers; elements of one field keep
// their order.
func inOrder(t *testing.T, msg []byte) []byte {
	t.Helper()
	type field struct {
		num protowire.Number
		raw []byte
	}
	var fields []field
	for len(msg) > 0 {
		num, _, n := protowire.ConsumeField(msg)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		at := len(fields)
		for at > 0 && fields[at-1].num > num {
			at--
		}
		fields = append(fields[:at], append([]field{{num, msg[:n]}}, fields[at:]...)...)
		msg = msg[n:]
	}
	var out []byte
	for _, f := range fields {
		out = append(out, f.raw...)
	}
	return out
}

// TestAllFieldsOnTheWire builds, for every field of the table of the v3 API, the bytes of a message
// that has just this field, by the table alone, and checks that it is decoded into the field of that
// name and encoded to the same bytes. Each member of a oneof is covered in this way.
func TestAllFieldsOnTheWire(t *testing.T) {
	for _, line := range append(readLines(t, "testdata/messages.txt"), additions...) {
		parts := strings.Fields(line)
		if len(parts) != 5 || parts[0] == "enum" {
			continue
		}
		mt, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(parts[0]))
		if err != nil {
			t.Fatal(err)
		}
		fd := mt.Descriptor().Fields().ByName(protoreflect.Name(parts[2]))
		if fd == nil {
			t.Errorf("%s: no such field", line)
			continue
		}
		want := fieldBytes(t, parts[1], parts[3], parts[4])
		msg := mt.New().Interface().(vtMessage)
		if err := msg.UnmarshalVT(want); err != nil {
			t.Errorf("%s: decode %x: %v", line, want, err)
			continue
		}
		if !msg.ProtoReflect().Has(fd) || len(msg.ProtoReflect().GetUnknown()) > 0 {
			t.Errorf("%s: %x is decoded as %v", line, want, msg)
		}
		if got, err := msg.MarshalVT(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: encoded as %x (%v), want %x", line, got, err, want)
		}
	}
}

// fieldBytes encodes one field with a value of its type.
func fieldBytes(t *testing.T, number, typ, label string) []byte {
	t.Helper()
	var num protowire.Number
	for _, c := range number {
		num = num*10 + protowire.Number(c-'0')
	}
	_, enumErr := protoregistry.GlobalTypes.FindEnumByName(protoreflect.FullName(typ))
	isEnum := enumErr == nil
	switch {
	case typ == "bytes" || typ == "string":
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), []byte("abc"))
	case typ == "bool":
		return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), 1)
	case typ == "int64" || typ == "uint64" || typ == "uint32":
		return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), 0x7fffffff)
	case isEnum && label == "repeated":
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), []byte{1, 0})
	case isEnum:
		return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), 1)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), nil)
}
