package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/coordd/coordd/api/coorddpb"
	"github.com/coordd/coordd/api/errs"
)

const (
	// tellWithin is how late somebody may be told what is news for him, after that time without a disturbance: longer than
	// any fault lasts.
	tellWithin = 12 * time.Second
	// tellInPeace is the same when no fault is left: longer than a member waits for a call that the network has lost.
	tellInPeace = 3500 * time.Millisecond
	// peace is how long work goes on without faults at the end.
	peace = 4 * time.Second
)

// lockJudge holds the book of locks and elections against the ledger.
type lockJudge struct {
	c      *cluster
	b      *lockBook
	r      *replay
	queues map[string]*lockQueue
	bonds  map[int64]*bond
	asked  answers               // newest revisions that had been answered
	byBond map[bondedTo][]*claim // bond.id 0: sessions of claims that were never told of a lease
	// compacted tells whether a compaction may have taken what happened at a revision by some time.
	compacted func(rev int64, by time.Duration) bool
}

type bondedTo struct {
	name string
	id   int64
}

func newLockJudge(b *lockBook, r *replay, compacted func(rev int64, by time.Duration) bool) *lockJudge {
	j := &lockJudge{c: b.c, b: b, r: r, queues: lockQueues(r), bonds: map[int64]*bond{}, byBond: map[bondedTo][]*claim{}, compacted: compacted}
	for _, x := range b.bonds {
		j.bonds[x.id] = x
	}
	for _, k := range b.claims {
		at := bondedTo{k.name, k.bond.id}
		j.byBond[at] = append(j.byBond[at], k)
	}
	j.collect()
	return j
}

// collect sorts all revisions that were answered, to anybody.
func (j *lockJudge) collect() {
	var all []*op
	for _, o := range j.c.history.ops {
		if o.known {
			all = append(all, o)
		}
	}
	note := func(known bool, back time.Duration, rev int64) {
		if known {
			all = append(all, &op{back: back, rev: rev})
		}
	}
	for _, k := range j.b.claims {
		note(k.known && k.held && k.way != byStream, k.back, k.rev)
	}
	for _, x := range j.b.releases {
		note(x.known, x.back, x.rev)
	}
	for _, x := range j.b.speeches {
		note(x.accepted, x.back, x.rev)
	}
	slices.SortFunc(all, func(a, b *op) int { return cmp.Compare(a.back, b.back) })
	for _, o := range all {
		j.asked.add(o)
	}
}

// of are the claims that may stand behind a place: those with its lease, or if nobody knows the lease those that never heard of theirs.
func (j *lockJudge) of(name string, lease int64) []*claim {
	if j.bonds[lease] == nil {
		lease = 0
	}
	return j.byBond[bondedTo{name, lease}]
}

func (j *lockJudge) seen(rev int64) time.Duration { return j.r.l.changes[rev].seen }

// check checks everything.
func (j *lockJudge) check() {
	for _, q := range j.queues {
		j.checkQueue(q)
	}
	for _, k := range j.b.claims {
		if err := j.checkClaim(k); err != nil {
			j.c.violateAt(min(k.back, k.left), "%v: %v", err, k)
		}
	}
	for _, x := range j.b.releases {
		if err := j.checkRelease(x); err != nil {
			j.c.violateAt(x.back, "%v: %v", err, x)
		}
	}
	for _, x := range j.b.lists {
		if err := j.checkList(x); err != nil {
			j.c.violateAt(x.back, "%v: %v", err, x)
		}
	}
	j.checkElections()
	j.oneHolder()
	for name, res := range j.b.resources {
		if at, err := j.checkResource(j.queues[name], res); err != nil {
			j.c.violateAt(at, "what %s guards: %v", name, err)
		}
	}
}

// checkQueue explains all that happened to a queue.
func (j *lockJudge) checkQueue(q *lockQueue) {
	for _, key := range q.keys {
		was := cell{}
		for _, v := range q.r.keys[key] {
			var err error
			s := standing{key, v.cell}
			switch _, guards := s.mode(); {
			case v.cell.Version == 1 && guards == 0:
				err = j.created(q.name, s, v.rev)
			case v.cell.Version > 1:
				err = j.rewritten(q.name, s, was, v.rev)
			case v.cell.Version == 0:
				err = j.deleted(q.name, standing{key, was}, v.rev)
			}
			if err != nil {
				j.c.violateAt(j.seen(v.rev), "revision %d: %v", v.rev, err)
			}
			was = v.cell
		}
	}
	for _, s := range q.all(q.r.last) {
		j.c.violateAt(j.seen(s.cell.Create), "%s with token %d and lease %x is still in its queue at the end, when all leases have ended", s.key, s.cell.Create, s.cell.Lease)
	}
}

