package raftnode

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

// Batch is work for the apply loop: first the snapshot, if any, then the
// entries.
type Batch struct {
	// Snapshot tells the loop to replace the state machine by the stored
	// snapshot file of this position. The write-ahead log starts there already.
	Snapshot *raftpb.Snapshot
	// Entries are committed and stored on this member's disk, in order. Entries
	// with empty data are raft's own and change nothing but the position. They must not be changed.
	Entries []*raftpb.Entry
}

// outbox hands batches to the apply loop one by one; what is committed
// meanwhile is merged into the next, so that a slow loop gets few large batches. Its content is
// bounded by Config.MaxApplyingBytes, since raft stops giving.
type outbox struct {
	ch chan Batch // holds one batch

	mu      sync.Mutex // guards all below
	pending []Batch
	closed  bool
}

func newOutbox() *outbox { return &outbox{ch: make(chan Batch, 1)} }

// entries queues committed entries. The drive loop calls it.
func (o *outbox) entries(ents []*raftpb.Entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.pending); n > 0 {
		last := &o.pending[n-1]
		last.Entries = append(last.Entries, ents...)
	} else {
		o.pending = append(o.pending, Batch{Entries: ents[:len(ents):len(ents)]})
	}
	o.offerLocked()
}

// snapshot queues a snapshot. The drive loop calls it.
func (o *outbox) snapshot(s *raftpb.Snapshot) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending = append(o.pending, Batch{Snapshot: s})
	o.offerLocked()
}

// next moves a waiting batch into the channel. The apply loop calls it after each
// batch, so that it need not wait for the drive loop, which may wait for the disk.
func (o *outbox) next() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.offerLocked()
}

func (o *outbox) offerLocked() {
	if len(o.pending) == 0 || o.closed {
		return
	}
	select {
	case o.ch <- o.pending[0]:
		o.pending = append(o.pending[:0:0], o.pending[1:]...)
	default:
	}
}

// close ends the channel. Batches not yet in it are dropped: they are committed and
// stored, and come again after a restart.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed = true
		close(o.ch)
	}
}
