package server

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/peerpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/member"
	"github.com/coordd/coordd/peer"
	"github.com/coordd/coordd/raftnode"
	"github.com/coordd/coordd/snap"
)

// Transport carries what the members of a cluster say to each other. The methods are those of
// *peer.Transport, which is the product's, and promise the same; see there.
type Transport interface {
	Start()
	Serve(net.Listener) error
	SetMembers(urls map[uint64][]string) error
	Send([]*raftpb.Message)
	ActiveSince(id uint64) time.Time
	LeaseKeepAlive(ctx context.Context, to uint64, r *peerpb.LeaseKeepAliveRequest) (*peerpb.LeaseKeepAliveResponse, error)
	LeaseTimeToLive(ctx context.Context, to uint64, r *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error)
	Info(ctx context.Context, to uint64, r *peerpb.InfoRequest) (*peerpb.InfoResponse, error)
	Close() error
}

// peerConfig wires the peer layer to this node.
func (n *Node) peerConfig() peer.Config {
	return peer.Config{
		ClusterID: n.clusterID, MemberID: n.id,
		Raft: raftEnd{n}, Service: peerService{n},
		Source: n.openSnapshot, Store: n.storeSnapshot,
		Admit:     n.admitPeer,
		Dialing:   peer.Dialing{ClientTLS: n.cfg.PeerClientTLS, Dialer: n.cfg.PeerDialer},
		ServerTLS: n.cfg.PeerServerTLS,
		Hooks:     n.metrics.network.hooks(n.id),
		Logger:    n.lg.Named("peer"),
	}
}

// raftEnd lets the peer layer, which is made first, reach the raft node.
type raftEnd struct{ n *Node }

// Step drops what comes before this member may take part: it was not sent to one that has forgotten what it said.
func (e raftEnd) Step(msgs []*raftpb.Message) {
	if e.n.takesPart() {
		e.n.raft.Step(msgs)
	}
}

// ReportUnreachable says nothing to a raft that does not run yet: it would only pile up.
func (e raftEnd) ReportUnreachable(id uint64) {
	if e.n.takesPart() {
		e.n.raft.ReportUnreachable(id)
	}
}

// ReportSnapshot is of a snapshot that this member has sent, which takes part then.
func (e raftEnd) ReportSnapshot(id uint64, ok bool) { e.n.raft.ReportSnapshot(id, ok) }

// admitPeer refuses members that were removed.
func (n *Node) admitPeer(from uint64) error {
	if n.machine.Load().Members.Removed(member.ID(from)) {
		return errs.ErrMemberNotFound
	}
	return nil
}

// openSnapshot opens the data file, as of its last commit, for a member that
// fell behind.
func (n *Node) openSnapshot(context.Context) (*peer.Snapshot, error) {
	file, err := n.machine.Load().Backend.Snapshot()
	if err != nil {
		return nil, err
	}
	s, err := positionSnapshot(file.Position())
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &peer.Snapshot{Metadata: s.Metadata, Size: file.Size(), Data: file, Close: file.Close}, nil
}

// storeSnapshot makes a received data file durable among the snapshot files.
func (n *Node) storeSnapshot(ctx context.Context, meta *raftpb.SnapshotMetadata, size int64, data io.Reader) error {
	h := snap.Header{Position: snap.Position{Index: meta.GetIndex(), Term: meta.GetTerm()}, Size: size}
	begin := time.Now()
	r, w := io.Pipe()
	sent := make(chan struct{})
	go func() { // ends when the file is read, or when Receive gives up and the pipe is closed
		defer close(sent)
		w.CloseWithError(snap.Send(ctx, w, h, data))
	}()
	_, err := n.store.snaps.Receive(ctx, h.Position, size, r)
	r.CloseWithError(errors.New("server: the snapshot is no longer wanted"))
	<-sent
	if err == nil {
		n.metrics.disk.snapSave.Observe(time.Since(begin).Seconds())
	}
	return err
}

// peerService answers other members' requests.
type peerService struct{ n *Node }

// LeaseKeepAlive renews leases for the clients of a member that follows.
func (s peerService) LeaseKeepAlive(ctx context.Context, r *peerpb.LeaseKeepAliveRequest) (*peerpb.LeaseKeepAliveResponse, error) {
	term := s.n.Term()
	ttls, err := s.n.renewAll(ctx, r.Ids)
	if err != nil {
		return nil, peerError(err)
	}
	return &peerpb.LeaseKeepAliveResponse{Ttls: ttls, Term: term}, nil
}

// LeaseTimeToLive answers for a member that follows.
func (s peerService) LeaseTimeToLive(ctx context.Context, r *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error) {
	resp, err := s.n.timeToLiveHere(ctx, r)
	return resp, peerError(err)
}

// Promote belongs to changing the membership at run time, which is not there yet.
func (s peerService) Promote(context.Context, *peerpb.PromoteRequest) (*peerpb.PromoteResponse, error) {
	return nil, errors.New("promoting a learner is not there yet")
}

// HashKV lets members compare their content.
func (s peerService) HashKV(ctx context.Context, r *rpcpb.HashKVRequest) (*rpcpb.HashKVResponse, error) {
	resp, err := s.n.HashKV(ctx, r.Revision)
	return resp, peerError(err)
}

// Info says who this member is and whom it knows.
func (s peerService) Info(ctx context.Context, r *peerpb.InfoRequest) (*peerpb.InfoResponse, error) {
	members, err := s.n.MemberList(ctx, r.Confirmed)
	if err != nil {
		return nil, peerError(err)
	}
	st := s.n.raft.Status()
	return &peerpb.InfoResponse{
		ClusterId: s.n.clusterID, MemberId: s.n.id, Members: members, Version: APIVersion,
		ClusterVersion: s.n.ClusterVersion(), Leader: st.Leader, AppliedIndex: s.n.appliedIndex.Load(),
		Blank: st.Leader == 0 && st.Commit <= raftnode.FoundingIndex,
	}, nil
}
