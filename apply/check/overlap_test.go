package check_test

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/apply/check"
)

// touches says by the definition, one operation against one, whether two operations of a list conflict.
func touches(a, b *rpcpb.RequestOp) bool {
	if r := a.GetRequestTxn(); r != nil {
		return slices.ContainsFunc(slices.Concat(r.Success, r.Failure), func(x *rpcpb.RequestOp) bool { return touches(x, b) })
	}
	if b.GetRequestTxn() != nil {
		return touches(b, a)
	}
	if a.GetRequestPut() == nil {
		a, b = b, a
	}
	p := a.GetRequestPut()
	if p == nil {
		return false
	}
	if q := b.GetRequestPut(); q != nil {
		return bytes.Equal(p.Key, q.Key)
	}
	d := b.GetRequestDeleteRange()
	switch {
	case d == nil:
		return false
	case len(d.RangeEnd) == 0:
		return bytes.Equal(p.Key, d.Key)
	case string(d.RangeEnd) == "\x00":
		return bytes.Compare(p.Key, d.Key) >= 0
	default:
		return bytes.Compare(p.Key, d.Key) >= 0 && bytes.Compare(p.Key, d.RangeEnd) < 0
	}
}

// doubled applies the definition to a whole list.
func doubled(list []*rpcpb.RequestOp) bool {
	for i, a := range list {
		if r := a.GetRequestTxn(); r != nil && (doubled(r.Success) || doubled(r.Failure)) {
			return true
		}
		for _, b := range list[:i] {
			if touches(a, b) {
				return true
			}
		}
	}
	return false
}

func drawOps(t *rapid.T, depth int) []*rpcpb.RequestOp {
	key := rapid.SampledFrom([]string{"a", "b", "bb", "c", "d", "e", "f", "g", "h"})
	end := rapid.SampledFrom([]string{"", "\x00", "a", "b", "bb", "c", "d", "e", "f", "g", "h", "i"})
	kinds := []string{"put", "put", "put", "del", "get"}
	if depth > 0 {
		kinds = append(kinds, "txn", "txn")
	}
	var list []*rpcpb.RequestOp
	for range rapid.IntRange(0, 4).Draw(t, "length") {
		switch rapid.SampledFrom(kinds).Draw(t, "kind") {
		case "put":
			list = append(list, put(key.Draw(t, "key")))
		case "del":
			list = append(list, del(key.Draw(t, "key"), end.Draw(t, "end")))
		case "get":
			list = append(list, get(key.Draw(t, "key"), false))
		case "txn":
			list = append(list, txn(drawOps(t, depth-1), drawOps(t, depth-1)))
		}
	}
	return list
}

func TestDoubleWritesAgainstDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &rpcpb.TxnRequest{Success: drawOps(t, 3), Failure: drawOps(t, 2)}
		want := doubled(r.Success) || doubled(r.Failure)
		err := check.Txn(r, limit)
		if got := errors.Is(err, errs.ErrDuplicateKey); got != want || (err != nil) != want {
			t.Fatalf("got %v, duplicate by definition: %t, for %v", err, want, r)
		}
	})
}

// TestManyNestedWrites would take minutes if every pair of operations were compared.
func TestManyNestedWrites(t *testing.T) {
	const perTxn = 100
	var list []*rpcpb.RequestOp
	for i := range 100 {
		var inner []*rpcpb.RequestOp
		for j := range perTxn {
			n := strconv.Itoa(1_000_000 + i*perTxn + j)
			inner = append(inner, put("p"+n), del("d"+n, ""))
		}
		half := len(inner) / 2
		list = append(list, txn(nil, ops(txn(inner[:half], nil), txn(inner[half:], nil))))
	}
	if err := check.Txn(&rpcpb.TxnRequest{Success: list}, 1000); err != nil {
		t.Fatal(err)
	}
	list = append(list, put("p1000042"))
	if err := check.Txn(&rpcpb.TxnRequest{Success: list}, 1000); !errors.Is(err, errs.ErrDuplicateKey) {
		t.Fatalf("got %v", err)
	}
}

func FuzzTxn(f *testing.F) {
	for _, r := range []*rpcpb.TxnRequest{
		{Success: ops(put("a"), del("b", "\x00"), txn(ops(put("c")), ops(get("d", true))))},
		{Compare: []*rpcpb.Compare{{Key: []byte("a"), Target: 9}}, Failure: ops(&rpcpb.RequestOp{})},
	} {
		b, err := r.MarshalVT()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := new(rpcpb.TxnRequest)
		if r.UnmarshalVT(data) != nil {
			return
		}
		err := check.Txn(r, 16)
		if cost := check.TxnCost(r); cost < 0 || err == nil && cost == 0 && !check.ReadOnly(r) && hasPut(r) {
			t.Fatalf("cost %d of %v", cost, r)
		}
		if err == nil && (doubled(r.Success) || doubled(r.Failure)) {
			t.Fatalf("accepted a transaction that writes a key twice: %v", r)
		}
		if errors.Is(err, errs.ErrDuplicateKey) && !doubled(r.Success) && !doubled(r.Failure) {
			t.Fatalf("refused a transaction that writes no key twice: %v", r)
		}
	})
}

func hasPut(r *rpcpb.TxnRequest) bool {
	return slices.ContainsFunc(slices.Concat(r.Success, r.Failure), func(op *rpcpb.RequestOp) bool {
		return op.GetRequestPut() != nil || op.GetRequestTxn() != nil && hasPut(op.GetRequestTxn())
	})
}
