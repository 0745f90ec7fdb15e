package raftnode

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/coordd/coordd/pkg/vfs"
	"github.com/coordd/coordd/wal"
)

// BenchmarkPropose measures what one proposal of 256 bytes costs from Propose at
// the leader until it is handed to the leader's apply loop: three members in
// memory, without a network's or a disk's waits.
func BenchmarkPropose(b *testing.B) {
	nodes := map[uint64]*Node{}
	ids := []uint64{1, 2, 3}
	ctx, cancel := context.WithCancel(context.Background())
	var done atomic.Int64
	reached, leads := make(chan struct{}, 1), make(chan struct{})
	for _, id := range ids {
		start := Bootstrap(ids)
		fs := vfs.NewMem()
		log, err := wal.Create(fs, "/wal", wal.Metadata{MemberID: id, ClusterID: 1}, wal.Options{UnsafeNoSync: true})
		if err != nil {
			b.Fatal(err)
		}
		if err := log.Reset(wal.Position{Index: start.Index, Term: start.Term}, start.HardState); err != nil {
			b.Fatal(err)
		}
		n, err := New(Config{ID: id, ElectionTicks: 10, HeartbeatTicks: 1, Log: log, Start: start, CatchUpEntries: NoCatchUp,
			Send: func(msgs []*raftpb.Message) {
				for _, m := range msgs {
					nodes[m.GetTo()].Step([]*raftpb.Message{m})
				}
			},
			OnLeader: func(leader, _ uint64, self bool) {
				if self {
					close(leads)
				}
			},
			Snapshot: func() (*raftpb.Snapshot, error) { return nil, context.Canceled },
		})
		if err != nil {
			b.Fatal(err)
		}
		nodes[id] = n
	}
	for _, n := range nodes {
		go func() { _ = n.Run(ctx) }()
		go func() {
			for batch := range n.Committed() {
				last := batch.Entries[len(batch.Entries)-1].GetIndex()
				n.Applied(last)
				if n.cfg.ID == 1 && done.Add(int64(len(batch.Entries))) >= int64(b.N) {
					select {
					case reached <- struct{}{}:
					default:
					}
				}
				if last%10_000 < uint64(len(batch.Entries)) {
					_ = n.Compact(last)
				}
			}
		}()
	}
	defer func() {
		cancel()
		for _, n := range nodes {
			<-n.done
		}
	}()
	_ = nodes[1].Campaign()
	<-leads
	data := make([]byte, 256)
	done.Store(0)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		for nodes[1].Propose(0, data) != nil {
			runtime.Gosched()
		}
	}
	for done.Load() < int64(b.N) {
		<-reached
	}
}
