package namespace

import (
	"bytes"

	"google.golang.org/protobuf/proto"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

// space is a namespace: the prefix, and the first key after it.
type space struct {
	prefix, end []byte
}

func newSpace(prefix string) space {
	return space{[]byte(prefix), client.PrefixEnd([]byte(prefix))}
}

// inner gives a key or a range as it is for the server. An empty key stays empty, for the server to refuse.
func (s space) inner(key, end []byte) (k, e []byte) {
	if len(key) == 0 && len(end) == 0 {
		return key, end
	}
	k = append(bytes.Clone(s.prefix), key...)
	switch {
	case len(end) == 0:
		return k, nil
	case len(end) == 1 && end[0] == 0: // from the key on
		return k, s.end
	}
	return k, append(bytes.Clone(s.prefix), end...)
}

// request gives the message for the server, which is a copy if anything in it differs.
func (s space) request(m any) any {
	switch m := m.(type) {
	case *rpcpb.RangeRequest:
		c := proto.CloneOf(m)
		c.Key, c.RangeEnd = s.inner(c.Key, c.RangeEnd)
		return c
	case *rpcpb.PutRequest:
		c := proto.CloneOf(m)
		c.Key, _ = s.inner(c.Key, nil)
		return c
	case *rpcpb.DeleteRangeRequest:
		c := proto.CloneOf(m)
		c.Key, c.RangeEnd = s.inner(c.Key, c.RangeEnd)
		return c
	case *rpcpb.TxnRequest:
		c := proto.CloneOf(m)
		s.txn(c)
		return c
	case *rpcpb.WatchRequest:
		if m.GetCreateRequest() == nil {
			return m
		}
		c := proto.CloneOf(m)
		create := c.GetCreateRequest()
		create.Key, create.RangeEnd = s.inner(create.Key, create.RangeEnd)
		return c
	}
	return m
}

// txn rewrites a transaction in place.
func (s space) txn(t *rpcpb.TxnRequest) {
	for _, c := range t.GetCompare() {
		c.Key, c.RangeEnd = s.inner(c.Key, c.RangeEnd)
	}
	for _, branch := range [][]*rpcpb.RequestOp{t.GetSuccess(), t.GetFailure()} {
		for _, op := range branch {
			switch r := op.GetRequest().(type) {
			case *rpcpb.RequestOp_RequestRange:
				r.RequestRange.Key, r.RequestRange.RangeEnd = s.inner(r.RequestRange.Key, r.RequestRange.RangeEnd)
			case *rpcpb.RequestOp_RequestPut:
				r.RequestPut.Key, _ = s.inner(r.RequestPut.Key, nil)
			case *rpcpb.RequestOp_RequestDeleteRange:
				r.RequestDeleteRange.Key, r.RequestDeleteRange.RangeEnd = s.inner(r.RequestDeleteRange.Key, r.RequestDeleteRange.RangeEnd)
			case *rpcpb.RequestOp_RequestTxn:
				s.txn(r.RequestTxn)
			}
		}
	}
}

// reply rewrites a message from the server in place; it was decoded for this caller alone.
func (s space) reply(m any) {
	switch m := m.(type) {
	case *rpcpb.RangeResponse:
		s.outer(m.GetKvs()...)
	case *rpcpb.RangeStreamResponse:
		s.outer(m.GetRangeResponse().GetKvs()...)
	case *rpcpb.PutResponse:
		s.outer(m.GetPrevKv())
	case *rpcpb.DeleteRangeResponse:
		s.outer(m.GetPrevKvs()...)
	case *rpcpb.TxnResponse:
		for _, r := range m.GetResponses() {
			s.reply(r.GetResponseRange())
			s.reply(r.GetResponsePut())
			s.reply(r.GetResponseDeleteRange())
			if t := r.GetResponseTxn(); t != nil {
				s.reply(t)
			}
		}
	case *rpcpb.WatchResponse:
		for _, e := range m.GetEvents() {
			s.outer(e.GetKv(), e.GetPrevKv())
		}
	case *rpcpb.LeaseTimeToLiveResponse:
		var inside [][]byte
		for _, k := range m.GetKeys() {
			if k, ok := bytes.CutPrefix(k, s.prefix); ok {
				inside = append(inside, k)
			}
		}
		m.Keys = inside
	}
}

// outer takes the prefix off pairs.
func (s space) outer(kvs ...*kvpb.KeyValue) {
	for _, kv := range kvs {
		if kv != nil {
			kv.Key = bytes.TrimPrefix(kv.Key, s.prefix)
		}
	}
}
