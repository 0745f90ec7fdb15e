package server

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/coordd/coordd/member"
)

// firstElection ends the wait for a leader after start early: when all members
// start together, each would wait a random time of one to two election timeouts
// for a leader that cannot be there. A member that is connected to a majority and
// has not heard a leader for a heartbeat asks for votes at once; the members take
// turns by the order of their ids, two heartbeats each, so that they do not
// split the vote. It disturbs no leader that there is: a leader would have sent a
// heartbeat on the connection, and raft's PreVote asks before it raises the term.
func (n *Node) firstElection(ctx context.Context) error {
	turn := slices.Index(n.machine.Load().Members.ConfState().GetVoters(), n.id)
	if !n.cfg.InitialTickAdvance || !n.cfg.PreVote || turn < 0 {
		return nil
	}
	select {
	case <-n.part:
	case <-ctx.Done():
		return nil
	}
	tick := time.NewTicker(n.cfg.Tick)
	defer tick.Stop()
	connected := 0 // heartbeats in a row
	for range 2 * n.cfg.ElectionTicks {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if n.Leader() != 0 {
			return nil
		}
		if !n.quorumConnected() {
			connected = 0
			continue
		}
		if connected++; connected > 2*turn+1 {
			n.lg.Info("asking for votes: no leader has been heard since the start", zap.Stringer("local-member-id", member.ID(n.id)))
			_ = n.raft.Campaign() // fails only after the end
			return nil
		}
	}
	return nil
}