// created finds who asked for a new place.
func (j *lockJudge) created(name string, s standing, rev int64) error {
	if want := fmt.Sprintf("%s/%x", name, s.cell.Lease); s.key != want {
		return fmt.Errorf("the place %s is attached to lease %x", s.key, s.cell.Lease)
	}
	m, _ := s.mode()
	for _, k := range j.of(name, s.cell.Lease) {
		told := k.known && k.held && k.token != rev
		if k.call <= j.seen(rev) && !told && k.mode == m && (k.way != byVote || k.value == s.cell.Value) {
			return nil
		}
	}
	return fmt.Errorf("%s appears, for which nobody asked, or who asked was told of another place", s.key)
}

// rewritten finds who gave a place another value, or, leaving the value, took it over from another call with the same lease.
func (j *lockJudge) rewritten(name string, s standing, was cell, rev int64) error {
	asked := 0
	for _, k := range j.of(name, s.cell.Lease) {
		if k.call > j.seen(rev) {
			continue
		}
		if k.way == byVote && k.value == s.cell.Value {
			return nil
		}
		asked++
	}
	if asked > 1 && s.cell.Value == was.Value {
		return nil
	}
	for _, x := range j.b.speeches {
		if x.value == s.cell.Value && x.by.key == s.key && x.by.token == s.cell.Create && x.call <= j.seen(rev) {
			if x.known && (!x.accepted || x.rev != rev) {
				return fmt.Errorf("%s gets a value whose speaker was told otherwise: %v", s.key, x)
			}
			return nil
		}
	}
	return fmt.Errorf("%s gets the value %q, which nobody with that token proclaimed", s.key, s.cell.Value)
}

// deleted finds why a place was deleted: it was given back, given up, or its lease has ended. A lease ends when its owner lets it, or when
// its time is over.
func (j *lockJudge) deleted(name string, was standing, rev int64) error {
	if _, guards := was.mode(); guards != 0 {
		return nil // those who stand behind it were no earlier than it let them: holds says that
	}
	seen, token := j.seen(rev), was.cell.Create
	for _, x := range j.b.releases {
		if x.key == was.key && (x.token == 0 || x.token == token) && x.call <= seen && (!x.known || x.rev == rev) {
			return nil
		}
	}
	lasts, holder := time.Duration(0), (*claim)(nil)
	for _, k := range j.of(name, was.cell.Lease) {
		switch {
		case k.call > seen:
		case k.way == byStream && min(k.ends, k.back, k.lost) <= seen:
			return nil // the end of the stream gives it back
		case k.way == byHand && !(k.known && k.held), k.known && k.held && k.token != token:
		case k.known && k.held:
			lasts, holder = max(lasts, k.until), k
		default:
			return nil // it was not told that it holds it, and may have given up
		}
	}
	if x := j.bonds[was.cell.Lease]; x != nil {
		if lasts = max(lasts, x.alive); x.freed <= seen {
			return nil
		}
	}
	if seen < lasts {
		return fmt.Errorf("%s with token %d is deleted at %.4fs. Nobody gave it back, and its lease lasts until %.4fs at the least. It belongs to: %v",
			was.key, token, seen.Seconds(), lasts.Seconds(), holder)
	}
	return nil
}

// checkClaim judges what one asker was told.
func (j *lockJudge) checkClaim(k *claim) error {
	q := j.queues[k.name]
	if k.known && k.held {
		if err := j.checkHeld(q, k); err != nil {
			return err
		}
	} else if k.known && k.way == byTry && !j.wasTaken(q, k) {
		return fmt.Errorf("told that it would have to wait, though nobody was there")
	}
	if err := j.checkLeft(q, k); err != nil {
		return err
	}
	if k.lost != never && k.reason != coorddpb.HoldReason_HOLD_REASON_LEASE_ENDED.String() && k.held {
		if c := j.r.at(k.key, k.lostAt); c.Create == k.token {
			return fmt.Errorf("told at revision %d that its place is gone (%s), where it was", k.lostAt, k.reason)
		}
	}
	return j.checkPrompt(q, k)
}

