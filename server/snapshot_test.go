package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/raftnode"
	"github.com/coordd/coordd/watch"
)

// A member that was away for longer than the others keep their log gets the
// leader's file, goes on from it, and keeps it over a restart.
func TestMemberCatchesUpBySnapshot(t *testing.T) {
	c := newCluster(t, 3)
	for i := range c.cfgs {
		c.cfgs[i].SnapshotCount, c.cfgs[i].CatchUpEntries = 20, raftnode.NoCatchUp
	}
	c.run()
	leader := c.leader()
	away := 0
	for i, n := range c.nodes {
		if n != leader {
			away = i
		}
	}
	lease, err := leader.LeaseGrant(t.Context(), &rpcpb.LeaseGrantRequest{TTL: 600})
	if err != nil {
		t.Fatal(err)
	}
	c.stop(away)
	for i := range 300 {
		r := &rpcpb.PutRequest{Key: fmt.Appendf(nil, "k%d", i%50), Value: fmt.Append(nil, i), Lease: lease.ID}
		if _, err := leader.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if i%100 == 99 { // the log is released once the file has it
			if err := leader.onApplyLoop(t.Context(), func() error { return leader.machine.Load().Commit(true) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := leader.Compact(t.Context(), &rpcpb.CompactionRequest{Revision: 250, Physical: true}); err != nil {
		t.Fatal(err)
	}
	n := c.start(away)
	c.ready(n)
	for range 2 {
		wantSame(t, leader, n)
		if got := n.machine.Load().Leases.Keys(1); got != nil {
			t.Errorf("a lease that does not exist has keys %q", got)
		}
		resp, err := n.LeaseTimeToLive(t.Context(), &rpcpb.LeaseTimeToLiveRequest{ID: lease.ID, Keys: true})
		if err != nil || len(resp.Keys) != 50 || resp.GrantedTTL != 600 {
			t.Errorf("the lease after the snapshot: %v, %v", resp, err)
		}
		c.stop(away)
		n = c.start(away)
		c.ready(n)
	}
}

// Watchers of a running member go on over a snapshot, and miss nothing.
func TestWatchGoesOnOverSnapshot(t *testing.T) {
	c := newCluster(t, 1).run()
	n := c.nodes[0]
	first := put(t, n, "k", "1")
	s := n.Hub().Open(watch.StreamOptions{})
	defer s.Close()
	if _, err := s.Create(watch.CreateOptions{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	n.Hub().Swap(n.machine.Load().KV) // as after an installation
	put(t, n, "k", "2")
	for got := first; got < first+1; {
		rs, err := s.Next(within(t, testWait))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rs {
			events, err := r.Events()
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				got++
				if e.Kv.ModRevision != got {
					t.Errorf("event at %d, want %d", e.Kv.ModRevision, got)
				}
			}
		}
	}
}

// Who reads the data file for long, such as a client that takes its time with a snapshot of it, holds up no installation of a
// leader's snapshot, and can read on.
func TestReaderOfOldFileHoldsNothingUp(t *testing.T) {
	c := newCluster(t, 1).run()
	n := c.nodes[0]
	put(t, n, "k", "1")
	ctx := within(t, testWait)
	reader, err := n.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	file, err := n.openSnapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var data bytes.Buffer
	_, err = file.Data.WriteTo(&data)
	if err = errors.Join(err, file.Close(), n.storeSnapshot(ctx, file.Metadata, file.Size, &data)); err != nil {
		t.Fatal(err)
	}
	install := func() error { return n.installSnapshot(&raftpb.Snapshot{Metadata: file.Metadata}) }
	if err := n.onApplyLoop(ctx, install); err != nil {
		t.Fatal(err)
	}
	put(t, n, "k", "2")
	if size, err := reader.WriteTo(io.Discard); err != nil || size != reader.Size() {
		t.Errorf("%d bytes of %d: %v", size, reader.Size(), err)
	}
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
}

// wantSame fails the test unless both nodes have the same history.
func wantSame(t *testing.T, a, b *Node) {
	t.Helper()
	if err := b.LinearizableWait(t.Context()); err != nil {
		t.Fatal(err)
	}
	rev := a.Revision()
	x, err := a.HashKV(t.Context(), rev)
	if err != nil {
		t.Fatal(err)
	}
	y, err := b.HashKV(t.Context(), rev)
	if err != nil {
		t.Fatal(err)
	}
	if x.Hash != y.Hash || x.CompactRevision != y.CompactRevision {
		t.Errorf("at revision %d: hash %x compacted %d, and hash %x compacted %d", rev, x.Hash, x.CompactRevision, y.Hash, y.CompactRevision)
	}
}
