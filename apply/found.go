package apply

import (
	"encoding/json"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/coordd/coordd/member"
	"github.com/coordd/coordd/mvcc/backend"
)

// Found makes an empty machine the beginning of a new cluster: the given members, at the position
// (index, term) of the invented snapshot that all founding members start from. It returns when that is
// durable. The caller gives the same to every founding member, so that they agree from the start.
func (m *Machine) Found(index, term uint64, members []member.Member) error {
	m.Members.Replace(members)
	m.pos = backend.Position{Index: index, Term: term, ConfState: m.confState()}
	m.KV.Publish()
	return m.Commit(true)
}

// ConfStateOf decodes the configuration of a position.
func ConfStateOf(pos backend.Position) (*raftpb.ConfState, error) {
	cs := new(raftpb.ConfState)
	if len(pos.ConfState) == 0 {
		return cs, nil
	}
	if err := json.Unmarshal(pos.ConfState, cs); err != nil {
		return nil, fmt.Errorf("apply: the configuration stored with entry %d: %w", pos.Index, err)
	}
	return cs, nil
}
