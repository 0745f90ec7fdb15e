package peer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/coordd/coordd/api/peerpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/peer"
	"github.com/coordd/coordd/pkg/vfs"
	"github.com/coordd/coordd/raftnode"
	"github.com/coordd/coordd/wal"
)

// node is a raft node on real connections, with a list as its state machine.
type node struct {
	t      *testing.T
	raft   *raftnode.Node
	tr     *peer.Transport
	ln     net.Listener
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu    sync.Mutex
	index uint64
	term  uint64
	conf  *raftpb.ConfState
	data  []string
	files map[uint64][]byte
}

// service answers nothing: this test is about consensus.
type service struct{}

var errNone = errors.New("not here")

func (service) LeaseKeepAlive(context.Context, *peerpb.LeaseKeepAliveRequest) (*peerpb.LeaseKeepAliveResponse, error) {
	return nil, errNone
}
func (service) LeaseTimeToLive(context.Context, *rpcpb.LeaseTimeToLiveRequest) (*rpcpb.LeaseTimeToLiveResponse, error) {
	return nil, errNone
}
func (service) Promote(context.Context, *peerpb.PromoteRequest) (*peerpb.PromoteResponse, error) {
	return nil, errNone
}
func (service) HashKV(context.Context, *rpcpb.HashKVRequest) (*rpcpb.HashKVResponse, error) {
	return nil, errNone
}
func (service) Info(context.Context, *peerpb.InfoRequest) (*peerpb.InfoResponse, error) {
	return &peerpb.InfoResponse{}, nil
}

func start(t *testing.T, id uint64, st raftnode.Start) *node {
	t.Helper()
	n := &node{t: t, index: st.Applied, term: 1, conf: st.ConfState, files: map[uint64][]byte{}}
	log, err := wal.Create(vfs.NewMem(), "/wal", wal.Metadata{MemberID: id, ClusterID: 9}, wal.Options{})
	check(t, err)
	if st.Index > 0 {
		check(t, log.Reset(wal.Position{Index: st.Index, Term: st.Term}, st.HardState))
	}
	n.ln, err = net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	n.tr, err = peer.New(peer.Config{ClusterID: 9, MemberID: id, Raft: n, Service: service{}, Source: n.source, Store: n.store})
	check(t, err)
	n.raft, err = raftnode.New(raftnode.Config{ID: id, ElectionTicks: 10, HeartbeatTicks: 1, PreVote: true, CheckQuorum: true,
		CatchUpEntries: raftnode.NoCatchUp, Log: log, Start: st, Send: n.tr.Send,
		Snapshot: func() (*raftpb.Snapshot, error) { return &raftpb.Snapshot{Metadata: n.meta()}, nil }})
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	n.ended.Go(func() {
		if err := n.raft.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	n.ended.Go(n.apply)
	n.ended.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				n.raft.Tick()
			case <-ctx.Done():
				return
			}
		}
	})
	n.ended.Go(func() {
		if err := n.tr.Serve(n.ln); err != nil {
			t.Error(err)
		}
	})
	n.cancel = cancel
	n.tr.Start()
	t.Cleanup(func() {
		cancel()
		check(t, n.tr.Close())
		n.ended.Wait()
		check(t, log.Close())
	})
	return n
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (n *node) Step(msgs []*raftpb.Message)       { n.raft.Step(msgs) }
func (n *node) ReportUnreachable(id uint64)       { n.raft.ReportUnreachable(id) }
func (n *node) ReportSnapshot(id uint64, ok bool) { n.raft.ReportSnapshot(id, ok) }

func (n *node) meta() *raftpb.SnapshotMetadata {
	n.mu.Lock()
	defer n.mu.Unlock()
	index, term := n.index, n.term
	return &raftpb.SnapshotMetadata{Index: &index, Term: &term, ConfState: n.conf}
}

