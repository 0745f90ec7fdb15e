package sim

import (
	"fmt"
	"slices"
)

// checkElections judges what was proclaimed and what was told of who leads.
func (j *lockJudge) checkElections() {
	q := j.queues[electionName]
	values := map[string][]int64{}
	if q != nil {
		for _, key := range q.keys {
			for _, v := range j.r.keys[key] {
				if v.cell.Version > 0 {
					values[v.cell.Value] = append(values[v.cell.Value], v.rev)
				}
			}
		}
	}
	for value, revs := range values {
		if len(revs) > 1 {
			j.c.violateAt(j.seen(revs[1]), "%q was proclaimed once and stands at revisions %v", value, revs)
		}
	}
	for _, x := range j.b.speeches {
		if err := j.checkSpeech(q, x); err != nil {
			j.c.violateAt(x.back, "%v: %v", err, x)
		}
	}
	for _, x := range j.b.queries {
		if err := j.checkQuery(q, x); err != nil {
			j.c.violateAt(x.back, "%v: %v", err, x)
		}
	}
	changes := j.heads(q)
	for _, x := range j.b.observers {
		if err := j.checkObservation(q, changes, x); err != nil {
			j.c.violateAt(x.back, "%v: %v", err, x)
		}
	}
}

// checkSpeech judges an answered Proclaim: who was told that it is done led then, and who was told that he does not lead had lost
// his place.
func (j *lockJudge) checkSpeech(q *lockQueue, x *speech) error {
	switch {
	case !x.known:
		return nil
	case !x.accepted:
		if q.gone(x.by.key, x.by.token) == 0 {
			return fmt.Errorf("refused, though the place with token %d is there until the end", x.by.token)
		}
		return nil
	case x.rev < j.asked.newest(x.call) || x.rev > j.r.last:
		return fmt.Errorf("answered at revision %d; the newest before was %d, the last of all is %d", x.rev, j.asked.newest(x.call), j.r.last)
	}
	if h := q.head(x.rev); h.key != x.by.key || h.cell.Create != x.by.token || h.cell.Value != x.value || h.cell.Mod != x.rev {
		return fmt.Errorf("at revision %d the election was led by %v", x.rev, h)
	}
	return nil
}

// checkQuery judges an answer to who leads.
func (j *lockJudge) checkQuery(q *lockQueue, x *leaderQuery) error {
	newest := j.asked.newest(x.call)
	if x.leader != (head{}) {
		if x.rev < newest || x.rev > j.r.last {
			return fmt.Errorf("answered at revision %d; the newest before was %d, the last of all is %d", x.rev, newest, j.r.last)
		}
		if h := q.head(x.rev); h != x.leader {
			return fmt.Errorf("at revision %d the election was led by %v", x.rev, h)
		}
		return nil
	}
	if q == nil {
		return nil
	}
	for i := q.changed(newest); i < len(q.revs) && (i < 0 || q.revs[i] <= x.rev); i++ {
		if i < 0 || q.head(q.revs[i]) == (head{}) {
			return nil
		}
	}
	return fmt.Errorf("somebody led at all revisions from %d to %d", newest, x.rev)
}

// headChange is one change of who leads, or of what he proclaims.
type headChange struct {
	rev  int64
	head head
}

// heads are all of them, in order.
func (j *lockJudge) heads(q *lockQueue) (out []headChange) {
	if q == nil {
		return nil
	}
	last := head{}
	for _, rev := range q.revs {
		if h := q.head(rev); h != last {
			out = append(out, headChange{rev, h})
			last = h
		}
	}
	return out
}

// checkObservation judges a stream: first how things are, as new as whatever anybody was told before, then each change, in order, once, until
// what came too late for it. Only a compaction may take some: if a member has not got all that was compacted, it reads the election anew and
// tells that, so later changes may be missing, too.
func (j *lockJudge) checkObservation(q *lockQueue, changes []headChange, x *observation) error {
	if len(x.told) == 0 {
		return j.silent(changes, x, 0)
	}
	first := x.told[0]
	if h := q.head(first.rev); h != first.leader {
		return fmt.Errorf("told first that at revision %d %v leads, it was %v", first.rev, first.leader, h)
	}
	if newest := j.asked.newest(x.call); x.native && first.rev < newest {
		return fmt.Errorf("told first of revision %d, though revision %d was answered before it asked", first.rev, newest)
	}
	before := head{}
	next, _ := slices.BinarySearchFunc(changes, first.rev+1, func(c headChange, rev int64) int { return int(c.rev - rev) })
	for i, t := range x.told {
		if t.leader == (head{}) && !x.native {
			return fmt.Errorf("told that nobody leads, which the stream has no form for")
		}
		elected := t.leader.key != "" && (t.leader.key != before.key || t.leader.cell.Create != before.cell.Create)
		if x.native && elected != t.elected {
			return fmt.Errorf("told of %v after %v as elected: %v", t.leader, before, t.elected)
		}
		before = t.leader
		if i == 0 {
			continue
		}
		if t.rev <= x.told[i-1].rev {
			return fmt.Errorf("told of revision %d after %d", t.rev, x.told[i-1].rev)
		}
		for ; next < len(changes) && changes[next].rev < t.rev; next++ {
			if (x.native || changes[next].head != (head{})) && !j.compacted(x.told[i-1].rev+1, t.at) {
				return fmt.Errorf("not told of revision %d, since which %v led, but of %d", changes[next].rev, changes[next].head, t.rev)
			}
		}
		switch {
		case next < len(changes) && changes[next] == (headChange{t.rev, t.leader}):
			next++
		case q.head(t.rev) != t.leader || !j.compacted(x.told[i-1].rev+1, t.at):
			return fmt.Errorf("told that since revision %d %v leads, it was %v", t.rev, t.leader, q.head(t.rev))
		}
	}
	return j.silent(changes, x, x.told[len(x.told)-1].rev)
}

// silent judges the end of a stream: no change after the last that was told had been there for long.
func (j *lockJudge) silent(changes []headChange, x *observation, last int64) error {
	for i, c := range changes {
		if c.rev <= last || c.head == (head{}) && !x.native || j.seen(c.rev) > x.back {
			continue
		}
		until := x.back
		if i+1 < len(changes) {
			until = min(until, j.seen(changes[i+1].rev))
		}
		if j.late(max(j.seen(c.rev), x.call), until) {
			return fmt.Errorf("not told that since revision %d, %.4fs, %v leads", c.rev, j.seen(c.rev).Seconds(), c.head)
		}
	}
	return nil
}
