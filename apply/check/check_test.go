package check_test

import (
	"errors"
	"testing"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/apply/check"
)

const limit = 128

func put(key string) *rpcpb.RequestOp {
	return &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestPut{RequestPut: &rpcpb.PutRequest{Key: []byte(key)}}}
}

func del(key, end string) *rpcpb.RequestOp {
	return &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &rpcpb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)},
	}}
}

func get(key string, serializable bool) *rpcpb.RequestOp {
	return &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestRange{
		RequestRange: &rpcpb.RangeRequest{Key: []byte(key), Serializable: serializable},
	}}
}

func ops(list ...*rpcpb.RequestOp) []*rpcpb.RequestOp { return list }

func txn(success, failure []*rpcpb.RequestOp) *rpcpb.RequestOp {
	return &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestTxn{
		RequestTxn: &rpcpb.TxnRequest{Success: success, Failure: failure},
	}}
}

func TestDoubleWrites(t *testing.T) {
	tests := []struct {
		name string
		list []*rpcpb.RequestOp
		bad  bool
	}{
		{"two keys", ops(put("a"), put("b")), false},
		{"same key", ops(put("a"), put("a")), true},
		{"delete the key put", ops(del("a", ""), put("a")), true},
		{"put at the start of a deletion", ops(del("a", "c"), put("a")), true},
		{"put inside a deletion", ops(put("b"), del("a", "c")), true},
		{"put at the end of a deletion", ops(put("c"), del("a", "c")), false},
		{"key between single keys", ops(del("a", ""), put("a\x00")), false},
		{"prefix", ops(del("p/", "p0"), put("p/x")), true},
		{"from key", ops(del("b", "\x00"), put("zz")), true},
		{"before from key", ops(del("b", "\x00"), put("a")), false},
		{"inverted interval holds nothing", ops(del("c", "a"), put("c"), put("b")), false},
		{"deletions overlap", ops(del("a", "c"), del("b", "d"), del("a", "")), false},
		{"reads never conflict", ops(get("a", false), put("a"), get("a", false)), false},
		{"branches exclude each other", ops(txn(ops(put("a")), ops(put("a")))), false},
		{"put and deletion in exclusive branches", ops(txn(ops(put("a")), ops(del("a", "c")))), false},
		{"nested put against own level", ops(put("a"), txn(ops(put("a")), nil)), true},
		{"nested put in the failure branch against own level", ops(txn(nil, ops(put("a"))), put("a")), true},
		{"siblings put the same key", ops(txn(ops(put("a")), nil), txn(nil, ops(put("a")))), true},
		{"deletion above, put nested", ops(del("a", "c"), txn(ops(put("b")), nil)), true},
		{"put above, deletion nested", ops(put("b"), txn(ops(del("a", "c")), nil)), true},
		{"sibling deletion first", ops(txn(ops(del("a", "c")), nil), txn(ops(put("b")), nil)), true},
		{"sibling deletion last", ops(txn(ops(put("b")), nil), txn(ops(del("a", "c")), nil)), true},
		{"conflict deep inside only", ops(txn(ops(txn(ops(put("a"), put("a")), nil)), nil)), true},
		{"far deletion of the same op hides a near one of another", ops(
			txn(ops(put("m")), ops(del("a", "z"))), del("b", "n")), true},
		{"far deletion of the same op, near one too short", ops(
			txn(ops(put("m")), ops(del("a", "z"))), del("b", "c")), false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			for _, r := range []*rpcpb.TxnRequest{{Success: tc.list}, {Failure: tc.list}} {
				err := check.Txn(r, limit)
				if got := errors.Is(err, errs.ErrDuplicateKey); got != tc.bad || (err != nil) != tc.bad {
					t.Errorf("got %v, duplicate expected: %t", err, tc.bad)
				}
			}
		})
	}
}

