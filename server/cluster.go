package server

import (
	"context"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/coordd/coordd/api/memberpb"
	"github.com/coordd/coordd/api/requestpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/apply"
	"github.com/coordd/coordd/member"
	"github.com/coordd/coordd/raftnode"
)

// memberOf is a member by its id, nil if there is none.
func (n *Node) memberOf(id uint64) *member.Member {
	return n.machine.Load().Members.Get(member.ID(id))
}

// MemberList is the membership, sorted by id: as the cluster has agreed on it
// by now if linearizable, else as this member knows it.
func (n *Node) MemberList(ctx context.Context, linearizable bool) ([]*rpcpb.Member, error) {
	if linearizable {
		if err := n.LinearizableWait(ctx); err != nil {
			return nil, err
		}
	}
	var out []*rpcpb.Member
	for _, m := range n.machine.Load().Members.Members() {
		out = append(out, &rpcpb.Member{ID: uint64(m.ID), Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, IsLearner: m.IsLearner})
	}
	return out, nil
}

// applyConf applies a change of members. A change that the membership refuses
// changes nothing in raft either.
func (n *Node) applyConf(m *apply.Machine, e *raftpb.Entry) (answer, error) {
	cc, info := m.ApplyConf(e)
	if _, err := n.raft.ApplyConf(cc); err != nil {
		return answer{}, nil // raft has ended; the entry comes again after a restart
	}
	n.updatePeers()
	if info.Err == nil && n.memberOf(n.id) == nil {
		n.lg.Warn("the member has been permanently removed from the cluster")
		time.AfterFunc(removalGrace, func() { n.cancel() })
	}
	return answer{info.ID, apply.Result{Response: info.Members, Err: info.Err}}, nil
}

// removalGrace is how long a removed member still runs, to tell others what it knows.
const removalGrace = time.Second

// updatePeers tells the peer layer who the other members are.
func (n *Node) updatePeers() {
	members := map[uint64][]string{}
	for _, m := range n.machine.Load().Members.Members() {
		if uint64(m.ID) != n.id {
			members[uint64(m.ID)] = m.PeerURLs
		}
	}
	if err := n.transport.SetMembers(members); err != nil {
		n.lg.Error("a member's peer URLs cannot be used", zap.Error(err))
	}
}

// publishLoop announces this member's name and client URLs through the log
// until they stand there, then as leader has the cluster version set, and ends. It begins once this member has something
// in its log: whoever finds its name published and its log empty knows that files were lost (founding.go).
func (n *Node) publishLoop(ctx context.Context) error {
	select {
	case <-n.applied.Wait(raftnode.FoundingIndex + 1):
	case <-ctx.Done():
		return nil
	}
	for ctx.Err() == nil {
		if me := n.memberOf(n.id); me != nil && me.Name == n.cfg.Name && equalSets(me.ClientURLs, n.cfg.ClientURLs) {
			// Known from before a restart: one confirmed read shows that this member is in touch again.
			if n.LinearizableWait(ctx) == nil {
				break
			}
			continue
		}
		err := n.proposeWithin(ctx, &requestpb.InternalRaftRequest{ClusterMemberAttrSet: &memberpb.ClusterMemberAttrSetRequest{
			Member_ID:        n.id,
			MemberAttributes: &memberpb.Attributes{Name: n.cfg.Name, ClientUrls: n.cfg.ClientURLs},
		}})
		if err == nil {
			break
		}
		n.lg.Debug("could not publish this member yet", zap.Error(err))
		sleep(ctx, n.cfg.Tick)
	}
	if ctx.Err() != nil {
		return nil
	}
	n.lg.Info("published local member to cluster through raft", zap.String("name", n.cfg.Name),
		zap.Strings("client-urls", n.cfg.ClientURLs), zap.Stringer("local-member-id", member.ID(n.id)))
	n.setClusterVersion(ctx)
	close(n.ready)
	return nil
}

// setClusterVersion has the version written to the log once, by whichever
// member comes first: all founders run the same release.
func (n *Node) setClusterVersion(ctx context.Context) {
	for ctx.Err() == nil && n.ClusterVersion() == "" {
		err := n.proposeWithin(ctx, &requestpb.InternalRaftRequest{ClusterVersionSet: &memberpb.ClusterVersionSetRequest{Ver: ClusterVersion}})
		if err == nil {
			n.lg.Info("set initial cluster version", zap.String("cluster-version", ClusterVersion))
			return
		}
		sleep(ctx, n.cfg.Tick)
	}
}

// proposeWithin proposes and waits, one request timeout at most.
func (n *Node) proposeWithin(ctx context.Context, req *requestpb.InternalRaftRequest) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.requestTimeout())
	defer cancel()
	_, err := n.propose(ctx, req)
	return err
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// equalSets compares two short lists regardless of order.
func equalSets(a, b []string) bool {
	count := map[string]int{}
	for _, s := range a {
		count[s]++
	}
	for _, s := range b {
		count[s]--
	}
	for _, c := range count {
		if c != 0 {
			return false
		}
	}
	return true
}
