package apply_test

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/requestpb"
	"github.com/coordd/coordd/api/rpcpb"
)

// pairs is the content of a store at one revision.
type pairs map[string]*kvpb.KeyValue

// model is the state machine as the API describes it, in the plainest form: every past state is
// kept whole, and everything is looked for by walking.
type model struct {
	rev, compacted int64
	now            pairs
	past           map[int64]pairs
	leases         map[int64]int64 // id → granted TTL
	remaining      map[int64]int64
	alarms         map[[2]int64]bool // member, type
	events         []modelEvent      // of the last request
	sub            int64
}

type modelEvent struct {
	main, sub int64
	key       string
	tombstone bool
	lease     int64
}

func newModel() *model {
	return &model{
		rev: 1, compacted: -1, now: pairs{}, past: map[int64]pairs{1: {}},
		leases: map[int64]int64{}, remaining: map[int64]int64{}, alarms: map[[2]int64]bool{},
	}
}

// apply does what an entry with this request, appended in this term, has to do.
func (m *model) apply(r *requestpb.InternalRaftRequest, term uint64) (proto.Message, error) {
	m.events, m.sub = nil, 0
	if err := m.alarmed(r); err != nil {
		return nil, err
	}
	before := m.rev
	resp, err := m.do(r, term)
	if m.rev != before {
		m.past[m.rev] = maps.Clone(m.now)
	}
	return resp, err
}

func (m *model) alarmed(r *requestpb.InternalRaftRequest) error {
	active := map[int64]bool{}
	for a := range m.alarms {
		active[a[1]] = true
	}
	takes := r.Put != nil || r.LeaseGrant != nil || r.Txn != nil && takesSpace(r.Txn)
	switch {
	case active[2] && (takes || r.Txn != nil || r.DeleteRange != nil || r.Range != nil || r.Compaction != nil || r.LeaseRevoke != nil):
		return errs.ErrCorrupt
	case active[1] && takes:
		return errs.ErrNoSpace
	}
	return nil
}

func takesSpace(r *rpcpb.TxnRequest) bool {
	return slices.ContainsFunc(slices.Concat(r.Success, r.Failure), func(op *rpcpb.RequestOp) bool {
		return op.GetRequestPut() != nil || op.GetRequestTxn() != nil && takesSpace(op.GetRequestTxn())
	})
}

func (m *model) do(r *requestpb.InternalRaftRequest, term uint64) (proto.Message, error) {
	fenced := r.GetHeader().GetLeaseTerm() != 0 && r.GetHeader().GetLeaseTerm() < term
	switch {
	case r.Put != nil:
		return m.one(&rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestPut{RequestPut: r.Put}})
	case r.DeleteRange != nil:
		return m.one(&rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestDeleteRange{RequestDeleteRange: r.DeleteRange}})
	case r.Range != nil:
		resp, err := m.read(r.Range)
		if err != nil {
			return nil, err
		}
		return resp, nil
	case r.Txn != nil:
		return m.txn(r.Txn)
	case r.Compaction != nil:
		return m.compact(r.Compaction.Revision)
	case r.LeaseGrant != nil:
		return m.grant(r.LeaseGrant)
	case r.LeaseRevoke != nil && fenced, r.LeaseCheckpoint != nil && fenced:
		return nil, errs.ErrLeaderChanged
	case r.LeaseRevoke != nil:
		return m.revoke(r.LeaseRevoke.ID)
	case r.LeaseCheckpoint != nil:
		for _, c := range r.LeaseCheckpoint.Checkpoints {
			if _, ok := m.leases[c.ID]; ok {
				m.remaining[c.ID] = c.Remaining_TTL
			}
		}
		return &rpcpb.LeaseCheckpointResponse{Header: m.header()}, nil
	case r.Alarm != nil:
		return m.alarm(r.Alarm), nil
	default:
		return nil, errs.ErrAuthNotEnabled
	}
}

func (m *model) header() *rpcpb.ResponseHeader { return &rpcpb.ResponseHeader{Revision: m.rev} }

// one runs a single put or deletion as a transaction of one operation.
func (m *model) one(op *rpcpb.RequestOp) (proto.Message, error) {
	resp, err := m.txn(&rpcpb.TxnRequest{Success: []*rpcpb.RequestOp{op}})
	if err != nil {
		return nil, err
	}
	inner := resp.(*rpcpb.TxnResponse).Responses[0]
	if p := inner.GetResponsePut(); p != nil {
		return p, nil
	}
	return inner.GetResponseDeleteRange(), nil
}

func (m *model) compact(rev int64) (proto.Message, error) {
	switch {
	case rev <= m.compacted:
		return nil, errs.ErrCompacted
	case rev > m.rev:
		return nil, errs.ErrFutureRev
	}
	m.compacted = rev
	return &rpcpb.CompactionResponse{Header: m.header()}, nil
}

func (m *model) grant(r *rpcpb.LeaseGrantRequest) (proto.Message, error) {
	if r.TTL > 9_000_000_000 {
		return nil, errs.ErrLeaseTTLTooLarge
	}
	if _, exists := m.leases[r.ID]; exists {
		return nil, errs.ErrLeaseExist
	}
	m.leases[r.ID] = r.TTL
	return &rpcpb.LeaseGrantResponse{Header: m.header(), ID: r.ID, TTL: r.TTL}, nil
}

