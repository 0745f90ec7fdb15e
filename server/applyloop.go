package server

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/apply"
	"github.com/coordd/coordd/raftnode"
)

// idleTick is how often the apply loop looks after the file when no entries
// come: a commit that is due, compacted rows to remove.
const idleTick = 20 * time.Millisecond

// answer is a result on its way to the caller who waits for it.
type answer struct {
	id     uint64
	result apply.Result
}

// applyLoop applies what is committed, until ctx ends or the machine fails. It
// is the only writer of the state machine and of the backend.
func (n *Node) applyLoop(ctx context.Context) error {
	tick := time.NewTicker(idleTick)
	defer tick.Stop()
	committed := n.raft.Committed()
	for {
		idle := tick.C
		select {
		case batch, ok := <-committed:
			if !ok {
				committed = nil
				continue
			}
			if err := n.applyBatch(batch); err != nil {
				return err
			}
		case call := <-n.applyCalls:
			call.done <- call.do()
		case <-idle:
			if err := n.upkeep(n.machine.Load()); err != nil {
				return err
			}
		case <-n.machine.Load().Backend.Fatal():
			return fmt.Errorf("server: %w", n.machine.Load().Backend.Err())
		case <-ctx.Done():
			return nil
		}
	}
}

// applyBatch installs a snapshot, if there is one, and applies entries in as
// few runs as may be: one, but for compactions, which begin a run of their own.
func (n *Node) applyBatch(b raftnode.Batch) error {
	if b.Snapshot != nil {
		if err := n.installSnapshot(b.Snapshot); err != nil {
			return err
		}
	}
	begin := time.Now()
	for rest := b.Entries; len(rest) > 0; {
		end := 1
		for end < len(rest) && !apply.Compacts(rest[end]) {
			end++
		}
		if err := n.applyRun(rest[:end]); err != nil {
			return err
		}
		rest = rest[end:]
	}
	if took := time.Since(begin); took > n.cfg.WarnApply && len(b.Entries) > 0 {
		n.metrics.slowApply.Inc()
		n.lg.Warn("apply request took too long", zap.Duration("took", took), zap.Duration("expected-duration", n.cfg.WarnApply), zap.Int("entries", len(b.Entries)))
	}
	return nil
}

// applyRun applies entries one by one, publishes what they did together, and
// then answers those who wait: whoever has an answer also reads its effect.
func (n *Node) applyRun(entries []*raftpb.Entry) error {
	m := n.machine.Load()
	answers := n.answers[:0]
	for _, e := range entries {
		n.logBytes += len(e.GetData())
		a, err := n.applyEntry(m, e)
		if err != nil {
			return err
		}
		if a.id != 0 {
			answers = append(answers, a)
		}
	}
	rev, events := m.Publish()
	last := entries[len(entries)-1]
	n.appliedIndex.Store(last.GetIndex())
	if len(events) > 0 {
		n.hub.Publish(rev, events)
	}
	n.applied.Trigger(last.GetIndex())
	for _, a := range answers {
		n.waits.Trigger(a.id, a.result)
	}
	clear(answers)
	n.answers = answers
	n.raft.Applied(last.GetIndex())
	if st := n.raft.Status(); st.Leader == n.id && last.GetTerm() == st.Term {
		n.promoteExpirer(st.Term)
	}
	return n.upkeep(m)
}

// upkeep does what is due of the file: a commit, one step of a compaction, and
// the release of log that the file has made superfluous.
func (n *Node) upkeep(m *apply.Machine) error {
	n.metrics.compaction.step(m.KV, n.cfg.CompactionBatch)
	if err := m.CommitIfDue(); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	n.releaseLog(m)
	return nil
}

// applyEntry applies one entry of either kind.
func (n *Node) applyEntry(m *apply.Machine, e *raftpb.Entry) (answer, error) {
	if e.GetType() != raftpb.EntryNormal {
		return n.applyConf(m, e)
	}
	begin := time.Now()
	id, res := m.Apply(e, n.waits.IsRegistered)
	if err := m.Err(); err != nil {
		return answer{}, fmt.Errorf("server: %w", err)
	}
	if res.Request != nil {
		n.metrics.apply.observe(kindOf(res.Request), begin, res.Err)
		res.Request = nil // not the waiter's
	}
	n.expirer.Observe(res.Leases...)
	n.metrics.count(res)
	return answer{id, res}, nil
}

// applyCall is work for the apply loop's goroutine.
type applyCall struct {
	do   func() error
	done chan error // buffered
}

// onApplyLoop runs f on the apply loop, between two batches, and returns what it
// gives. f must be short.
func (n *Node) onApplyLoop(ctx context.Context, f func() error) error {
	c := applyCall{f, make(chan error, 1)}
	select {
	case n.applyCalls <- c:
	case <-ctx.Done():
		return ctx.Err()
	case <-n.ending:
		return errs.ErrStopped
	}
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-n.ending:
		return errs.ErrStopped
	}
}

// releaseBytes is how much log may come, applied and in the file, before raft is
// told to drop it: large requests would otherwise keep much memory.
const releaseBytes = 8 << 20

// releaseLog lets raft drop log entries that the file has safely, once
// SnapshotCount of them, or releaseBytes, have come since the last time.
func (n *Node) releaseLog(m *apply.Machine) {
	durable := m.Backend.Position().Index
	if durable == n.released || durable < n.released+n.cfg.SnapshotCount && n.logBytes < releaseBytes {
		return
	}
	n.released, n.logBytes = durable, 0
	if err := n.raft.Compact(durable); err == nil {
		n.lg.Info("released the log that the data file has", zap.Uint64("durable-index", durable), zap.Uint64("kept-entries", n.cfg.CatchUpEntries))
	}
}
