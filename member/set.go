package member

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/mvcc/backend"
)

// Keys of bucket cluster, and the value of bucket members_removed.
const (
	versionKey   = "clusterVersion"
	downgradeKey = "downgrade"
	removedValue = "removed"
)

// Downgrade says whether an operator has asked for a downgrade, and to which version.
type Downgrade struct {
	// TargetVersion is the version "X.Y.Z" to go down to, empty when not enabled.
	TargetVersion string `json:"target-version"`
	Enabled       bool   `json:"enabled"`
}

// Set is the replicated membership. Reading methods may be called by any goroutine at any time;
// changing methods by the apply loop only.
type Set struct {
	b   *backend.Backend
	cur atomic.Pointer[state]
}

// state is one immutable version of the Set.
type state struct {
	members   []*Member // ascending by id
	removed   map[ID]struct{}
	version   string
	downgrade Downgrade
}

// Open reads the Set from the member buckets of b. The error names the bucket and key of a row
// that cannot be read.
func Open(b *backend.Backend) (*Set, error) {
	st := &state{removed: make(map[ID]struct{})}
	if err := b.ForEach(backend.BucketMembers, st.loadMember); err != nil {
		return nil, err
	}
	slices.SortFunc(st.members, func(a, b *Member) int { return compareIDs(a.ID, b.ID) })
	if err := b.ForEach(backend.BucketMembersRemoved, st.loadRemoved); err != nil {
		return nil, err
	}
	if err := b.ForEach(backend.BucketCluster, st.loadCluster); err != nil {
		return nil, err
	}
	s := &Set{b: b}
	s.cur.Store(st)
	return s, nil
}

func (st *state) loadMember(key, value []byte) error {
	id, err := ParseID(string(key))
	if err != nil {
		return fmt.Errorf("bucket members: %w", err)
	}
	m := new(Member)
	if err := json.Unmarshal(value, m); err != nil {
		return fmt.Errorf("bucket members: member %s: %w", id, err)
	}
	if m.ID != id {
		return fmt.Errorf("bucket members: the row of member %s holds member %s", id, m.ID)
	}
	st.members = append(st.members, m)
	return nil
}

func (st *state) loadRemoved(key, _ []byte) error {
	id, err := ParseID(string(key))
	if err != nil {
		return fmt.Errorf("bucket members_removed: %w", err)
	}
	st.removed[id] = struct{}{}
	return nil
}

func (st *state) loadCluster(key, value []byte) error {
	switch string(key) {
	case versionKey:
		st.version = string(value)
	case downgradeKey:
		if err := json.Unmarshal(value, &st.downgrade); err != nil {
			return fmt.Errorf("bucket cluster: key %s: %w", downgradeKey, err)
		}
	}
	return nil
}

// Members returns all members in ascending order of id. The list is shared: read only.
func (s *Set) Members() []*Member { return s.cur.Load().members }

// Get returns the member with this id, or nil. Read only.
func (s *Set) Get(id ID) *Member { return find(s.cur.Load().members, id) }

// Removed reports whether id was a member once and has been removed.
func (s *Set) Removed(id ID) bool {
	_, gone := s.cur.Load().removed[id]
	return gone
}

// RemovedIDs returns the ids of all removed members, ascending.
func (s *Set) RemovedIDs() []ID {
	return slices.Sorted(maps.Keys(s.cur.Load().removed))
}

// Version is the cluster version "X.Y.Z", the lowest of the members' versions as last agreed;
// empty before the first agreement.
func (s *Set) Version() string { return s.cur.Load().version }

// Downgrade returns the downgrade in force.
func (s *Set) Downgrade() Downgrade { return s.cur.Load().downgrade }

// ConfState is the raft configuration that belongs to the current members. The caller owns it.
func (s *Set) ConfState() *raftpb.ConfState {
	joint := false
	cs := &raftpb.ConfState{AutoLeave: &joint}
	for _, m := range s.Members() {
		if m.IsLearner {
			cs.Learners = append(cs.Learners, uint64(m.ID))
		} else {
			cs.Voters = append(cs.Voters, uint64(m.ID))
		}
	}
	return cs
}

