package member

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/coordd/coordd/api/errs"
)

// ErrMalformedChange is wrapped by the errors for configuration changes that no coordd proposes:
// an unreadable context, a context about another member than the change, several changes in one.
var ErrMalformedChange = errors.New("member: malformed configuration change")

// Change is the context carried by a raft configuration change: the member it is about, in the
// JSON form of [Member] with two more fields.
type Change struct {
	Member
	// IsPromote distinguishes making a learner a voter from adding a new voter, which raft's own
	// type does not.
	IsPromote bool `json:"isPromote"`
	// MaxLearners is how many learners the cluster may have after the change by the option of
	// the member that proposed it; 0 means no limit. It rides along so that all members
	// decide alike whatever their own options are.
	MaxLearners int `json:"maxLearners,omitempty"`
}

// NewAdd builds the change that adds m, as learner if m says so. request is the id by which the
// proposer waits for the outcome. maxLearners is used for learners only; see [Change].
func NewAdd(request uint64, m Member, maxLearners int) *raftpb.ConfChange {
	c := Change{Member: m}
	typ := raftpb.ConfChangeAddNode
	if m.IsLearner {
		typ = raftpb.ConfChangeAddLearnerNode
		c.MaxLearners = maxLearners
	}
	return build(request, typ, m.ID, &c)
}

// NewPromote builds the change that makes the learner id a voter.
func NewPromote(request uint64, id ID) *raftpb.ConfChange {
	return build(request, raftpb.ConfChangeAddNode, id, &Change{Member: Member{ID: id}, IsPromote: true})
}

// NewUpdate builds the change that gives member id new peer URLs.
func NewUpdate(request uint64, id ID, peerURLs []string) *raftpb.ConfChange {
	return build(request, raftpb.ConfChangeUpdateNode, id, &Change{Member: Member{ID: id, PeerURLs: peerURLs}})
}

// NewRemove builds the change that removes member id for ever.
func NewRemove(request uint64, id ID) *raftpb.ConfChange {
	return build(request, raftpb.ConfChangeRemoveNode, id, nil)
}

// NewNothing builds the change that leaves the configuration as it is: what raft is given in
// place of a change the Set refused, since raft must be told of every change it committed.
func NewNothing() *raftpb.ConfChange {
	return build(0, raftpb.ConfChangeAddNode, 0, nil)
}

func build(request uint64, typ raftpb.ConfChangeType, id ID, c *Change) *raftpb.ConfChange {
	node := uint64(id)
	cc := &raftpb.ConfChange{Type: typ.Enum(), NodeId: &node, Id: &request}
	if c != nil {
		cc.Context = mustJSON(c)
	}
	return cc
}

// mustJSON encodes a value of this package: plain structs of strings and numbers, which cannot fail.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("member: encoding %T: %v", v, err))
	}
	return b
}

// single brings a configuration change to the form all changes here have: one operation on one
// member, not joint.
func single(cc raftpb.ConfChangeI) (*raftpb.ConfChange, error) {
	if v1, ok := cc.AsV1(); ok {
		return v1, nil
	}
	v2 := cc.AsV2()
	if len(v2.GetChanges()) != 1 || v2.GetTransition() != raftpb.ConfChangeTransitionAuto {
		return nil, fmt.Errorf("%w: %d operations with transition %s; one plain operation is expected",
			ErrMalformedChange, len(v2.GetChanges()), v2.GetTransition())
	}
	op := v2.GetChanges()[0]
	node := op.GetNodeId()
	return &raftpb.ConfChange{Type: op.GetType().Enum(), NodeId: &node, Context: v2.GetContext()}, nil
}

// decode reads the context of a change and checks that both speak of the same member.
func decode(cc *raftpb.ConfChange) (*Change, error) {
	id := ID(cc.GetNodeId())
	if id == 0 {
		return nil, fmt.Errorf("%w: member id 0", ErrMalformedChange)
	}
	c := &Change{Member: Member{ID: id}}
	if cc.GetType() == raftpb.ConfChangeRemoveNode {
		return c, nil
	}
	if err := json.Unmarshal(cc.GetContext(), c); err != nil {
		return nil, fmt.Errorf("%w: context of %s for member %s: %s", ErrMalformedChange, cc.GetType(), id, err)
	}
	if c.ID != id {
		return nil, fmt.Errorf("%w: %s for member %s has the context of member %s", ErrMalformedChange, cc.GetType(), id, c.ID)
	}
	return c, nil
}

