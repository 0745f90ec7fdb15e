package apply_test

import (
	"bytes"
	"cmp"

	"google.golang.org/protobuf/proto"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
)

// path is a transaction of the model with its branches chosen.
type path struct {
	ok  bool
	ops []any // *rpcpb.RequestOp or *path
}

func (m *model) choose(r *rpcpb.TxnRequest) *path {
	p := &path{ok: true}
	for _, c := range r.Compare {
		p.ok = p.ok && m.holds(c)
	}
	list := r.Failure
	if p.ok {
		list = r.Success
	}
	for _, op := range list {
		if nested := op.GetRequestTxn(); nested != nil {
			p.ops = append(p.ops, m.choose(nested))
		} else {
			p.ops = append(p.ops, op)
		}
	}
	return p
}

func (m *model) holds(c *rpcpb.Compare) bool {
	keys := inside(m.now, c.Key, c.RangeEnd)
	if len(keys) == 0 {
		return c.Target != rpcpb.Compare_VALUE && satisfies(c, &kvpb.KeyValue{})
	}
	for _, k := range keys {
		if !satisfies(c, m.now[k]) {
			return false
		}
	}
	return true
}

func satisfies(c *rpcpb.Compare, kv *kvpb.KeyValue) bool {
	order := 0
	switch c.Target {
	case rpcpb.Compare_VERSION:
		order = cmp.Compare(kv.Version, c.GetVersion())
	case rpcpb.Compare_CREATE:
		order = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
	case rpcpb.Compare_MOD:
		order = cmp.Compare(kv.ModRevision, c.GetModRevision())
	case rpcpb.Compare_LEASE:
		order = cmp.Compare(kv.Lease, c.GetLease())
	case rpcpb.Compare_VALUE:
		order = bytes.Compare(kv.Value, c.GetValue())
	}
	want, known := map[rpcpb.Compare_CompareResult][]int{
		rpcpb.Compare_EQUAL: {0}, rpcpb.Compare_NOT_EQUAL: {-1, 1}, rpcpb.Compare_GREATER: {1}, rpcpb.Compare_LESS: {-1},
	}[c.Result]
	for _, w := range want {
		if w == order {
			return true
		}
	}
	return !known
}

// possible checks what may make a transaction fail, all against the state before it.
func (m *model) possible(p *path) error {
	for _, op := range p.ops {
		var err error
		switch op := op.(type) {
		case *path:
			err = m.possible(op)
		case *rpcpb.RequestOp:
			err = m.possibleOp(op)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *model) possibleOp(op *rpcpb.RequestOp) error {
	if r := op.GetRequestRange(); r != nil {
		if r.Revision > m.rev {
			return errs.ErrFutureRev
		}
		if r.Revision != 0 && r.Revision < m.compacted || r.Revision < 0 {
			return errs.ErrCompacted
		}
	}
	if r := op.GetRequestPut(); r != nil {
		if _, ok := m.leases[r.Lease]; !ok && r.Lease != 0 {
			return errs.ErrLeaseNotFound
		}
		if m.now[string(r.Key)] == nil && (r.IgnoreLease || r.IgnoreValue) {
			return errs.ErrKeyNotFound
		}
	}
	return nil
}

func (m *model) txn(r *rpcpb.TxnRequest) (proto.Message, error) {
	p := m.choose(r)
	if err := m.possible(p); err != nil {
		return nil, err
	}
	resp := m.run(p)
	m.bump()
	resp.Header = m.header()
	return resp, nil
}

// bump ends a transaction: it took a revision if it changed something.
func (m *model) bump() {
	if m.sub > 0 {
		m.rev++
		m.sub = 0
	}
}

func (m *model) run(p *path) *rpcpb.TxnResponse {
	resp := &rpcpb.TxnResponse{Succeeded: p.ok}
	for _, op := range p.ops {
		out := new(rpcpb.ResponseOp)
		switch op := op.(type) {
		case *path:
			sub := m.run(op)
			sub.Header = &rpcpb.ResponseHeader{}
			out.Response = &rpcpb.ResponseOp_ResponseTxn{ResponseTxn: sub}
		case *rpcpb.RequestOp:
			m.runOp(op, out)
		}
		resp.Responses = append(resp.Responses, out)
	}
	return resp
}

func (m *model) runOp(op *rpcpb.RequestOp, out *rpcpb.ResponseOp) {
	header := func() *rpcpb.ResponseHeader {
		if m.sub > 0 {
			return &rpcpb.ResponseHeader{Revision: m.rev + 1}
		}
		return &rpcpb.ResponseHeader{Revision: m.rev}
	}
	switch {
	case op.GetRequestRange() != nil:
		resp, err := m.read(op.GetRequestRange())
		if err != nil {
			panic(err) // was checked
		}
		out.Response = &rpcpb.ResponseOp_ResponseRange{ResponseRange: resp}
	case op.GetRequestPut() != nil:
		prev := m.store(op.GetRequestPut())
		resp := &rpcpb.PutResponse{Header: header()}
		if op.GetRequestPut().PrevKv {
			resp.PrevKv = prev
		}
		out.Response = &rpcpb.ResponseOp_ResponsePut{ResponsePut: resp}
	case op.GetRequestDeleteRange() != nil:
		r := op.GetRequestDeleteRange()
		resp := new(rpcpb.DeleteRangeResponse)
		for _, k := range inside(m.now, r.Key, r.RangeEnd) {
			if r.PrevKv {
				resp.PrevKvs = append(resp.PrevKvs, m.now[k])
			}
			m.remove(k)
			resp.Deleted++
		}
		resp.Header = header()
		out.Response = &rpcpb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: resp}
	}
}

// store puts a pair and returns the one before.
func (m *model) store(r *rpcpb.PutRequest) *kvpb.KeyValue {
	main := m.rev + 1
	prev := m.now[string(r.Key)]
	kv := &kvpb.KeyValue{Key: r.Key, Value: r.Value, Lease: r.Lease, CreateRevision: main, ModRevision: main, Version: 1}
	if prev != nil {
		kv.CreateRevision, kv.Version = prev.CreateRevision, prev.Version+1
		if r.IgnoreValue {
			kv.Value = prev.Value
		}
		if r.IgnoreLease {
			kv.Lease = prev.Lease
		}
	}
	m.now[string(r.Key)] = kv
	m.events = append(m.events, modelEvent{main: main, sub: m.sub, key: string(r.Key), lease: kv.Lease})
	m.sub++
	return prev
}

func (m *model) remove(key string) {
	delete(m.now, key)
	m.events = append(m.events, modelEvent{main: m.rev + 1, sub: m.sub, key: key, tombstone: true})
	m.sub++
}
