package history

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// LockKind is what is done about a lock.
type LockKind int

const (
	Acquire LockKind = iota // the lock is taken, with a token
	Use                     // a transaction under the condition that the key with the token is there; or it is not done
	Write                   // a write to a resource that knows the largest token; or it is refused
	Gone                    // the key of a holder is deleted: given back, or lost with its lease
)

// LockOp is the input of an operation on a lock; the output is a bool: a Use was done, a Write was accepted. It is
// true for Acquire and Gone.
type LockOp struct {
	Lock   string
	Kind   LockKind
	Token  int64
	Holder string
}

// String is the operation for people.
func (o LockOp) String() string {
	return fmt.Sprintf("%s %s %d by %s", [...]string{"acquire", "use", "write", "gone"}[o.Kind], o.Lock, o.Token, o.Holder)
}

// lockState is one lock with the resource that it guards: who has it, the last token given, the largest the resource has seen.
type lockState struct{ holder, last, seen int64 }

// LockModel is the specification of one lock, for porcupine: it has one holder at a time, tokens grow with each, only the
// holder's transactions are done, and the resource accepts no token smaller than one it has seen.
func LockModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return lockState{} },
		Step: func(s, in, out any) (bool, any) {
			next, ok := s.(lockState).step(in.(LockOp), out.(bool))
			return ok, next
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%v → %v", in, out) },
		DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
	}
}

func (s lockState) step(o LockOp, done bool) (lockState, bool) {
	next := s
	switch o.Kind {
	case Acquire:
		next.holder, next.last = o.Token, o.Token
		return next, s.holder == 0 && o.Token > s.last
	case Use:
		return s, done == (s.holder == o.Token)
	case Write:
		next.seen = max(s.seen, o.Token)
		return next, done == (o.Token >= s.seen) && o.Token <= s.last
	default:
		if s.holder == o.Token {
			next.holder = 0
		}
		return next, true
	}
}

// LockVerdict is the result of checking one lock.
type LockVerdict struct {
	Lock   string
	Result porcupine.CheckResult
	Size   int
	Info   porcupine.LinearizationInfo
}

// CheckLocks checks each lock of a history.
func CheckLocks(ops []porcupine.Operation, limit time.Duration) []LockVerdict {
	locks := map[string][]porcupine.Operation{}
	for _, op := range ops {
		name := op.Input.(LockOp).Lock
		locks[name] = append(locks[name], op)
	}
	var all []LockVerdict
	for _, name := range slices.Sorted(maps.Keys(locks)) {
		result, info := porcupine.CheckOperationsVerbose(LockModel(), locks[name], limit)
		all = append(all, LockVerdict{name, result, len(locks[name]), info})
	}
	return all
}

// Grant is a lock as its holder was told of it.
type Grant struct {
	Holder, Key string
	Token       int64
	Header      int64 // the revision of the answer, 0: not known
}

// CheckGrants holds the grants of one lock against the lives of the keys below its name: each token is the creation of the
// holder's key and of nobody else's, and nobody was told that he holds the lock while the key of one who came before was there.
func CheckGrants(lives []Life, grants []Grant) error {
	byToken, free := map[int64]Life{}, map[int64]int64{}
	before := int64(0) // the revision at which all who came before are gone
	for _, l := range lives {
		byToken[l.Create], free[l.Create] = l, before
		if l.Delete == 0 {
			before = math.MaxInt64
		}
		before = max(before, l.Delete)
	}
	var wrong findings
	holders := map[int64]string{}
	for _, g := range grants {
		l, ok := byToken[g.Token]
		switch other, twice := holders[g.Token]; {
		case twice:
			wrong.add("%s and %s both hold with token %d", other, g.Holder, g.Token)
		case !ok || l.Key != g.Key:
			wrong.add("%s holds with token %d of %s; what was created then is %q", g.Holder, g.Token, g.Key, l.Key)
		case free[g.Token] == math.MaxInt64:
			wrong.add("%s holds with token %d, and one who came before is still there", g.Holder, g.Token)
		case g.Header != 0 && g.Header < free[g.Token]:
			wrong.add("%s was told at revision %d that it holds with token %d; one who came before was there until %d", g.Holder, g.Header, g.Token, free[g.Token])
		case g.Header != 0 && l.Delete != 0 && g.Header >= l.Delete:
			wrong.add("%s was told at revision %d that it holds with token %d; its key was gone at %d", g.Holder, g.Header, g.Token, l.Delete)
		}
		holders[g.Token] = g.Holder
	}
	return joined(wrong)
}

// Sighting is what an observer of an election was told.
type Sighting struct {
	By       string
	Key      string // "": nobody leads
	Token    int64
	Value    string
	Mod      int64 // of the key
	From, To int64 // the revisions of which it may be true
}

// CheckSightings holds what observers of one election were told against the ledger: the one named led with that value at some of
// the revisions it may be true of.
func CheckSightings(l *Ledger, prefix string, all []Sighting) error {
	lives := l.Lives(prefix)
	type term struct {
		Life
		from, to int64 // led from, until before
	}
	terms := map[int64]term{}
	before := int64(0)
	var gaps [][2]int64 // nobody leads from, until before
	for _, x := range lives {
		if x.Create > before {
			gaps = append(gaps, [2]int64{before, x.Create})
		}
		until := x.Delete
		if until == 0 {
			until = math.MaxInt64
		}
		terms[x.Create] = term{x, max(before, x.Create), until}
		before = max(before, until)
	}
	gaps = append(gaps, [2]int64{before, math.MaxInt64})
	var wrong findings
	for _, s := range all {
		if s.Key == "" {
			if !slices.ContainsFunc(gaps, func(g [2]int64) bool { return s.From < g[1] && s.To >= g[0] }) {
				wrong.add("%s was told that nobody leads at some revision from %d to %d; somebody did at all of them", s.By, s.From, s.To)
			}
			continue
		}
		t, ok := terms[s.Token]
		from, to := max(t.from, s.From, s.Mod), min(t.to, l.changedAfter(s.Key, s.Mod), s.To+1)
		if !ok || t.Key != s.Key || from >= to || l.At(s.Key, s.Mod).Value != s.Value {
			wrong.add("%s was told that %+v; it led from %d until before %d", s.By, s, t.from, t.to)
		}
	}
	return joined(wrong)
}

// changedAfter is the revision of the next change of a key.
func (l *Ledger) changedAfter(key string, rev int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range l.keys[key] {
		if v.rev > rev {
			return v.rev
		}
	}
	return math.MaxInt64
}
