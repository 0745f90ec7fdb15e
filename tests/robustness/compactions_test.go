package robustness

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coordd/coordd/tests/cluster"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// compaction is a call that may have compacted.
type compaction struct {
	rev int64
	at  time.Duration
}

// compact compacts now and then, never what the ledger has not got.
func (r *run) compact() {
	rng, c := r.rand(2000), r.etcd("compactor")
	const rest, again = 8 * time.Second, 2 * time.Second
	for most := again; r.pause(rng, most); {
		most = again
		rev := r.ledger.Complete() - int64(rng.IntN(500))
		if rev < 1 || r.compactAt(r.ctx, c, rev) != nil { // the revision may be one that is compacted
			continue
		}
		r.count("compactions", 1)
		r.contents.compacted(rev)
		most = rest
	}
}

// compactAt compacts, and notes before that it may.
func (r *run) compactAt(ctx context.Context, c *clientv3.Client, rev int64) error {
	r.mu.Lock()
	r.compacts = append(r.compacts, compaction{rev, r.site.Now()})
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := c.Compact(ctx, rev)
	return err
}

// compacted tells whether the pair before a revision may have been compacted at some time.
func (r *run) compacted(rev int64, when time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.compacts {
		if c.rev >= rev && c.at <= when {
			return true
		}
	}
	return false
}

// mustCompare is how long a run may be that has compared no contents while there were faults. No fault lasts nearly as long, and without
// one there is a compaction within some seconds.
const mustCompare = 30 * time.Second

// compareContents has each member asked at each compaction what it holds, until the watches end.
func (r *run) compareContents() {
	for i := range r.contents.members {
		c := r.etcd(fmt.Sprintf("comparer%d", i+1), i)
		r.watches.Go(func() { r.contents.follow(r.watchCtx, i, c) })
	}
}

// compareLast compacts once more, when all members run and nothing is disturbed, and waits until all have told what they hold.
func (r *run) compareLast() {
	if r.contents.count() == 0 && r.duration >= mustCompare {
		r.violate("no contents were compared in %v of faults", r.duration)
	}
	c := r.etcd("compactor")
	r.check(cluster.Poll(r.watchCtx, settle, func() error {
		rev := r.ledger.Complete()
		// No other was asked for after this revision, so one that came first was at this very revision.
		if err := r.compactAt(r.watchCtx, c, rev); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
			return err
		}
		r.contents.compacted(rev)
		return nil
	}), "the last compaction")
	r.check(cluster.Poll(r.watchCtx, settle, r.contents.lacking), "contents at the last compaction")
}
