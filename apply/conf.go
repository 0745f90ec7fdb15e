package apply

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/member"
)

// ConfInfo is the outcome of a configuration change.
type ConfInfo struct {
	// ID is the id of the request, 0 if the change carries none.
	ID uint64
	// Type is what was asked for.
	Type raftpb.ConfChangeType
	// Member is the member it was about, as it is now, or as it was when it was removed; nil on
	// error.
	Member *member.Member
	// Members are all members after the change.
	Members []*member.Member
	// ConfState is the configuration after the change; raft must arrive at an equivalent one.
	ConfState *raftpb.ConfState
	// Err is why nothing was changed, one of those of member.Set.ApplyChange.
	Err error
}

// ApplyConf carries out the next entry if it is a configuration change. It returns what raft has
// to be given: the change itself, or, when the membership refuses it, one that changes nothing. The
// position, the configuration and the member buckets go into the same commit.
//
// As with [Machine.Apply], entries at or below the position are passed over; raft then gets nothing to change.
func (m *Machine) ApplyConf(e *raftpb.Entry) (raftpb.ConfChangeI, ConfInfo) {
	if !m.advance(e) {
		return member.NewNothing(), ConfInfo{}
	}
	cc, info, err := decodeConf(e)
	if err == nil {
		info.Member, err = m.Members.ApplyChange(cc)
	}
	if err != nil {
		cc, info.Err = member.NewNothing(), err
	} else {
		m.settle(info)
	}
	info.Members = m.Members.Members()
	info.ConfState = m.Members.ConfState()
	m.pos.ConfState = m.confState()
	return cc, info
}

// settle clears up after an accepted change: the space alarm of a removed member would never be
// cleared, since only that member knows its own space.
func (m *Machine) settle(info ConfInfo) {
	if info.Type != raftpb.ConfChangeRemoveNode {
		return
	}
	if m.Alarms.clear(Alarm{Member: uint64(info.Member.ID), Type: rpcpb.AlarmType_NOSPACE}) {
		m.chain = assemble(m.exec, m.Alarms)
	}
}

// decodeConf reads a configuration change of either form.
func decodeConf(e *raftpb.Entry) (raftpb.ConfChangeI, ConfInfo, error) {
	switch e.GetType() {
	case raftpb.EntryConfChange:
		cc := new(raftpb.ConfChange)
		if err := proto.Unmarshal(e.GetData(), cc); err != nil {
			return nil, ConfInfo{}, fmt.Errorf("%w: entry %d: %s", member.ErrMalformedChange, e.GetIndex(), err)
		}
		return cc, ConfInfo{ID: cc.GetId(), Type: cc.GetType()}, nil
	case raftpb.EntryConfChangeV2:
		cc := new(raftpb.ConfChangeV2)
		if err := proto.Unmarshal(e.GetData(), cc); err != nil {
			return nil, ConfInfo{}, fmt.Errorf("%w: entry %d: %s", member.ErrMalformedChange, e.GetIndex(), err)
		}
		info := ConfInfo{}
		if len(cc.GetChanges()) == 1 {
			info.Type = cc.GetChanges()[0].GetType()
		}
		return cc, info, nil
	default:
		panic(fmt.Sprintf("apply: entry %d of type %s given to ApplyConf", e.GetIndex(), e.GetType()))
	}
}
