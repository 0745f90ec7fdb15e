package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/server"
)

// Options of a run.
type Options struct {
	Seed    uint64
	Members int           // 3 or 5; 0 = drawn from the seed
	Length  time.Duration // of the time with faults; 0 = 30 s
	Plan    []Fault       // instead of one drawn from the seed, if not nil
	Dir     string        // for files, empty
}

// Stats counts what a run did. A change of leader is counted by each member that notices.
type Stats struct {
	Runs, Faults, Cuts, Starts, Ops, Unknown, Events, Notices, Sessions, Leases, Renewals, Compactions, Hashes, LeaderChanges, Snapshots, Flips, Wipes, Messages, Lost int
	Revisions                                                                                                                                                          int64
	Virtual                                                                                                                                                            time.Duration
	// Of locks and elections: what was asked for and given, writes with an old token that were refused, and messages of observers.
	Claims, Holds, Refused, News int
}

// Add adds the counts of another run.
func (s *Stats) Add(o Stats) {
	s.Runs += o.Runs
	s.Faults += o.Faults
	s.Cuts += o.Cuts
	s.Starts += o.Starts
	s.Ops += o.Ops
	s.Unknown += o.Unknown
	s.Events += o.Events
	s.Notices += o.Notices
	s.Sessions += o.Sessions
	s.Leases += o.Leases
	s.Renewals += o.Renewals
	s.Compactions += o.Compactions
	s.Hashes += o.Hashes
	s.LeaderChanges += o.LeaderChanges
	s.Snapshots += o.Snapshots
	s.Flips += o.Flips
	s.Wipes += o.Wipes
	s.Messages += o.Messages
	s.Lost += o.Lost
	s.Claims += o.Claims
	s.Holds += o.Holds
	s.Refused += o.Refused
	s.News += o.News
	s.Revisions += o.Revisions
	s.Virtual += o.Virtual
}

// Result is what came of a run.
type Result struct {
	Stats      Stats
	Plan       []Fault
	Violations []Violation // in order of time
	Report     string      // for people, when something is broken
	Unsure     bool        // porcupine did not come to an end in its time; all else holds

	cluster *cluster
	verdict *verdict
	locks   *lockBook
	visual  *porcupine.LinearizationInfo
}

// Linearize lets porcupine judge the history of the registers, within some real time. It must be called outside of the bubble,
// in which time stands still while it works.
func (r *Result) Linearize(atMost time.Duration) {
	if r.verdict == nil {
		return
	}
	broken, unsure := r.locks.linearize(atMost)
	r.Unsure = unsure
	r.add(broken...)
	switch answer, info := r.verdict.linearize(atMost); answer {
	case porcupine.Illegal:
		at := r.Stats.Virtual
		r.add(Violation{at, "no order explains what clients of the registers were told"})
		r.visual = &info
	case porcupine.Unknown:
		r.Unsure = true
	}
}

// add adds violations that were found late, behind the others.
func (r *Result) add(broken ...Violation) {
	r.Violations = append(r.Violations, broken...)
	if len(broken) > 0 && r.Report == "" {
		r.Report = r.verdict.c.report(r.Violations, r.Plan)
	}
}

// WriteHTML writes the history of the registers as a page, if it is what is broken.
func (r *Result) WriteHTML(path string) error {
	if r.visual == nil {
		return errors.New("sim: the history of the registers is linearizable, there is nothing to show")
	}
	return porcupine.VisualizePath(registersModel(), *r.visual, path)
}

// Run runs one seed. It must be called within a bubble of testing/synctest. An error means that it
// could not begin.
func Run(o Options) (*Result, error) {
	rng := rand.New(rand.NewPCG(o.Seed, 1))
	if o.Length == 0 {
		o.Length = 30 * time.Second
	}
	shape := newShape(rng, o.Members)
	plan := o.Plan
	if plan == nil {
		plan = Plan(rng, shape.members, o.Length)
	}
	c, err := newCluster(o.Seed, shape, o.Dir)
	if err != nil {
		return nil, err
	}
	w := newWorkload(c)
	if c.found() {
		w.start()
		c.run(plan)
		w.finish()
	}
	c.close()
	w.verify()
	return c.result(plan, w), nil
}

// workload is all that clients do in a run. Locks and elections, membership changes, defragments
// and restores take their place here: a loop that ends with cluster.stop, and a check in verify.
type workload struct {
	c         *cluster
	clients   []*client
	watchers  []*watcher
	holders   []*holder
	locks     *lockWork
	compactor *compactor
	watching  context.Context // outlives the other work, so that the ledger gets its end
	endWatch  context.CancelFunc
	ended     time.Duration
	verdict   *verdict // nil if the run did not come to its end
}

const (
	scribes      = 4
	moreWatchers = 4
	holders      = 4
)

func newWorkload(c *cluster) *workload {
	w := &workload{c: c, compactor: newCompactor(c), locks: newLockWork(c)}
	w.watching, w.endWatch = context.WithCancel(context.Background())
	for i := range c.shape.clients {
		w.clients = append(w.clients, newClient(c, i+1))
	}
	for i := range scribes + moreWatchers {
		w.watchers = append(w.watchers, newWatcher(c, i+1, i < scribes))
	}
	for i := range holders {
		w.holders = append(w.holders, newHolder(c, i))
	}
	return w
}

func (w *workload) start() {
	for _, k := range w.clients {
		w.c.wg.Go(k.run)
	}
	for _, x := range w.watchers {
		w.c.wg.Go(func() { x.run(w.watching) })
	}
	for _, h := range w.holders {
		w.c.wg.Go(h.run)
	}
	w.locks.start(w.c)
	w.c.wg.Go(w.compactor.run)
}