// CheckChange reports whether the change would be accepted now, with the error that
// [Set.ApplyChange] would give. The proposing server asks it first, so that a caller need not
// wait for raft to learn of a hopeless change; the answer at apply is what counts.
func (s *Set) CheckChange(cc raftpb.ConfChangeI) error {
	one, err := single(cc)
	if err != nil {
		return err
	}
	_, _, err = s.cur.Load().after(one)
	return err
}

// ApplyChange carries out a committed configuration change and returns the member it was about as
// it now is, or, for a removal, as it last was. On error nothing has changed, and raft
// must be given [NewNothing] instead; errors are [errs.ErrMemberExist], [errs.ErrMemberNotFound]
// (also for removed ids), [errs.ErrPeerURLExist], [errs.ErrMemberNotLearner],
// [errs.ErrTooManyLearners], [errs.ErrMemberNotEnoughStarted] when no voter would remain, or
// wrap [ErrMalformedChange].
func (s *Set) ApplyChange(cc raftpb.ConfChangeI) (*Member, error) {
	one, err := single(cc)
	if err != nil {
		return nil, err
	}
	old := s.cur.Load()
	members, subject, err := old.after(one)
	if err != nil {
		return nil, err
	}
	next := *old
	next.members = members
	if one.GetType() == raftpb.ConfChangeRemoveNode {
		next.removed = maps.Clone(old.removed)
		next.removed[subject.ID] = struct{}{}
		s.deleteMember(subject.ID)
		s.b.Put(backend.BucketMembersRemoved, []byte(subject.ID.String()), []byte(removedValue))
	} else {
		s.putMember(subject)
	}
	s.cur.Store(&next)
	return subject, nil
}

// SetAttributes records the name and client URLs a started member has published about itself. It
// returns [errs.ErrMemberNotFound] for an id that is no member (any more).
func (s *Set) SetAttributes(id ID, name string, clientURLs []string) error {
	old := s.cur.Load()
	was := find(old.members, id)
	if was == nil {
		return errs.ErrMemberNotFound
	}
	m := was.clone()
	m.Name = name
	m.ClientURLs = slices.Clone(clientURLs)
	next := *old
	next.members = with(old.members, m)
	s.putMember(m)
	s.cur.Store(&next)
	return nil
}

// SetVersion records the cluster version, "X.Y.Z".
func (s *Set) SetVersion(version string) {
	next := *s.cur.Load()
	next.version = version
	s.b.Put(backend.BucketCluster, []byte(versionKey), []byte(version))
	s.cur.Store(&next)
}

// SetDowngrade records that a downgrade is in force, or (with the zero value) that none is.
func (s *Set) SetDowngrade(d Downgrade) {
	next := *s.cur.Load()
	next.downgrade = d
	s.b.Put(backend.BucketCluster, []byte(downgradeKey), mustJSON(d))
	s.cur.Store(&next)
}

// Replace makes members the whole membership and forgets which ids were removed. It is for
// creating a new cluster out of an old file, where no raft log speaks of the old members; never
// for a running cluster.
func (s *Set) Replace(members []Member) {
	old := s.cur.Load()
	for _, m := range old.members {
		s.deleteMember(m.ID)
	}
	for id := range old.removed {
		s.b.Delete(backend.BucketMembersRemoved, []byte(id.String()))
	}
	next := *old
	next.removed = make(map[ID]struct{})
	next.members = nil
	for i := range members {
		m := members[i].clone()
		s.putMember(m)
		next.members = with(next.members, m)
	}
	s.cur.Store(&next)
}

func (s *Set) putMember(m *Member) {
	s.b.Put(backend.BucketMembers, []byte(m.ID.String()), mustJSON(m))
}

func (s *Set) deleteMember(id ID) {
	s.b.Delete(backend.BucketMembers, []byte(id.String()))
}
