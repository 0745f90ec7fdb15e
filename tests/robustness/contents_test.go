package robustness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/coordd/coordd/tests/cluster"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// contents holds against each other what the members hold at each compaction. The hash at a compacted revision depends on what was
// written up to it and on nothing that comes later, until the next compaction; so the members need not be asked at the same time, and one that
// is down or lags is asked again.
type contents struct {
	members []*cluster.Member
	violate func(format string, args ...any)

	mu       sync.Mutex // guards the rest
	rev      int64      // of the newest compaction that surely was done, 0: none yet
	answers  []answer   // of the members at it
	compared int        // answers that were held against another one's
}

// answer is what a member has said of its content.
type answer struct {
	known bool
	hash  uint32
	err   error // why it is not known, if it was asked
}

func newContents(members []*cluster.Member, violate func(format string, args ...any)) *contents {
	return &contents{members: members, violate: violate, answers: make([]answer, len(members))}
}

// compacted notes a compaction that was done. Members that have not answered at the one before are not asked about it any more.
func (c *contents) compacted(rev int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rev > c.rev {
		c.rev, c.answers = rev, make([]answer, len(c.members))
	}
}

// follow asks a member until the context ends: at each compaction as often as it takes to get an answer.
func (c *contents) follow(ctx context.Context, member int, client *clientv3.Client) {
	for {
		if rev := c.due(member); rev > 0 {
			hash, err := c.ask(ctx, member, client, rev)
			c.note(member, rev, answer{err == nil, hash, err})
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// due is the compacted revision that a member is to be asked for, 0 if it has answered.
func (c *contents) due(member int) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers[member].known {
		return 0
	}
	return c.rev
}

// ask asks a member once. An error says why it cannot tell now.
func (c *contents) ask(ctx context.Context, member int, client *clientv3.Client, rev int64) (uint32, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	m := c.members[member]
	h, err := client.HashKV(ctx, m.ClientURL, rev)
	switch {
	case err != nil:
		return 0, err
	case h.HashRevision != rev || h.CompactRevision > rev:
		c.violate("%s was asked for its hash at revision %d and answers %v", m.Name, rev, h)
		return 0, errors.New("it answers something else")
	case h.CompactRevision < rev:
		return 0, fmt.Errorf("it is compacted at %d", h.CompactRevision)
	}
	return h.Hash, nil
}

// note takes an answer and holds it against those of others.
func (c *contents) note(member int, rev int64, a answer) {
	c.mu.Lock()
	if rev != c.rev { // there was another compaction meanwhile
		c.mu.Unlock()
		return
	}
	differs := false
	for _, other := range c.answers {
		if a.known && other.known {
			c.compared++
			differs = differs || other.hash != a.hash
		}
	}
	c.answers[member] = a
	all := c.listLocked()
	c.mu.Unlock()
	if differs {
		c.violate("at revision %d, compacted there, members hold different contents: %s", rev, all)
	}
}

// listLocked lists what the members have said at the newest compaction.
func (c *contents) listLocked() string {
	var all []string
	for i, a := range c.answers {
		switch {
		case a.known:
			all = append(all, fmt.Sprintf("%s has hash %d", c.members[i].Name, a.hash))
		case a.err != nil:
			all = append(all, fmt.Sprintf("%s says %v", c.members[i].Name, a.err))
		default:
			all = append(all, c.members[i].Name+" has not answered")
		}
	}
	return strings.Join(all, ", ")
}

// lacking is an error unless all members have answered at the newest compaction.
func (c *contents) lacking() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.answers {
		if !a.known {
			return fmt.Errorf("at revision %d, compacted there: %s", c.rev, c.listLocked())
		}
	}
	return nil
}

// count is how often an answer was held against another.
func (c *contents) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.compared
}
