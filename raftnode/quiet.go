package raftnode

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// said is the newest acknowledgement that this member gave to a leader.
type said struct {
	to, term, index uint64
	again           *raftpb.Message // one that says nothing more, kept for the tick; nil if there is none
}

// keep reports whether m, a message that waited for the disk, may wait for the tick: it acknowledges nothing new, being the
// answer to a message that told of a higher commit index and no more. For the leader that would be a frame to read and a turn to take with
// each commit and follower. It is not dropped, since the leader may have missed the one that came first. An answer to anything else is sent
// at once: a leader that probes waits for it.
func (s *said) keep(m *raftpb.Message, advanced bool) bool {
	if m.GetType() != raftpb.MsgAppResp || m.GetReject() {
		return false
	}
	if same := m.GetTo() == s.to && m.GetTerm() == s.term; same && m.GetIndex() <= s.index {
		if advanced {
			s.again = m
		}
		return advanced
	}
	*s = said{to: m.GetTo(), term: m.GetTerm(), index: m.GetIndex()}
	return false
}

// sendKept sends what keep has kept, with the tick.
func (n *Node) sendKept() {
	if m := n.loop.said.again; m != nil {
		n.loop.said.again = nil
		n.send([]*raftpb.Message{m})
	}
}

// advances tells whether rd has a higher commit index.
func (n *Node) advances(rd raft.Ready) bool {
	return !raft.IsEmptyHardState(rd.HardState) && rd.GetCommit() > n.loop.commit
}

// waitsForApply tells whether something can go on only when the apply loop has said how far it is. Otherwise that is looked at with the
// next turn, whatever brings that, so that a commit costs no turn more.
func (n *Node) waitsForApply() bool {
	return n.loop.handed < n.commit.Load() || n.loop.blocked || n.loop.sole || n.loop.joint || n.inbox.presses()
}