func (m *model) revoke(id int64) (proto.Message, error) {
	if _, ok := m.leases[id]; !ok {
		return nil, errs.ErrLeaseNotFound
	}
	delete(m.leases, id)
	delete(m.remaining, id)
	for _, k := range m.keysOf(id) {
		m.remove(k)
	}
	m.bump()
	return &rpcpb.LeaseRevokeResponse{Header: m.header()}, nil
}

func (m *model) keysOf(id int64) []string {
	var keys []string
	for k, kv := range m.now {
		if kv.Lease == id {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

func (m *model) alarm(r *rpcpb.AlarmRequest) proto.Message {
	resp := &rpcpb.AlarmResponse{Header: m.header()}
	a := [2]int64{int64(r.MemberID), int64(r.Alarm)}
	list := [][2]int64{a}
	switch {
	case r.Action == rpcpb.AlarmRequest_GET:
		list = slices.DeleteFunc(slices.Collect(maps.Keys(m.alarms)), func(x [2]int64) bool { return r.Alarm != 0 && x[1] != a[1] })
	case r.Action == rpcpb.AlarmRequest_ACTIVATE && r.Alarm != 0:
		m.alarms[a] = true
	case r.Action == rpcpb.AlarmRequest_DEACTIVATE && m.alarms[a]:
		delete(m.alarms, a)
	default:
		list = nil
	}
	slices.SortFunc(list, func(x, y [2]int64) int { return cmp.Or(cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1])) })
	for _, x := range list {
		resp.Alarms = append(resp.Alarms, &rpcpb.AlarmMember{MemberID: uint64(x[0]), Alarm: rpcpb.AlarmType(x[1])})
	}
	return resp
}

// inside returns the keys of an interval in order.
func inside(p pairs, key, end []byte) []string {
	var keys []string
	for k := range p {
		in := k >= string(key) && k < string(end)
		if len(end) == 0 {
			in = k == string(key)
		} else if string(end) == "\x00" {
			in = k >= string(key)
		}
		if in {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// read answers a Range; within a transaction, from its unfinished state.
func (m *model) read(r *rpcpb.RangeRequest) (*rpcpb.RangeResponse, error) {
	state, at := m.now, m.rev
	if m.sub > 0 {
		at++
	}
	if r.Revision > 0 {
		if r.Revision > m.rev {
			return nil, errs.ErrFutureRev
		}
		if r.Revision < m.compacted {
			return nil, errs.ErrCompacted
		}
		state = m.past[r.Revision]
	}
	keys := inside(state, r.Key, r.RangeEnd)
	resp := &rpcpb.RangeResponse{Header: &rpcpb.ResponseHeader{Revision: at}, Count: int64(len(keys))}
	if r.CountOnly {
		return resp, nil
	}
	filter := r.MinModRevision != 0 || r.MaxModRevision != 0 || r.MinCreateRevision != 0 || r.MaxCreateRevision != 0
	natural := r.SortOrder == rpcpb.RangeRequest_NONE || r.SortOrder == rpcpb.RangeRequest_ASCEND && r.SortTarget == rpcpb.RangeRequest_KEY
	if natural && !filter && r.Limit > 0 && int64(len(keys)) > r.Limit+1 {
		keys = keys[:r.Limit+1]
	}
	for _, k := range keys {
		if kv := state[k]; !filter || accepted(kv, r) {
			resp.Kvs = append(resp.Kvs, proto.Clone(kv).(*kvpb.KeyValue))
		}
	}
	slices.SortStableFunc(resp.Kvs, func(a, b *kvpb.KeyValue) int {
		c := byTarget(a, b, r.SortTarget)
		if r.SortOrder == rpcpb.RangeRequest_DESCEND {
			c = -c
		}
		return c
	})
	if r.Limit > 0 && int64(len(resp.Kvs)) > r.Limit {
		resp.Kvs, resp.More = resp.Kvs[:r.Limit], true
	}
	if r.KeysOnly {
		for _, kv := range resp.Kvs {
			kv.Value = nil
		}
	}
	return resp, nil
}

func accepted(kv *kvpb.KeyValue, r *rpcpb.RangeRequest) bool {
	return (r.MinModRevision == 0 || kv.ModRevision >= r.MinModRevision) &&
		(r.MaxModRevision == 0 || kv.ModRevision <= r.MaxModRevision) &&
		(r.MinCreateRevision == 0 || kv.CreateRevision >= r.MinCreateRevision) &&
		(r.MaxCreateRevision == 0 || kv.CreateRevision <= r.MaxCreateRevision)
}

func byTarget(a, b *kvpb.KeyValue, target rpcpb.RangeRequest_SortTarget) int {
	switch target {
	case rpcpb.RangeRequest_VERSION:
		return cmp.Compare(a.Version, b.Version)
	case rpcpb.RangeRequest_CREATE:
		return cmp.Compare(a.CreateRevision, b.CreateRevision)
	case rpcpb.RangeRequest_MOD:
		return cmp.Compare(a.ModRevision, b.ModRevision)
	case rpcpb.RangeRequest_VALUE:
		return bytes.Compare(a.Value, b.Value)
	default:
		return bytes.Compare(a.Key, b.Key)
	}
}