// checkHeld judges "you hold it": at the revision of the answer the place was there, and among the first.
func (j *lockJudge) checkHeld(q *lockQueue, k *claim) error {
	if k.rev > j.r.last || k.token > k.rev {
		return fmt.Errorf("told that it holds with token %d at revision %d, the store's last is %d", k.token, k.rev, j.r.last)
	}
	if c := j.r.at(k.key, k.rev); c.Create != k.token || k.bond.id != c.Lease {
		return fmt.Errorf("told that it holds at revision %d, where its place was not there", k.rev)
	}
	if !q.holds(k.token, k.rev) {
		holders, _ := split(q.all(k.rev))
		return fmt.Errorf("told that it holds at revision %d, where %v held", k.rev, tokens(holders))
	}
	if newest := j.asked.newest(k.call); k.token <= newest && !j.stoodBefore(k) {
		return fmt.Errorf("its place is of revision %d though revision %d was answered before it asked", k.token, newest)
	}
	return nil
}

// stoodBefore reports whether a claim before this one, with the same lease, may have made its place.
func (j *lockJudge) stoodBefore(k *claim) bool {
	return slices.ContainsFunc(j.of(k.name, k.bond.id), func(o *claim) bool { return o != k && o.call <= k.call })
}

// wasTaken reports whether at some moment of a call of TryLock the asker would have had to wait.
func (j *lockJudge) wasTaken(q *lockQueue, k *claim) bool {
	if q == nil {
		return false
	}
	from := j.asked.newest(k.call)
	for i := max(q.changed(from), 0); i < len(q.revs) && q.revs[i] <= k.rev; i++ {
		holders, waiters := split(q.all(q.revs[i]))
		if len(holders) == 0 {
			continue
		}
		m, _ := holders[0].mode()
		if len(waiters) > 0 || m != k.mode || !m.shared && int64(len(holders)) >= m.limit {
			return true
		}
	}
	return false
}

// checkLeft: who asked in vain leaves no place behind when the call has ended, unless the outcome of its or an earlier write was not known, an earlier
// call's member ended before it could clean up, or another call with the same lease has written the place, too.
func (j *lockJudge) checkLeft(q *lockQueue, k *claim) error {
	inVain := !(k.known && k.held) && k.back != never
	gaveBack := k.way == byStream && k.known && k.held && k.back != never
	if q == nil || !k.upright || k.bond.ttl == 0 || !inVain && !gaveBack || k.held && !k.known && k.left == k.back {
		return nil
	}
	c := j.r.at(fmt.Sprintf("%s/%x", k.name, k.bond.id), k.store)
	if c.Version != 1 || j.seen(c.Create) < k.call || j.seen(c.Create) > k.left || k.unsure() {
		return nil
	}
	others := slices.ContainsFunc(j.of(k.name, k.bond.id), func(o *claim) bool {
		return o != k && (o.back > k.call && o.call < k.back || o.known && o.held && o.token == c.Create || o.call < k.call && (o.unsure() || !o.upright || o.way == byHand && !o.known))
	})
	if others || gaveBack && c.Create != k.token {
		return nil
	}
	return fmt.Errorf("its place of revision %d is still there at revision %d, after the call", c.Create, k.store)
}

// unsure reports whether the error that a call ended with leaves open what became of its write: those of a proposal without a result. The
// end of the asker's context is none of them, since the write does not end with it.
func (k *claim) unsure() bool { return k.timedOut() || k.err == errs.ErrStopped.Error() }

// timedOut reports whether a call ended because its write had no result in time. Such a call has not come to waiting for its turn.
func (k *claim) timedOut() bool {
	return slices.ContainsFunc([]error{errs.ErrTimeout, errs.ErrTimeoutDueToLeaderFail, errs.ErrTimeoutDueToConnectionLost},
		func(e error) bool { return e.Error() == k.err })
}

// checkPrompt: who waits is told when his turn has come, and when his place is gone. Places that were there before the call are left
// out: the call may still be asking for them; and so is a call whose write has had no result, as when a snapshot brought its member what it wrote.
func (j *lockJudge) checkPrompt(q *lockQueue, k *claim) error {
	if q == nil || k.bond.id == 0 || k.way == byHand || k.way == byTry || k.timedOut() {
		return nil
	}
	until := min(k.back, k.left)
	twice := slices.ContainsFunc(j.of(k.name, k.bond.id), func(o *claim) bool { return o != k && o.back > k.call && o.call < k.back })
	if twice || k.way == byStream && k.held {
		return nil
	}
	key := fmt.Sprintf("%s/%x", k.name, k.bond.id)
	for _, v := range j.r.keys[key] {
		if v.cell.Version != 1 || j.seen(v.rev) < k.call || j.seen(v.rev) > until {
			continue
		}
		if gone := q.gone(key, v.rev); gone > 0 && j.late(j.seen(gone), until) && !j.again(key, gone, until) {
			return fmt.Errorf("its place is gone since %.4fs, revision %d, and nobody told it", j.seen(gone).Seconds(), gone)
		}
		if first := j.firstTurn(q, key, v.rev); first > 0 && j.late(j.seen(first), j.leaves(q, key, v.rev, until)) {
			return fmt.Errorf("it is its turn since %.4fs, revision %d, and nobody told it", j.seen(first).Seconds(), first)
		}
	}
	return nil
}