// after computes the members that follow from one change, or why it is refused. It is the one
// place that knows the rules; s is not modified.
func (s *state) after(cc *raftpb.ConfChange) (members []*Member, subject *Member, err error) {
	c, err := decode(cc)
	if err != nil {
		return nil, nil, err
	}
	if _, gone := s.removed[c.ID]; gone {
		return nil, nil, errs.ErrMemberNotFound
	}
	switch cc.GetType() {
	case raftpb.ConfChangeAddNode, raftpb.ConfChangeAddLearnerNode:
		if c.IsPromote {
			subject, err = s.promoted(c, cc.GetType())
		} else {
			subject, err = s.added(c, cc.GetType() == raftpb.ConfChangeAddLearnerNode)
		}
	case raftpb.ConfChangeUpdateNode:
		subject, err = s.updated(c)
	case raftpb.ConfChangeRemoveNode:
		subject = find(s.members, c.ID)
		if subject == nil {
			return nil, nil, errs.ErrMemberNotFound
		}
		members = without(s.members, c.ID)
	default:
		err = fmt.Errorf("%w: unknown type %d", ErrMalformedChange, cc.GetType())
	}
	if err != nil {
		return nil, nil, err
	}
	if members == nil {
		members = with(s.members, subject)
	}
	if Voters(members) == 0 { // raft cannot live without a voter
		return nil, nil, errs.ErrMemberNotEnoughStarted
	}
	return members, subject, nil
}

func (s *state) added(c *Change, learner bool) (*Member, error) {
	if find(s.members, c.ID) != nil {
		return nil, errs.ErrMemberExist
	}
	if s.urlTaken(c.PeerURLs, c.ID) {
		return nil, errs.ErrPeerURLExist
	}
	if learner && c.MaxLearners > 0 && len(s.members)-Voters(s.members) >= c.MaxLearners {
		return nil, errs.ErrTooManyLearners
	}
	m := c.Member.clone()
	m.IsLearner = learner
	return m, nil
}

func (s *state) promoted(c *Change, typ raftpb.ConfChangeType) (*Member, error) {
	old := find(s.members, c.ID)
	switch {
	case old == nil:
		return nil, errs.ErrMemberNotFound
	case !old.IsLearner:
		return nil, errs.ErrMemberNotLearner
	case typ != raftpb.ConfChangeAddNode:
		return nil, fmt.Errorf("%w: promotion of %s with type %s", ErrMalformedChange, c.ID, typ)
	}
	m := old.clone()
	m.IsLearner = false
	return m, nil
}

func (s *state) updated(c *Change) (*Member, error) {
	old := find(s.members, c.ID)
	if old == nil {
		return nil, errs.ErrMemberNotFound
	}
	if s.urlTaken(c.PeerURLs, c.ID) {
		return nil, errs.ErrPeerURLExist
	}
	m := old.clone()
	m.PeerURLs = slices.Clone(c.PeerURLs)
	return m, nil
}

// urlTaken reports whether a member other than id already has one of urls.
func (s *state) urlTaken(urls []string, id ID) bool {
	for _, m := range s.members {
		if m.ID == id {
			continue
		}
		if slices.ContainsFunc(urls, func(u string) bool { return slices.Contains(m.PeerURLs, u) }) {
			return true
		}
	}
	return false
}

// with returns members with m added or put in place of the one with its id, still sorted.
func with(members []*Member, m *Member) []*Member {
	i, found := slices.BinarySearchFunc(members, m.ID, func(x *Member, id ID) int { return compareIDs(x.ID, id) })
	next := slices.Clone(members)
	if found {
		next[i] = m
		return next
	}
	return slices.Insert(next, i, m)
}

// without returns members less the one with this id. The result is never nil.
func without(members []*Member, id ID) []*Member {
	next := make([]*Member, 0, len(members))
	for _, m := range members {
		if m.ID != id {
			next = append(next, m)
		}
	}
	return next
}