func TestShape(t *testing.T) {
	many := make([]*rpcpb.RequestOp, limit+1)
	for i := range many {
		many[i] = get("k", false)
	}
	nestedTooLong := &rpcpb.TxnRequest{Success: append(ops(txn(many[:limit-1], nil)), many[:1]...)}
	nestedFits := &rpcpb.TxnRequest{Success: append(ops(txn(many[:limit-2], nil)), many[:1]...)}
	tests := []struct {
		name string
		r    *rpcpb.TxnRequest
		want error
	}{
		{"empty", &rpcpb.TxnRequest{}, nil},
		{"at the limit", &rpcpb.TxnRequest{Failure: many[:limit]}, nil},
		{"over the limit", &rpcpb.TxnRequest{Failure: many}, errs.ErrTooManyOps},
		{"too many compares", &rpcpb.TxnRequest{Compare: make([]*rpcpb.Compare, limit+1)}, errs.ErrTooManyOps},
		{"nested over what is left", nestedTooLong, errs.ErrTooManyOps},
		{"nested at what is left", nestedFits, nil},
		{"compare without key", &rpcpb.TxnRequest{Compare: []*rpcpb.Compare{{}}}, errs.ErrEmptyKey},
		{"operation that is none", &rpcpb.TxnRequest{Success: ops(&rpcpb.RequestOp{})}, errs.ErrKeyNotFound},
		{"nil operation", &rpcpb.TxnRequest{Success: ops(nil)}, errs.ErrKeyNotFound},
		{"put without key", &rpcpb.TxnRequest{Success: ops(put(""))}, errs.ErrEmptyKey},
		{"delete without key", &rpcpb.TxnRequest{Success: ops(del("", "z"))}, errs.ErrEmptyKey},
		{"nested read without key", &rpcpb.TxnRequest{Success: ops(txn(nil, ops(get("", false))))}, errs.ErrEmptyKey},
		{"form before double writes", &rpcpb.TxnRequest{Success: ops(put("a"), put("a")), Failure: ops(put(""))}, errs.ErrEmptyKey},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if err := check.Txn(tc.r, limit); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestSingleRequests(t *testing.T) {
	key := []byte("k")
	tests := []struct {
		name string
		got  error
		want error
	}{
		{"range", check.Range(&rpcpb.RangeRequest{Key: key, SortOrder: 2, SortTarget: 4}), nil},
		{"range without key", check.Range(&rpcpb.RangeRequest{SortOrder: 9}), errs.ErrEmptyKey},
		{"unknown order", check.Range(&rpcpb.RangeRequest{Key: key, SortOrder: 3}), errs.ErrInvalidSortOption},
		{"unknown target", check.Range(&rpcpb.RangeRequest{Key: key, SortTarget: 100}), errs.ErrInvalidSortOption},
		{"negative target", check.Range(&rpcpb.RangeRequest{Key: key, SortTarget: -1}), errs.ErrInvalidSortOption},
		{"put", check.Put(&rpcpb.PutRequest{Key: key, Value: key, Lease: 1}), nil},
		{"value given", check.Put(&rpcpb.PutRequest{Key: key, Value: key, IgnoreValue: true}), errs.ErrValueProvided},
		{"lease given", check.Put(&rpcpb.PutRequest{Key: key, Lease: -1, IgnoreLease: true}), errs.ErrLeaseProvided},
		{"ignoring both", check.Put(&rpcpb.PutRequest{Key: key, IgnoreLease: true, IgnoreValue: true}), nil},
		{"delete without key", check.DeleteRange(&rpcpb.DeleteRangeRequest{RangeEnd: key}), errs.ErrEmptyKey},
		{"nil put", check.Put(nil), errs.ErrEmptyKey},
	}
	for _, tc := range tests {
		if !errors.Is(tc.got, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.name, tc.got, tc.want)
		}
	}
}

func TestCost(t *testing.T) {
	big := &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestPut{
		RequestPut: &rpcpb.PutRequest{Key: []byte("k"), Value: make([]byte, 1000)},
	}}
	tests := []struct {
		name string
		r    *rpcpb.TxnRequest
		want int64
	}{
		{"free", &rpcpb.TxnRequest{Success: ops(get("a", false), del("a", "b"))}, 0},
		{"dearer branch", &rpcpb.TxnRequest{Success: ops(put("a"), put("bc")), Failure: ops(big)}, 256 + 1 + 1000},
		{"sum of a branch", &rpcpb.TxnRequest{Success: ops(put("a"), put("bc"))}, 257 + 258},
		{"nested counts its dearer branch", &rpcpb.TxnRequest{
			Success: ops(put("a"), txn(ops(put("bc")), ops(big)), txn(nil, ops(put("d")))),
		}, 257 + 1257 + 257},
	}
	for _, tc := range tests {
		if got := check.TxnCost(tc.r); got != tc.want {
			t.Errorf("%s: got %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestReadOnlyAndSerializable(t *testing.T) {
	tests := []struct {
		name                   string
		r                      *rpcpb.TxnRequest
		readOnly, serializable bool
	}{
		{"only compares", &rpcpb.TxnRequest{Compare: []*rpcpb.Compare{{Key: []byte("a")}}}, true, true},
		{"serializable reads", &rpcpb.TxnRequest{Success: ops(get("a", true)), Failure: ops(get("b", true))}, true, true},
		{"one linearizable read", &rpcpb.TxnRequest{Success: ops(get("a", true)), Failure: ops(get("b", false))}, true, false},
		{"a put in the other branch", &rpcpb.TxnRequest{Success: ops(get("a", true)), Failure: ops(put("b"))}, false, false},
		{"nested reads count as a write", &rpcpb.TxnRequest{Success: ops(txn(ops(get("a", true)), nil))}, false, false},
	}
	for _, tc := range tests {
		if got := check.ReadOnly(tc.r); got != tc.readOnly {
			t.Errorf("%s: read-only %t", tc.name, got)
		}
		if got := check.Serializable(tc.r); got != tc.serializable {
			t.Errorf("%s: serializable %t", tc.name, got)
		}
	}
}