// again reports whether a key came back after a revision, before until.
func (j *lockJudge) again(key string, rev int64, until time.Duration) bool {
	return slices.ContainsFunc(j.r.keys[key], func(v version) bool { return v.rev > rev && j.seen(v.rev) <= until })
}

// firstTurn is the first revision at which the place with a token holds, 0 if it never does.
func (j *lockJudge) firstTurn(q *lockQueue, key string, token int64) int64 {
	for i := q.changed(token); i < len(q.revs); i++ {
		if q.holds(token, q.revs[i]) {
			return q.revs[i]
		}
		if j.r.at(key, q.revs[i]).Create != token {
			break
		}
	}
	return 0
}

// leaves is when a place is gone, or until if that is earlier.
func (j *lockJudge) leaves(q *lockQueue, key string, token int64, until time.Duration) time.Duration {
	if gone := q.gone(key, token); gone > 0 {
		return min(until, j.seen(gone))
	}
	return until
}

// late reports whether somebody who could have been told at from must have been told before until.
func (j *lockJudge) late(from, until time.Duration) bool {
	if until-j.c.calm(from, until) > tellWithin {
		return true
	}
	return j.b.settled != never && min(until, j.b.stopped)-max(from, j.b.settled) > tellInPeace
}

// checkRelease judges "given back".
func (j *lockJudge) checkRelease(x *release) error {
	if !x.known {
		return nil
	}
	if x.rev > j.r.last || x.rev < j.asked.newest(x.call) {
		return fmt.Errorf("answered at revision %d; the newest before was %d, the last of all is %d", x.rev, j.asked.newest(x.call), j.r.last)
	}
	if c := j.r.at(x.key, x.rev); c.Version > 0 && (x.token == 0 || x.token == c.Create) {
		return fmt.Errorf("the place with token %d is still there", c.Create)
	}
	return nil
}

// checkList judges who was said to hold and to wait.
func (j *lockJudge) checkList(x *lockList) error {
	if newest := j.asked.newest(x.call); x.rev > j.r.last || !x.stale && x.rev < newest {
		return fmt.Errorf("read at revision %d; the newest before was %d, the last of all is %d", x.rev, newest, j.r.last)
	}
	var holders, waiters []standing
	if q := j.queues[x.name]; q != nil {
		holders, waiters = split(q.all(x.rev))
	}
	if !slices.Equal(x.holders, tokens(holders)) || !slices.Equal(x.waiters, tokens(waiters)) {
		return fmt.Errorf("at revision %d %v hold and %v wait", x.rev, tokens(holders), tokens(waiters))
	}
	return nil
}

func tokens(s []standing) (out []int64) {
	for _, x := range s {
		out = append(out, x.cell.Create)
	}
	return out
}

// oneHolder: no token is told to two.
func (j *lockJudge) oneHolder() {
	type held struct {
		name  string
		token int64
	}
	of := map[held]*claim{}
	for _, k := range j.b.claims {
		if !k.known || !k.held {
			continue
		}
		at := held{k.name, k.token}
		if o := of[at]; o != nil && o.bond != k.bond {
			j.c.violateAt(k.back, "token %d of %s was given to two: %v, and %v", k.token, k.name, o, k)
		}
		of[at] = k
	}
}

// checkResource judges the writes to what an exclusive lock guards: accepted tokens never decrease, and who is refused has lost the lock to
// somebody who came later.
func (j *lockJudge) checkResource(q *lockQueue, res *resource) (time.Duration, error) {
	var top *claim
	for _, x := range res.writes {
		switch {
		case x.accepted && top != nil && x.token < top.token:
			return x.at, fmt.Errorf("token %d is accepted after %d: %v", x.token, top.token, x.by)
		case x.accepted:
			top = x.by
		case top == nil || x.token >= top.token:
			return x.at, fmt.Errorf("token %d is refused for no reason: %v", x.token, x.by)
		default:
			if gone := q.gone(x.by.key, x.token); gone == 0 || gone > top.rev {
				return x.at, fmt.Errorf("token %d, which holds the lock, is refused because of %d, which was told that it holds it: %v, and %v", x.token, top.token, x.by, top)
			}
		}
	}
	return 0, nil
}
