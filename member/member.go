package member

import (
	"cmp"
	"slices"
)

// Member is one member of a cluster. Values reached through a [Set] are shared and must not be
// modified. The JSON form is that of the members bucket, of the context of configuration changes
// and of the peers' HTTP listing.
type Member struct {
	// ID never changes and is never reused.
	ID ID `json:"id"`
	// PeerURLs are the addresses other members reach it at.
	PeerURLs []string `json:"peerURLs"`
	// IsLearner: the member receives the log but does not vote.
	IsLearner bool `json:"isLearner,omitempty"`
	// Name is what its owner calls it; empty until the member has started once.
	Name string `json:"name,omitempty"`
	// ClientURLs are the addresses it advertises to clients; empty until it has started once.
	ClientURLs []string `json:"clientURLs,omitempty"`
}

// Started reports whether the member has ever run and published itself.
func (m *Member) Started() bool { return m.Name != "" }

// Voter reports whether the member counts for quorums.
func (m *Member) Voter() bool { return !m.IsLearner }

// clone returns a copy that shares no slice with m.
func (m *Member) clone() *Member {
	c := *m
	c.PeerURLs = slices.Clone(m.PeerURLs)
	c.ClientURLs = slices.Clone(m.ClientURLs)
	return &c
}

func compareIDs(a, b ID) int { return cmp.Compare(a, b) }
