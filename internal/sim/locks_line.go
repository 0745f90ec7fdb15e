package sim

import (
	"cmp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// This file says who holds a lock at a revision of the ledger. It shares no code with package lock.

// standing is one place in a queue at some revision.
type standing struct {
	key  string
	cell cell
}

// mode is how a place shares its lock, by its value: NUL "coordd-lock" and words. Anything else is exclusive.
func (s standing) mode() (m lockMode, guards int64) {
	rest, ok := strings.CutPrefix(s.cell.Value, "\x00coordd-lock")
	if !ok {
		return m, 0
	}
	for word := range strings.FieldsSeq(rest) {
		name, text, _ := strings.Cut(word, "=")
		switch name {
		case "shared":
			m.shared = true
		case "limit":
			m.limit, _ = strconv.ParseInt(text, 10, 64)
		case "guards":
			id, _ := strconv.ParseUint(text, 16, 64)
			guards = int64(id)
		}
	}
	return m, guards
}

// lockQueue is the queue of one name over all of the ledger.
type lockQueue struct {
	r    *replay
	name string
	keys []string
	revs []int64 // at which it changed, ascending
	memo map[int64][]standing
}

// lockQueues are the queues of a ledger by name.
func lockQueues(r *replay) map[string]*lockQueue {
	out := map[string]*lockQueue{}
	for key, versions := range r.keys {
		if !inQueue(key) {
			continue
		}
		name := key[:strings.LastIndexByte(key, '/')]
		q := out[name]
		if q == nil {
			q = &lockQueue{r: r, name: name, memo: map[int64][]standing{}}
			out[name] = q
		}
		q.keys = append(q.keys, key)
		for _, v := range versions {
			q.revs = append(q.revs, v.rev)
		}
	}
	for _, q := range out {
		slices.Sort(q.keys)
		slices.Sort(q.revs)
		q.revs = slices.Compact(q.revs)
	}
	return out
}

// inQueue reports whether a key belongs to a lock or an election.
func inQueue(key string) bool {
	return strings.HasPrefix(key, lockPrefix) || strings.HasPrefix(key, electionPrefix)
}

// all is who stands in the queue at a revision, first come first, without guards that have nothing to do: those whose place, made with
// them, is still there.
func (q *lockQueue) all(rev int64) []standing {
	i := q.changed(rev)
	if i < 0 {
		return nil
	}
	out, ok := q.memo[q.revs[i]]
	if !ok {
		out = q.read(q.revs[i])
		q.memo[q.revs[i]] = out
	}
	return out
}

// changed is the index of the last change at or before a revision, -1 if there is none.
func (q *lockQueue) changed(rev int64) int {
	return sort.Search(len(q.revs), func(i int) bool { return q.revs[i] > rev }) - 1
}

// read does the work of all.
func (q *lockQueue) read(rev int64) []standing {
	var out []standing
	type place struct{ lease, create int64 }
	there := map[place]bool{}
	for _, key := range q.keys {
		if c := q.r.at(key, rev); c.Version > 0 {
			s := standing{key, c}
			out = append(out, s)
			if _, guards := s.mode(); guards == 0 {
				there[place{c.Lease, c.Create}] = true
			}
		}
	}
	out = slices.DeleteFunc(out, func(s standing) bool {
		_, guards := s.mode()
		return guards != 0 && there[place{guards, s.cell.Create}]
	})
	slices.SortFunc(out, func(a, b standing) int {
		return cmp.Or(cmp.Compare(a.cell.Create, b.cell.Create), cmp.Compare(a.key, b.key))
	})
	return out
}

// split divides a queue, in order, into those who hold and those who wait.
func split(all []standing) (holders, waiters []standing) {
	n := 0
	for n < len(all) {
		first, _ := all[0].mode()
		m, _ := all[n].mode()
		together := m == first && (first.shared || int64(n) < first.limit)
		if n > 0 && !together {
			break
		}
		n++
	}
	return all[:n], all[n:]
}

// holds reports whether the place with a token holds the lock at a revision.
func (q *lockQueue) holds(token, rev int64) bool {
	holders, _ := split(q.all(rev))
	return slices.ContainsFunc(holders, func(s standing) bool {
		_, guards := s.mode()
		return s.cell.Create == token && guards == 0
	})
}

// gone is the revision at which a key with a token was deleted, 0 if it was not.
func (q *lockQueue) gone(key string, token int64) int64 {
	for _, v := range q.r.keys[key] {
		if v.rev > token && v.cell.Version == 0 {
			return v.rev
		}
	}
	return 0
}

// head is who leads an election at a revision.
func (q *lockQueue) head(rev int64) head {
	if q == nil {
		return head{}
	}
	all := q.all(rev)
	if len(all) == 0 {
		return head{}
	}
	return head{all[0].key, all[0].cell}
}
