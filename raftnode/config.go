package raftnode

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/coordd/coordd/wal"
)

// Start is what a member begins with: its stored state, or the result of
// Bootstrap, or the zero value for a member that joins and waits for the
// leader's snapshot.
type Start struct {
	// Index and Term are the position just before Entries: the last entry that is
	// covered by a snapshot, or was released from the log.
	Index, Term uint64
	// Entries continue at Index+1 without a gap. The Node keeps the slice.
	Entries []*raftpb.Entry
	// HardState is the last one stored; nil when none was.
	HardState *raftpb.HardState
	// ConfState is the configuration as of Applied; nil is the empty one.
	ConfState *raftpb.ConfState
	// Applied is the position of the state machine. Later entries are handed
	// out, earlier ones are not. Index <= Applied <= the last entry's index.
	Applied uint64
}

// Config of a Node. It does not change after New. Fields marked "0 = x" have
// that default.
type Config struct {
	ID             uint64 // of this member, not 0
	ElectionTicks  int    // ticks without a leader's message before an election; > HeartbeatTicks
	HeartbeatTicks int    // ticks between heartbeats of a leader
	PreVote        bool   // ask before raising the term, so that a member that was cut off disturbs nobody
	CheckQuorum    bool   // a leader that hears no quorum for an election timeout steps down

	MaxBatchBytes    int    // of proposals stepped in one turn, at least one proposal; 0 = 1 MiB
	MaxQueueBytes    int    // of proposals waiting to be stepped, above it ErrOverloaded; 0 = 64 MiB
	MaxSizePerMsg    uint64 // of the entries in one append message; 0 = 1 MiB
	MaxInflight      int    // append messages on their way to one member; 0 = 512
	MaxInflightBytes uint64 // and their entries' bytes; 0 = 32 MiB
	MaxUncommitted   uint64 // bytes a leader appends beyond its commit index; 0 = 64 MiB
	MaxApplyingBytes uint64 // entries handed out and not yet Applied; 0 = 16 MiB
	MaxUnapplied     uint64 // committed entries not yet Applied above which no proposals are taken; 0 = 10000
	MaxInboxBytes    int    // of received append messages not yet stepped, above it they are dropped; 0 = 64 MiB
	CatchUpEntries   uint64 // kept in memory for members that lag; 0 = 5000, NoCatchUp = none
	CatchUpBytes     uint64 // and of these no more than this, at least one; 0 = 16 MiB

	// Log is the write-ahead log, positioned to append after Start. The drive
	// loop is its only writer; closing it is the caller's, after Run.
	Log   *wal.Log
	Start Start

	// Send hands messages to other members. It is called on the drive loop, must
	// not block, may keep the messages but not the slice.
	Send func(msgs []*raftpb.Message)
	// Snapshot gives the metadata of a snapshot that could be sent now: the
	// durable position of the backend, with its configuration. Called on the drive loop, must
	// not block. On error raft tries again later.
	Snapshot func() (*raftpb.Snapshot, error)
	// OnRead gets the answer to ReadIndex(id): a read that has waited for index to be applied
	// is linearizable. Called on the drive loop, must not block.
	OnRead func(id, index uint64)
	// OnLeader is told of every change of (leader, term); leader 0 is none. Called on
	// the drive loop, must not block. It comes before the entries of that leader are handed out.
	OnLeader func(leader, term uint64, isSelf bool)

	Logger *zap.Logger // nil = none
}

// NoCatchUp as Config.CatchUpEntries lets Compact drop everything before its
// index.
const NoCatchUp = ^uint64(0)

func (c Config) withDefaults() Config {
	c.MaxBatchBytes = or(c.MaxBatchBytes, 1<<20)
	c.MaxQueueBytes = or(c.MaxQueueBytes, 64<<20)
	c.MaxSizePerMsg = or(c.MaxSizePerMsg, 1<<20)
	c.MaxInflight = or(c.MaxInflight, 512)
	c.MaxInflightBytes = max(or(c.MaxInflightBytes, 32<<20), c.MaxSizePerMsg)
	c.MaxUncommitted = or(c.MaxUncommitted, 64<<20)
	c.MaxApplyingBytes = or(c.MaxApplyingBytes, 16<<20)
	c.MaxUnapplied = or(c.MaxUnapplied, 10_000)
	c.MaxInboxBytes = or(c.MaxInboxBytes, 64<<20)
	c.CatchUpEntries = or(c.CatchUpEntries, 5_000)
	c.CatchUpBytes = or(c.CatchUpBytes, 16<<20)
	if c.CatchUpEntries == NoCatchUp {
		c.CatchUpEntries = 0
	}
	if c.OnRead == nil {
		c.OnRead = func(uint64, uint64) {}
	}
	if c.OnLeader == nil {
		c.OnLeader = func(uint64, uint64, bool) {}
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

// validate reports the first thing in c that cannot work. Wrong stored state
// is found here rather than by a panic inside raft.
func (c Config) validate() error {
	switch {
	case c.ID == 0:
		return errors.New("raftnode: the member id is 0")
	case c.HeartbeatTicks <= 0 || c.ElectionTicks <= c.HeartbeatTicks:
		return fmt.Errorf("raftnode: the election timeout (%d ticks) must be longer than the heartbeat interval (%d ticks), which must be at least 1",
			c.ElectionTicks, c.HeartbeatTicks)
	case c.Log == nil || c.Send == nil || c.Snapshot == nil:
		return errors.New("raftnode: Log, Send and Snapshot are needed")
	}
	return c.Start.validate()
}

func (s Start) validate() error {
	last := s.Index
	for _, e := range s.Entries {
		if e.GetIndex() != last+1 {
			return fmt.Errorf("raftnode: the stored log has entry %d after entry %d: restore this member from its peers", e.GetIndex(), last)
		}
		last++
	}
	if s.Applied < s.Index {
		return fmt.Errorf("raftnode: the state machine is at entry %d, but the stored log begins after entry %d: restore the missing snapshot file, or this member from its peers", s.Applied, s.Index)
	}
	if s.Applied > last {
		return fmt.Errorf("raftnode: the state machine is at entry %d, but the stored log ends at entry %d: the log lost entries; restore this member from its peers", s.Applied, last)
	}
	if c := s.HardState.GetCommit(); c > last {
		return fmt.Errorf("raftnode: entry %d is marked as committed, but the stored log ends at entry %d: the log lost entries; restore this member from its peers", c, last)
	}
	return nil
}

// FoundingIndex is the position that a founding member begins at. Whoever is not beyond it has taken no part in anything.
const FoundingIndex = 1

// Fresh reports whether there is nothing but what Bootstrap gives, besides perhaps a vote.
func (s Start) Fresh() bool {
	return s.Applied <= FoundingIndex && len(s.Entries) == 0 && s.HardState.GetCommit() <= FoundingIndex
}

// Bootstrap returns how a founding member of a new cluster starts: from an
// invented snapshot at index 1, term 1, whose configuration has the given
// voters. Every founding member must pass the same set. The caller creates its
// write-ahead log at (Index, Term) and stores the state machine's position so.
//
// It writes nothing. The first term that elects is 2, so no leader's own entry
// has the term of the invented one.
func Bootstrap(voters []uint64) Start {
	term, commit := uint64(1), uint64(FoundingIndex)
	return Start{
		Index:     FoundingIndex,
		Term:      term,
		Applied:   FoundingIndex,
		HardState: &raftpb.HardState{Term: &term, Commit: &commit},
		ConfState: &raftpb.ConfState{Voters: append([]uint64(nil), voters...)},
	}
}

func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}
