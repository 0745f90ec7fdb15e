package apply

import (
	"bytes"
	"cmp"
	"errors"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/mvcc"
	"github.com/coordd/coordd/mvcc/query"
)

// errMismatch stops the reading of an interval at the first key that does not satisfy.
var errMismatch = errors.New("apply: compare does not hold")

// compareAll reports whether all compares hold; no compares hold.
func compareAll(src query.Source, compares []*rpcpb.Compare) (bool, error) {
	for _, c := range compares {
		holds, err := compare(src, c)
		if err != nil || !holds {
			return false, err
		}
	}
	return true, nil
}

// compare evaluates one compare: every key of its interval must satisfy it. An interval without
// keys counts as one missing key, which is all zeros, except that a value it does not have
// satisfies nothing.
func compare(src query.Source, c *rpcpb.Compare) (bool, error) {
	var kv kvpb.KeyValue
	found := false
	_, err := src.Range(c.GetKey(), c.GetRangeEnd(), mvcc.RangeOptions{}, func(row []byte) error {
		found = true
		kv = kvpb.KeyValue{}
		if err := kv.UnmarshalVTUnsafe(row); err != nil {
			return err
		}
		if !satisfies(c, &kv) {
			return errMismatch
		}
		return nil
	})
	switch {
	case errors.Is(err, errMismatch):
		return false, nil
	case err != nil:
		return false, err
	case found:
		return true, nil
	default:
		return c.GetTarget() != rpcpb.Compare_VALUE && satisfies(c, &kvpb.KeyValue{}), nil
	}
}

// satisfies compares one pair. An operand that is unset or of another kind than the target is zero or
// empty; targets that are unknown are equal, operators that are unknown hold.
func satisfies(c *rpcpb.Compare, kv *kvpb.KeyValue) bool {
	var order int
	switch c.GetTarget() {
	case rpcpb.Compare_VERSION:
		order = cmp.Compare(kv.Version, c.GetVersion())
	case rpcpb.Compare_CREATE:
		order = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
	case rpcpb.Compare_MOD:
		order = cmp.Compare(kv.ModRevision, c.GetModRevision())
	case rpcpb.Compare_VALUE:
		order = bytes.Compare(kv.Value, c.GetValue())
	case rpcpb.Compare_LEASE:
		order = cmp.Compare(kv.Lease, c.GetLease())
	}
	switch c.GetResult() {
	case rpcpb.Compare_EQUAL:
		return order == 0
	case rpcpb.Compare_NOT_EQUAL:
		return order != 0
	case rpcpb.Compare_GREATER:
		return order > 0
	case rpcpb.Compare_LESS:
		return order < 0
	default:
		return true
	}
}
