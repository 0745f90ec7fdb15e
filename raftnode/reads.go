package raftnode

import (
	"encoding/binary"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

const (
	// maxReads bounds the unanswered requests that are remembered.
	maxReads = 4096
	// maxQuestions bounds the MsgReadIndex whose answer is still believed.
	maxQuestions = 64
)

// reads knows the unanswered ReadIndex requests. It belongs to the drive loop.
type reads struct {
	waiting   []waitingRead // in order of arrival, so of question
	questions []question    // asked and unanswered, oldest first
	asked     uint64        // number of the last question
	ticks     int           // since the last question
	repeat    bool          // the last question may be lost: the leader changed
}

// waitingRead is served by the answer to question number need or a later one.
type waitingRead struct{ id, need uint64 }

// question is one MsgReadIndex. Its context is both numbers: id, the newest
// request's, is unique across restarts, and so makes the pair unique.
type question struct{ number, id uint64 }

// askReads adds requests and asks the leader if there is a reason to.
func (n *Node) askReads(ids []uint64, tick bool) {
	r := &n.loop.reads
	for _, id := range ids {
		if len(r.waiting) >= maxReads {
			r.waiting = append(r.waiting[:0], r.waiting[1:]...)
		}
		r.waiting = append(r.waiting, waitingRead{id: id, need: r.asked + 1})
	}
	if tick {
		r.ticks++
	}
	retry := max(1, n.cfg.ElectionTicks/2)
	due := len(ids) > 0 || r.repeat || r.ticks >= retry
	if len(r.waiting) == 0 || !due || n.role.Load().leader == 0 {
		return
	}
	n.rn.ReadIndex(r.ask())
}

// ask numbers a question and returns its context.
func (r *reads) ask() []byte {
	r.asked++
	r.ticks, r.repeat = 0, false
	q := question{number: r.asked, id: r.waiting[len(r.waiting)-1].id}
	if len(r.questions) >= maxQuestions {
		r.questions = append(r.questions[:0], r.questions[1:]...)
	}
	r.questions = append(r.questions, q)
	ctx := binary.BigEndian.AppendUint64(make([]byte, 0, 16), q.number)
	return binary.BigEndian.AppendUint64(ctx, q.id)
}

// answer serves every request that was made before the answered question was
// asked: its index was the commit index after that.
func (r *reads) answer(rs raft.ReadState, onRead func(id, index uint64)) {
	if len(rs.RequestCtx) != 16 {
		return
	}
	q := question{binary.BigEndian.Uint64(rs.RequestCtx), binary.BigEndian.Uint64(rs.RequestCtx[8:])}
	at := -1
	for i, known := range r.questions {
		if known == q {
			at = i
			break
		}
	}
	if at < 0 {
		return // answered already, or asked by this member before it restarted
	}
	r.questions = append(r.questions[:0], r.questions[at+1:]...)
	served := 0
	for _, w := range r.waiting {
		if w.need > q.number {
			break
		}
		onRead(w.id, rs.Index)
		served++
	}
	r.waiting = append(r.waiting[:0], r.waiting[served:]...)
}

// stamp writes this member's term into its own question; raft does not use that
// field of it. It must be exact: the package comment says why.
func (n *Node) stamp(m *raftpb.Message) {
	if m.GetFrom() == n.cfg.ID { // a question that is only passed on keeps its asker's
		term := n.role.Load().term
		m.LogTerm = &term
	}
}

// answerRead answers another member's question without asking anybody, if this
// member leads, has committed in its term, and is a majority together with the asker, who
// was in the same term. It reports false when the question is raft's to answer.
func (n *Node) answerRead(m *raftpb.Message) bool {
	r, from := n.role.Load(), m.GetFrom()
	if r.state != raft.StateLeader || m.GetLogTerm() != r.term || n.loop.handedTerm != r.term ||
		!slices.Contains(n.loop.pairs, from) || !slices.Contains(n.loop.pairs, n.cfg.ID) {
		return false
	}
	commit := n.commit.Load()
	n.loop.answers = append(n.loop.answers, &raftpb.Message{
		Type: raftpb.MsgReadIndexResp.Enum(), To: &from, From: &n.cfg.ID,
		Term: &r.term, Index: &commit, Entries: m.GetEntries(),
	})
	return true
}

// sendAnswers sends what answerRead has answered in this turn.
func (n *Node) sendAnswers() {
	n.send(n.loop.answers)
	clear(n.loop.answers)
	n.loop.answers = n.loop.answers[:0]
}