// finish ends the faults and the work, lets leases end, and has members and watchers agree on the end.
func (w *workload) finish() {
	defer w.endWatch()
	if w.c.failed() || !w.c.heal() {
		return
	}
	w.locks.book.settled = w.c.now()
	pause(context.Background(), peace)
	w.c.stopNow()
	pause(context.Background(), renewalLinger+w.c.shape.longest(time.Duration(w.c.shape.leaseTTL[1])*time.Second)+2*leaseSlack)
	w.ended = w.c.now()
	last := w.lastWrite()
	if last == 0 {
		return
	}
	deadline := w.c.now() + recovery
	for w.c.ledger.complete() < last {
		if w.c.now() > deadline {
			w.c.violate("the watchers have all events up to revision %d, the store is at %d", w.c.ledger.complete(), last)
			return
		}
		pause(context.Background(), 50*time.Millisecond)
	}
	w.compareMembers(last)
}

// lastWrite makes one more revision and returns it, 0 if that fails.
func (w *workload) lastWrite() int64 {
	_, n, life := w.c.pick(rand.New(rand.NewPCG(w.c.seed, 5)))
	ctx, cancel := context.WithTimeout(life, recovery)
	defer cancel()
	o := w.c.do(ctx, 99, 0, n, request{then: []action{{kind: put, key: "end", value: "the end"}}})
	if !o.known {
		w.c.violate("a write after all faults have ended: %s", o.err)
		return 0
	}
	return o.rev
}

// compareMembers reads everything from each member, and compares it with the ledger and the others.
func (w *workload) compareMembers(rev int64) {
	r, _ := w.c.ledger.play()
	want := r.all(rev)
	for _, m := range w.c.members {
		n, life := m.live()
		if n == nil {
			if !m.lost {
				w.c.violate("%s does not run at the end", m.name)
			}
			continue
		}
		got, err := content(life, n)
		if err != nil {
			w.c.violate("reading from %s at the end: %v", m.name, err)
			continue
		}
		for key, c := range want {
			if got[key] != c {
				w.c.violate("%s holds %s as %+v at the end, must hold %+v", m.name, key, got[key], c)
			}
		}
		for key, c := range got {
			if _, ok := want[key]; !ok {
				w.c.violate("%s holds %s as %+v at the end, which must not exist", m.name, key, c)
			}
		}
	}
	w.compactor.compare()
}

// content is all a member holds.
func content(ctx context.Context, n *server.Node) (map[string]cell, error) {
	got := map[string]cell{}
	_, err := n.Range(ctx, &rpcpb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}, func(row []byte) error {
		kv := &kvpb.KeyValue{}
		err := kv.UnmarshalVT(row)
		got[string(kv.Key)] = cellOf(kv)
		return err
	})
	return got, err
}

// verify checks what can be checked after the end. All goroutines have ended.
func (w *workload) verify() {
	r, bad := w.c.ledger.play()
	for _, err := range bad {
		w.c.violate("%v", err)
	}
	for _, x := range w.watchers {
		for _, s := range x.sessions {
			if err := s.check(r, w.compactor.taken); err != nil {
				w.c.violate("%v", err)
			}
		}
		w.c.stats.Sessions += len(x.sessions)
	}
	if w.ended == 0 { // it has not come to its end, so the ledger lacks what was last
		return
	}
	for _, h := range w.holders {
		h.check(r, w.ended)
	}
	w.locks.check(r, w.compactor.taken)
	v := &verdict{c: w.c, r: r}
	v.check()
	w.verdict = v
}

// result puts together what came of the run.
func (c *cluster) result(plan []Fault, w *workload) *Result {
	c.network.set(func() { c.stats.Messages, c.stats.Lost = c.network.carried, c.network.lost })
	c.stats.Runs, c.stats.Virtual, c.stats.Revisions = 1, c.now(), c.ledger.complete()
	slices.SortStableFunc(c.violation, func(a, b Violation) int { return int(a.At - b.At) })
	r := &Result{Stats: c.stats, Plan: plan, Violations: c.violation, cluster: c, verdict: w.verdict, locks: w.locks.book}
	if len(c.violation) > 0 {
		r.Report = c.report(c.violation, plan)
	}
	return r
}

// report tells what was broken and what happened around it.
func (c *cluster) report(broken []Violation, plan []Fault) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %d members, slow disk %v, log released every %d entries\n\nbroken:\n", c.seed, c.shape.members, c.shape.slowDisk, c.shape.snapshotCount)
	for i, v := range broken {
		if i == 8 {
			fmt.Fprintf(&b, "  and %d more\n", len(broken)-i)
			break
		}
		fmt.Fprintf(&b, "  %.4fs %s\n", v.At.Seconds(), v.What)
	}
	first := broken[0].At
	fmt.Fprintf(&b, "\nfaults:\n%s\ntimeline before the first:\n%s", describe(plan), c.timeline.between(first-8*time.Second, first+time.Second, 120))
	return b.String()
}

// TempDir is a new directory for the files of a run, in memory where the system offers that: bbolt flushes at
// every commit, and a power cut of the simulation never loses what the real system has.
func TempDir() (dir string, remove func(), err error) {
	parent := "/dev/shm"
	if info, statErr := os.Stat(parent); statErr != nil || !info.IsDir() {
		parent = ""
	}
	if dir, err = os.MkdirTemp(parent, "coordd-sim-"); err != nil {
		if dir, err = os.MkdirTemp("", "coordd-sim-"); err != nil {
			return "", nil, err
		}
	}
	dir = filepath.Clean(dir)
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}
