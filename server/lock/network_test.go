package lock

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/peerpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/peer"
	"github.com/coordd/coordd/server"
)

// network is what the members of a test cluster say to each other, real but for the members that are cut off.
type network struct {
	mu        sync.Mutex // guards all below
	away      map[uint64]bool
	installed map[uint64]int // snapshots received, by the member that did
}

// cut takes a member off the network, or puts it back.
func (w *network) cut(m *member, away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away[m.node.ID()] = away
}

func (w *network) apart(a, b uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.away[a] || w.away[b]
}

func (w *network) snapshots(m *member) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.installed[m.node.ID()]
}

// transport is for server.Config.NewTransport.
func (w *network) transport(p peer.Config) (server.Transport, error) {
	received := p.Hooks.SnapshotReceived
	p.Hooks.SnapshotReceived = func(from uint64, bytes int64, d time.Duration, err error) {
		if received != nil {
			received(from, bytes, d, err)
		}
		if err == nil {
			w.mu.Lock()
			w.installed[p.MemberID]++
			w.mu.Unlock()
		}
	}
	t, err := peer.New(p)
	if err != nil {
		return nil, err
	}
	return &wire{Transport: t, net: w, p: p}, nil
}

// wire is one member's end of a network.
type wire struct {
	server.Transport
	net *network
	p   peer.Config
}

func (w *wire) Send(msgs []*raftpb.Message) {
	var pass []*raftpb.Message
	for _, m := range msgs {
		switch {
		case !w.net.apart(w.p.MemberID, m.GetTo()):
			pass = append(pass, m)
		case m.GetType() == raftpb.MsgSnap:
			w.p.Raft.ReportSnapshot(m.GetTo(), false)
		default:
			w.p.Raft.ReportUnreachable(m.GetTo())
		}
	}
	if len(pass) > 0 {
		w.Transport.Send(pass)
	}
}

var errApart = status.Error(codes.Unavailable, "cut off")

func (w *wire) LeaseKeepAlive(ctx context.Context, to uint64, r *peerpb.LeaseKeepAliveRequest) (*peerpb.LeaseKeepAliveResponse, error) {
	if w.net.apart(w.p.MemberID, to) {
		return nil, errApart
	}
	return w.Transport.LeaseKeepAlive(ctx, to, r)
}

func (w *wire) LeaseTimeToLive(ctx context.Context, to uint64, r *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error) {
	if w.net.apart(w.p.MemberID, to) {
		return nil, errApart
	}
	return w.Transport.LeaseTimeToLive(ctx, to, r)
}
