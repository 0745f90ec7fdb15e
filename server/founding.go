package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/coordd/coordd/api/peerpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/member"
)

// A member that holds nothing but what it was founded with cannot tell by itself whether it is new, or has lost its
// files. In the second case it has forgotten its votes and what it had acknowledged, and with its vote a leader could
// win that lacks committed entries. So before raft runs, at every start until it holds more, it asks the others, again and
// again until one of these rules decides:
//
//  1. One knows that it has taken part, as the name stands there that it publishes when it does, or that it is no member any more: it must not go on.
//  2. One with a leader to confirm it says that it never has: it goes on.
//  3. One has taken part in the cluster, but has no leader to ask: wait for it.
//  4. With those that know of no decision and no leader either, it makes a majority: it goes on, this is a new cluster.
//
// A round of questions takes two election timeouts when one of the others does not even refuse the connection. Until it is decided,
// the member answers other members' questions and hears none of their raft messages.
//
// What this cannot see: a member that was wiped between its first vote and its publishing, which is moments at the first start of a cluster,
// longer for one that joined late and has much to catch up with; and one that finds a majority of members which
// never heard of anything, or were wiped too, while those that know it are down. Only a founding that waits for every
// member could; this one needs a majority. In return, a member that has not taken part yet waits as long as those that founded the cluster
// are too few to elect a leader: they may have gone on with it.

// standing is what another member's answer says of this one.
type standing int

const (
	silent  standing = iota // no answer, or one of another cluster or member
	alike                   // it knows of no decision and no leader either
	unsure                  // it knows of decisions, and knows nothing of this member that would be confirmed
	unknown                 // confirmed: this member never took part
	known                   // this member has taken part before, or is none any more
)

// opinion is the answer of one member.
type opinion struct {
	of       *member.Member
	standing standing
	why      string // for people
}

// complaints are how long a member waits for the others before it says so, and how often it repeats that.
const firstComplaint, moreComplaints = 5 * time.Second, 30 * time.Second

// runRaft runs the raft loop once this member may take part. One that must not ends the node.
func (n *Node) runRaft(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := n.awaitPart(ctx)
	if err != nil {
		cancel()
	} else {
		close(n.part)
	}
	return errors.Join(err, n.raft.Run(ctx)) // with a context that has ended it only ends what waits for it
}

// takesPart reports whether this member may take part in the cluster.
func (n *Node) takesPart() bool {
	select {
	case <-n.part:
		return true
	default:
		return false
	}
}

// awaitPart returns nil when this member may take part, or ctx ends, and an error when it must not.
func (n *Node) awaitPart(ctx context.Context) error {
	if !n.fresh {
		return nil
	}
	var others []*member.Member
	for _, m := range n.machine.Load().Members.Members() {
		if uint64(m.ID) != n.id {
			others = append(others, m)
		}
	}
	complain := time.Now().Add(firstComplaint)
	for len(others) > 0 && ctx.Err() == nil {
		opinions := n.askAll(ctx, others)
		if done, err := n.judge(opinions); done {
			return err
		}
		if now := time.Now(); now.After(complain) {
			complain = now.Add(moreComplaints)
			n.lg.Warn("this member holds nothing yet and waits for the others: before it takes part, one of them has to say that it is new, or a majority that the cluster is",
				zap.Strings("others", describe(opinions)))
		}
		sleep(ctx, n.cfg.Tick)
	}
	return nil
}

// judge decides by rules 1 to 4, if they do.
func (n *Node) judge(opinions []opinion) (done bool, err error) {
	var count [known + 1]int
	for _, o := range opinions {
		count[o.standing]++
		if o.standing == known {
			return true, fmt.Errorf("member %s (%v) %s, but %s holds nothing of it: what it had acknowledged is lost, so it must not take part again; "+
				"put back the very files it had, not an older copy, or remove the member and add it anew with an empty data directory",
				n.cfg.Name, member.ID(n.id), o.why, n.cfg.DataDir)
		}
	}
	switch {
	case count[unknown] > 0:
		return true, nil
	case count[unsure] > 0:
		return false, nil
	}
	return 1+count[alike] > (1+len(opinions))/2, nil
}

// askAll asks all others at the same time, for two election timeouts at most; once one knows, it waits for no more.
func (n *Node) askAll(ctx context.Context, others []*member.Member) []opinion {
	ctx, cancel := context.WithTimeout(ctx, 2*n.cfg.electionTimeout())
	defer cancel()
	answers := make(chan opinion, len(others))
	for _, m := range others {
		go func() { answers <- n.ask(ctx, m) }() // ends with ctx, and is waited for
	}
	var all []opinion
	for range others {
		o := <-answers
		if all = append(all, o); o.standing >= unknown {
			cancel()
		}
	}
	return all
}

// ask asks one other member about this one.
func (n *Node) ask(ctx context.Context, m *member.Member) opinion {
	info, err := n.transport.Info(ctx, uint64(m.ID), &peerpb.InfoRequest{})
	switch {
	case err != nil:
		return opinion{m, silent, "does not answer: " + err.Error()}
	case info.ClusterId != n.clusterID:
		return opinion{m, silent, fmt.Sprintf("is of another cluster, %v", member.ID(info.ClusterId))}
	case info.MemberId != uint64(m.ID): // perhaps this member itself
		return opinion{m, silent, fmt.Sprintf("is member %v, so the address is wrong", member.ID(info.MemberId))}
	}
	if why := n.tookPart(info.Members); why != "" {
		return opinion{m, known, why}
	}
	if info.Blank {
		return opinion{m, alike, "knows of nothing either"}
	}
	info, err = n.transport.Info(ctx, uint64(m.ID), &peerpb.InfoRequest{Confirmed: true})
	if err != nil {
		return opinion{m, unsure, "has data, and no leader to say whether this member is new: " + err.Error()}
	}
	if why := n.tookPart(info.Members); why != "" {
		return opinion{m, known, why}
	}
	return opinion{m, unknown, "says that this member is new"}
}

// tookPart tells why this member is none that is new to a cluster of these members; "" if it is one.
func (n *Node) tookPart(members []*rpcpb.Member) string {
	for _, m := range members {
		switch {
		case m.ID != n.id:
		case m.Name == "":
			return ""
		default:
			return "has taken part in this cluster before"
		}
	}
	return "was removed from this cluster"
}

// describe is what each of the others said.
func describe(opinions []opinion) (out []string) {
	for _, o := range opinions {
		out = append(out, fmt.Sprintf("%v at %s %s", o.of.ID, strings.Join(o.of.PeerURLs, ","), o.why))
	}
	return out
}
