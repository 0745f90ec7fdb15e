package leasing

import (
	"fmt"
	"strings"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

// open is the end of a range that has none.
const open = "\x00"

// span is one key, with an empty end, or a range up to but not including its end.
type span struct{ from, end string }

// has tells whether a range has a key.
func (s span) has(key string) bool { return key >= s.from && (s.end == open || key < s.end) }

// leasingSpan gives the leasing keys of a range.
func (kv *KV) leasingSpan(s span) (from string, keys client.KeysOption) {
	if s.end == open {
		return kv.leasing(s.from), client.WithRange(kv.end)
	}
	return kv.leasing(s.from), client.WithRange(kv.leasing(s.end))
}

// without gives a span without the leasing keys in it: nothing, itself, or what is before and after them.
func (kv *KV) without(s span) []span {
	switch {
	case s.end == "":
		if strings.HasPrefix(s.from, kv.prefix) {
			return nil
		}
		return []span{s}
	case kv.end != open && s.from >= kv.end, s.end != open && s.end <= kv.prefix:
		return []span{s}
	}
	var parts []span
	if s.from < kv.prefix {
		parts = append(parts, span{s.from, kv.prefix})
	}
	if kv.end != open && (s.end == open || s.end > kv.end) {
		parts = append(parts, span{kv.end, s.end})
	}
	return parts
}

// written gives what a transaction may write to, in either branch. ErrReserved: leasing keys are among it.
func (kv *KV) written(t *rpcpb.TxnRequest) ([]span, error) {
	var spans []span
	for _, branch := range [][]*rpcpb.RequestOp{t.Success, t.Failure} {
		for _, op := range branch {
			var s span
			switch r := op.GetRequest().(type) {
			case *rpcpb.RequestOp_RequestPut:
				s = span{from: string(r.RequestPut.Key)}
			case *rpcpb.RequestOp_RequestDeleteRange:
				s = span{string(r.RequestDeleteRange.Key), string(r.RequestDeleteRange.RangeEnd)}
			case *rpcpb.RequestOp_RequestTxn:
				inner, err := kv.written(r.RequestTxn)
				if err != nil {
					return nil, err
				}
				spans = append(spans, inner...)
				continue
			default:
				continue
			}
			if parts := kv.without(s); len(parts) != 1 || parts[0] != s {
				return nil, fmt.Errorf("%w: %q", ErrReserved, s.from)
			}
			spans = append(spans, s)
		}
	}
	return spans, nil
}
