package raftnode

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// checkMessage refuses what would make raft panic or corrupt its log, so that
// no bytes from the network can. Whether the sender may say so is raft's to decide.
func checkMessage(m *raftpb.Message, self uint64) error {
	if m.GetTo() != self {
		return fmt.Errorf("it is meant for member %x", m.GetTo())
	}
	if m.GetFrom() == 0 || m.GetFrom() == self {
		return fmt.Errorf("it claims to come from member %x", m.GetFrom())
	}
	switch m.GetType() {
	case raftpb.MsgApp:
		return checkAppend(m)
	case raftpb.MsgProp:
		return checkProposal(m)
	case raftpb.MsgReadIndex, raftpb.MsgReadIndexResp:
		if len(m.GetEntries()) != 1 {
			return fmt.Errorf("it has %d entries instead of one", len(m.GetEntries()))
		}
	case raftpb.MsgSnap:
		if m.GetSnapshot().GetMetadata().GetIndex() == 0 {
			return errors.New("its snapshot has no position")
		}
	case raftpb.MsgHeartbeatResp:
		if n := len(m.GetContext()); n != 0 && n != 8 {
			return fmt.Errorf("its context has %d bytes instead of 8", n)
		}
	}
	return nil
}

// checkAppend verifies that the entries continue each other from (Index, LogTerm)
// and none is of a later term than the leader's.
func checkAppend(m *raftpb.Message) error {
	index, term := m.GetIndex(), m.GetLogTerm()
	for _, e := range m.GetEntries() {
		if e.GetIndex() != index+1 || e.GetTerm() < term {
			return fmt.Errorf("entry (index %d, term %d) follows entry (index %d, term %d)", e.GetIndex(), e.GetTerm(), index, term)
		}
		index, term = e.GetIndex(), e.GetTerm()
	}
	if term > m.GetTerm() {
		return fmt.Errorf("an entry of term %d comes from a leader of term %d", term, m.GetTerm())
	}
	return nil
}

func checkProposal(m *raftpb.Message) error {
	if len(m.GetEntries()) == 0 {
		return errors.New("it proposes nothing")
	}
	for _, e := range m.GetEntries() {
		var cc proto.Message
		switch e.GetType() {
		case raftpb.EntryNormal:
			continue
		case raftpb.EntryConfChange:
			cc = &raftpb.ConfChange{}
		case raftpb.EntryConfChangeV2:
			cc = &raftpb.ConfChangeV2{}
		default:
			return fmt.Errorf("an entry has the unknown type %d", e.GetType())
		}
		if err := proto.Unmarshal(e.GetData(), cc); err != nil {
			return fmt.Errorf("a change of members is unreadable: %w", err)
		}
	}
	return nil
}
