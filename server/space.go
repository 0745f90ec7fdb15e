package server

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/apply"
	"github.com/coordd/coordd/member"
)

// Quota. What counts is live data: pages that compaction has freed are used
// again by the file and are no reason to refuse writes, so nobody has to rewrite
// the file to get out of NOSPACE. Each member watches its own file. The alarm is
// replicated, so that one full member makes all refuse; the member that raised it
// clears it when its live data is below clearAt of the quota.
const (
	spaceCheck = time.Second
	clearAt    = 0.9
)

// overQuota reports whether live data and a request of the given cost reach the quota.
func (n *Node) overQuota(cost int64) bool {
	if n.cfg.QuotaBytes < 0 || cost == 0 {
		return false
	}
	_, used := n.machine.Load().Backend.Size()
	return used+cost >= n.cfg.QuotaBytes
}

// admit refuses a request that adds data when there is no room for it, and then
// sees to it that the cluster knows. The alarm itself is checked when the
// request is applied.
//
// A request that would be refused at any time, since it is malformed or too large, is refused for that, also when there is no
// room: the answer does not depend on the state of the member, and no such request can make the cluster refuse the writes of all
// others. etcd looks at the room first.
func (n *Node) admit(ctx context.Context, cost int64, r interface{ SizeVT() int }) error {
	if !n.overQuota(cost) {
		return nil
	}
	if uint(r.SizeVT()) > n.cfg.MaxRequestBytes {
		return errs.ErrRequestTooLarge
	}
	if !n.spaceAlarm() {
		n.lg.Warn("message exceeded backend quota; raising alarm", zap.Int64("quota-bytes", n.cfg.QuotaBytes))
		if err := n.setSpaceAlarm(ctx, rpcpb.AlarmRequest_ACTIVATE); err != nil {
			n.lg.Warn("could not raise the alarm NOSPACE", zap.Error(err))
		}
	}
	return errs.ErrNoSpace
}

// spaceAlarm reports whether this member's own alarm NOSPACE is on.
func (n *Node) spaceAlarm() bool {
	return n.machine.Load().Alarms.Raised(apply.Alarm{Member: n.id, Type: rpcpb.AlarmType_NOSPACE})
}

func (n *Node) setSpaceAlarm(ctx context.Context, action rpcpb.AlarmRequest_AlarmAction) error {
	_, err := n.Alarm(ctx, &rpcpb.AlarmRequest{Action: action, MemberID: n.id, Alarm: rpcpb.AlarmType_NOSPACE})
	return err
}

// spaceLoop clears this member's own alarm when there is room again, until ctx ends.
func (n *Node) spaceLoop(ctx context.Context) error {
	tick := time.NewTicker(spaceCheck)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if !n.spaceAlarm() {
			continue
		}
		_, used := n.machine.Load().Backend.Size()
		if n.cfg.QuotaBytes >= 0 && float64(used) >= clearAt*float64(n.cfg.QuotaBytes) {
			continue
		}
		if err := n.setSpaceAlarm(ctx, rpcpb.AlarmRequest_DEACTIVATE); err == nil {
			n.lg.Info("there is room again; cleared the alarm NOSPACE", zap.Stringer("local-member-id", member.ID(n.id)))
		}
	}
}
