package apply

import (
	"encoding/json"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coordd/coordd/api/requestpb"
	"github.com/coordd/coordd/lease"
	"github.com/coordd/coordd/member"
	"github.com/coordd/coordd/mvcc"
	"github.com/coordd/coordd/mvcc/backend"
)

// Options are the options of the parts.
type Options struct {
	Backend backend.Options
	// Store are the options of the store. OnLive is set by [Open].
	Store mvcc.Options
}

// Machine is the replicated state at a position of the log. Its exported parts may be read by any
// goroutine; its methods belong to the apply loop.
type Machine struct {
	Backend *backend.Backend
	KV      *mvcc.Store
	Leases  *lease.Table
	Members *member.Set
	Alarms  *Alarms

	exec   *executor
	chain  Applier
	pos    backend.Position // last applied
	events []mvcc.Event     // since the last Publish
	broken error            // see Err

	request requestpb.InternalRaftRequest // of the entry being applied; it is large, so there is one for all
}

// Open opens, or creates, the state in the file path and returns it at its durable position, from
// which the log is to be applied. At boot path is the member's own file; when a snapshot
// has come from the leader it is the received one. Errors name the file and what is wrong with it.
func Open(path string, o Options) (*Machine, error) {
	b, err := backend.Open(path, o.Backend)
	if err != nil {
		return nil, err
	}
	m, err := load(b, o.Store)
	if err != nil {
		_ = b.Close() // the first error is the one to report
		return nil, fmt.Errorf("apply: open %s: %w", path, err)
	}
	return m, nil
}

func load(b *backend.Backend, o mvcc.Options) (*Machine, error) {
	m := &Machine{Backend: b, pos: b.Position()}
	var err error
	if m.Alarms, err = openAlarms(b); err != nil {
		return nil, err
	}
	if m.Members, err = member.Open(b); err != nil {
		return nil, err
	}
	if m.Leases, err = lease.Open(b); err != nil {
		return nil, err
	}
	o.OnLive = func(key []byte, id int64) { m.Leases.Attach(lease.ID(id), key) }
	if m.KV, err = mvcc.Open(b, o); err != nil {
		return nil, err
	}
	m.exec = &executor{
		kv: m.KV, leases: m.Leases, members: m.Members, alarms: m.Alarms,
		rev: m.KV.Revision(), compacted: m.KV.CompactedRevision(),
	}
	m.chain = assemble(m.exec, m.Alarms)
	return m, nil
}

// Position returns the position of the last entry applied. Its ConfState is the configuration at
// that point, nil if no configuration change has ever been applied.
func (m *Machine) Position() backend.Position { return m.pos }

// Apply carries out the next normal entry. Entries at or below the position are passed over, with
// id 0 and an empty Result; a gap is a broken invariant and panics. An entry without data, which
// each leader begins its term with, only moves the position.
//
// id is the request's id. wanted says whether somebody on this member waits for it; nil means
// nobody does. The outcome is readable by others after [Machine.Publish] only, so do not wake
// the waiter before.
func (m *Machine) Apply(e *raftpb.Entry, wanted func(id uint64) bool) (id uint64, res Result) {
	if e.GetType() != raftpb.EntryNormal {
		panic(fmt.Sprintf("apply: entry %d of type %s given to Apply", e.GetIndex(), e.GetType()))
	}
	if !m.advance(e) || len(e.GetData()) == 0 {
		return 0, Result{}
	}
	defer m.contain()
	req := &m.request
	req.Reset()
	if err := req.UnmarshalVTUnsafe(e.GetData()); err != nil {
		return 0, failed(fmt.Errorf("%w: entry %d: %s", ErrUnknownRequest, e.GetIndex(), err))
	}
	id = req.GetHeader().GetID()
	if id == 0 {
		id = req.GetID()
	}
	res = m.chain.Apply(&Call{
		Index: e.GetIndex(), Term: e.GetTerm(), Request: req,
		Wanted: wanted != nil && wanted(id),
	})
	res.Request = req
	m.events = append(m.events, res.Events...)
	if req.GetAlarm() != nil {
		m.chain = assemble(m.exec, m.Alarms)
	}
	return id, res
}

// compactionTag is how a compaction begins in an encoded request: the field number of InternalRaftRequest.compaction.
const compactionTag = 7

// Compacts reports whether e holds a compaction. What was applied before must be published, and its events given to
// the watchers, before that is applied: the events' previous pairs may be what it takes away.
func Compacts(e *raftpb.Entry) bool {
	if e.GetType() != raftpb.EntryNormal {
		return false
	}
	for data := e.GetData(); len(data) > 0; {
		number, _, n := protowire.ConsumeField(data)
		if n < 0 {
			return false
		}
		if number == compactionTag {
			return true
		}
		data = data[n:]
	}
	return false
}

// advance moves the position to e, and reports false if e has been applied already.
func (m *Machine) advance(e *raftpb.Entry) bool {
	if e.GetIndex() <= m.pos.Index {
		return false
	}
	if e.GetIndex() != m.pos.Index+1 {
		panic(fmt.Sprintf("apply: entry %d follows entry %d", e.GetIndex(), m.pos.Index))
	}
	m.pos.Index, m.pos.Term = e.GetIndex(), e.GetTerm()
	return true
}

// Publish ends a batch of entries: readers see all that has been applied. It returns the revision they
// see and the events of the batch in order, to be given to the watch hub; the caller owns the list.
func (m *Machine) Publish() (rev int64, events []mvcc.Event) {
	m.KV.Publish()
	events, m.events = m.events, nil
	return m.KV.Revision(), events
}

// CommitIfDue hands what has been applied, with the position, to the committer of the backend, if
// enough has gathered or waited long enough.
func (m *Machine) CommitIfDue() error {
	if m.broken != nil {
		return m.broken
	}
	return m.Backend.CommitIfDue(m.pos)
}

// Commit hands what has been applied, with the position, to the committer of the backend, and if
// wait is set returns after it is durable.
func (m *Machine) Commit(wait bool) error {
	if m.broken != nil {
		return m.broken
	}
	return m.Backend.Commit(m.pos, wait)
}

// CompactStep removes at most maxRows old rows of a compaction under way and reports whether
// there is more to do. The apply loop calls it between batches.
func (m *Machine) CompactStep(maxRows int) (more bool) { return m.KV.CompactStep(maxRows) }

// Close closes the file. What has not been committed is in the log. Readers of the parts must be gone.
// It may be called twice.
func (m *Machine) Close() error { return m.Backend.Close() }

// confState encodes the present configuration for the position.
func (m *Machine) confState() []byte {
	b, err := json.Marshal(m.Members.ConfState())
	if err != nil {
		panic(fmt.Sprintf("apply: encoding the configuration: %v", err)) // numbers cannot fail
	}
	return b
}
