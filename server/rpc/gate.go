package rpc

import (
	"context"
	"sync/atomic"
	"unicode/utf8"

	"google.golang.org/grpc/metadata"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// State is what decides whether a member can answer at all. All methods are cheap and may be called by any
// goroutine.
type State interface {
	Leader() uint64         // the id of the member that leads, 0 when none is known
	IsLearner() bool        // whether this member has no vote
	ClusterVersion() string // what the members have agreed on, "" before they have
}

// The keys of the metadata that the gate reads.
const (
	metaLeader  = "hasleader"
	metaVersion = "client-api-version"
)

// learnerRule is what a learner does with calls of a method.
type learnerRule uint8

const (
	learnerRefuses learnerRule = iota
	learnerAnswers
	learnerReadsLocally // it answers a rpcpb.RangeRequest that is serializable
)

// learnerRules are the methods that a learner answers. There is no other way to
// get at the data of one, since it may be far behind.
var learnerRules = map[string]learnerRule{
	services.KV_Range_FullMethodName:             learnerReadsLocally,
	services.Maintenance_Status_FullMethodName:   learnerAnswers,
	services.Maintenance_Snapshot_FullMethodName: learnerAnswers,
}

// gate decides which calls are let in. Any goroutine may use it.
type gate struct {
	state   State
	metrics *metrics

	capable atomic.Bool // the cluster has a version; it will not lose it
	voter   atomic.Bool // and this member has a vote, which it will not lose either
}

// admit refuses a call, or returns nil. req is the request, nil at the opening of a stream.
// requireLeader tells that the client wants the call to end when the leader is lost.
func (g *gate) admit(ctx context.Context, m *method, req any) (requireLeader bool, err error) {
	if !g.voter.Load() {
		if err := g.admitMember(m, req); err != nil {
			return false, err
		}
	}
	versions := &g.metrics.unary
	if m.stream {
		versions = &g.metrics.stream
	}
	version := ""
	if v := metadata.ValueFromIncomingContext(ctx, metaVersion); len(v) > 0 {
		version = v[0]
		if !utf8.ValidString(version) {
			return false, errs.ErrInvalidClientAPIVersion
		}
	}
	versions.count(version)
	if v := metadata.ValueFromIncomingContext(ctx, metaLeader); len(v) == 0 || v[0] != "true" {
		return false, nil
	}
	if g.state.Leader() == 0 {
		return true, errs.ErrNoLeader
	}
	return true, nil
}

// admitMember refuses what a member without a vote, or without a cluster version, cannot answer.
func (g *gate) admitMember(m *method, req any) error {
	if !g.capable.Load() {
		if g.state.ClusterVersion() == "" {
			return errs.ErrNotCapable
		}
		g.capable.Store(true)
	}
	if !g.state.IsLearner() {
		g.voter.Store(true)
		return nil
	}
	switch m.learner {
	case learnerAnswers:
		return nil
	case learnerReadsLocally:
		if r, ok := req.(*rpcpb.RangeRequest); ok && r.GetSerializable() {
			return nil
		}
	}
	return errs.ErrNotSupportedForLearner
}