func (n *node) source(context.Context) (*peer.Snapshot, error) {
	meta := n.meta()
	n.mu.Lock()
	defer n.mu.Unlock()
	file, err := json.Marshal(n.data[:len(n.data)-int(n.index-meta.GetIndex())])
	return &peer.Snapshot{Metadata: meta, Size: int64(len(file)), Data: bytes.NewReader(file), Close: func() error { return nil }}, err
}

func (n *node) store(_ context.Context, meta *raftpb.SnapshotMetadata, _ int64, r io.Reader) error {
	file, err := io.ReadAll(r)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.files[meta.GetIndex()] = file
	return err
}

func (n *node) apply() {
	for b := range n.raft.Committed() {
		if m := b.Snapshot.GetMetadata(); m != nil {
			n.mu.Lock()
			n.index, n.term, n.conf, n.data = m.GetIndex(), m.GetTerm(), m.GetConfState(), nil
			if err := json.Unmarshal(n.files[n.index], &n.data); err != nil {
				n.t.Error(err)
			}
			n.mu.Unlock()
		}
		for _, e := range b.Entries {
			n.mu.Lock()
			n.index, n.term = e.GetIndex(), e.GetTerm()
			n.data = append(n.data, string(e.GetData()))
			n.mu.Unlock()
		}
		n.raft.Applied(n.meta().GetIndex())
	}
}

func (n *node) applied() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.data)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(30 * time.Second); !ok(); <-tick.C {
		if time.Now().After(limit) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// Three members elect a leader and replicate over real connections; one that
// was away while the log was compacted catches up by a snapshot.
func TestClusterOnLoopback(t *testing.T) {
	ids := []uint64{1, 2, 3}
	nodes := map[uint64]*node{}
	for _, id := range ids {
		nodes[id] = start(t, id, raftnode.Bootstrap(ids))
	}
	connect := func(of ...uint64) {
		for _, id := range of {
			urls := map[uint64][]string{}
			for _, o := range of {
				urls[o] = []string{"http://" + nodes[o].ln.Addr().String()}
			}
			check(t, nodes[id].tr.SetMembers(urls))
		}
	}
	connect(1, 2, 3)
	all := func(data string, of ...uint64) {
		t.Helper()
		eventually(t, "applied "+data, func() bool {
			for _, id := range of {
				if !slices.Contains(nodes[id].applied(), data) {
					return false
				}
			}
			return true
		})
	}
	for _, id := range ids {
		for i := range 200 {
			check(t, nodes[id].raft.Propose(0, fmt.Appendf(nil, "%d-%d", id, i)))
		}
	}
	for _, id := range ids {
		all(fmt.Sprintf("%d-199", id), ids...)
	}
	var away uint64
	eventually(t, "a follower", func() bool {
		for _, id := range ids {
			if l := nodes[id].raft.Status().Leader; l != 0 && l != id {
				away = id
			}
		}
		return away != 0
	})
	here := slices.DeleteFunc(slices.Clone(ids), func(id uint64) bool { return id == away })
	connect(here...) // the others do not know it, and so do not send
	check(t, nodes[here[0]].raft.Propose(0, make([]byte, 3<<20)))
	check(t, nodes[here[0]].raft.Propose(0, []byte("missed")))
	all("missed", here...)
	for _, id := range here {
		check(t, nodes[id].raft.Compact(nodes[id].meta().GetIndex()))
	}
	connect(ids...)
	check(t, nodes[here[0]].raft.Propose(0, []byte("last")))
	all("last", ids...)
	nodes[away].mu.Lock()
	files := len(nodes[away].files)
	nodes[away].mu.Unlock()
	if files == 0 {
		t.Error("it did not catch up by a snapshot")
	}
	want := nodes[here[0]].applied()
	for _, id := range ids {
		if got := nodes[id].applied(); !slices.Equal(got, want) {
			t.Errorf("member %d applied %d entries, another %d, or others", id, len(got), len(want))
		}
	}
}
