package history

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Session is one watch, from its creation to its end, as it is checked while it goes on: a stretch of revisions of which
// everything was told.
type Session struct {
	Name   string
	Prefix string // of the keys it watches
	PrevKV bool   // it asked for the pair before
	// From is the first revision it tells of; 0: what comes after the creation.
	From int64
	// Lax: an event of the revision at which a session with From 0 was created may come, as etcd's client asks for it again when it goes on
	// elsewhere before anything came.
	Lax bool

	created bool
	at      int64 // where it was created, for Lax
	seen    int64 // all up to here was told
	ended   bool  // by a compaction
	told    []Told
}

// Told is a change and, if there was one, the pair before it.
type Told struct {
	Change
	Prev    Pair
	HasPrev bool
	When    time.Duration
}

// Seen is up to where everything was told.
func (s *Session) Seen() int64 { return s.seen }

// Count is how many events were told.
func (s *Session) Count() int { return len(s.told) }

// Create notes the answer to the creation, with the revision of its header.
func (s *Session) Create(header int64) error {
	if s.created {
		return errors.New("created twice")
	}
	s.created = true
	if s.From == 0 {
		s.From, s.seen, s.at = header+1, header, header
	} else {
		s.seen = s.From - 1
	}
	return nil
}

// Compacted notes that the watch was ended since a compaction has taken what comes next.
func (s *Session) Compacted(rev int64) error {
	s.ended = true
	next := s.From
	switch {
	case s.created && s.Lax && s.seen == s.at && len(s.told) == 0:
		next = s.at
	case s.created:
		next = s.seen + 1
	}
	if rev <= next {
		return fmt.Errorf("ended by a compaction at %d, with %d to come next, which does not hurt it", rev, next)
	}
	return nil
}

// Progress notes a notice: everything up to rev has been told.
func (s *Session) Progress(rev int64) error {
	if !s.created {
		return errors.New("progress before the answer to the creation")
	}
	if rev < s.seen && s.seen >= s.From {
		return fmt.Errorf("progress at revision %d after events up to %d", rev, s.seen)
	}
	s.seen = max(s.seen, rev)
	return nil
}

// Take checks the events of one response: whole revisions, in order, once each, and none ahead of the header.
func (s *Session) Take(header int64, events []Told) error {
	if !s.created {
		return errors.New("events before the answer to the creation")
	}
	last := s.seen
	for i, e := range events {
		rev := e.Mod
		again := s.Lax && rev == s.at && len(s.told) == 0 && s.seen == s.at
		switch {
		case rev <= s.seen && !again:
			return fmt.Errorf("an event of revision %d after all up to %d was told", rev, s.seen)
		case rev < last:
			return fmt.Errorf("an event of revision %d after one of %d", rev, last)
		case rev > header:
			return fmt.Errorf("an event of revision %d under a header of revision %d", rev, header)
		case !strings.HasPrefix(e.Key, s.Prefix):
			return fmt.Errorf("an event of %s, which it does not watch", e.Key)
		case e.HasPrev && !s.PrevKV:
			return fmt.Errorf("the event of %s has a previous pair, which was not asked for", e.Key)
		}
		last = rev
		if i+1 == len(events) || events[i+1].Mod != rev {
			s.seen = max(s.seen, rev)
		}
	}
	for _, e := range events {
		if e.Mod >= s.From { // what Lax allows is not due
			s.told = append(s.told, e)
		}
	}
	return nil
}

// Check holds the session against the ledger, which must be complete up to Seen: of the revisions it covers, it was told exactly
// what it watches. compacted tells whether a compaction may have taken the pair before a revision at some time.
func (s *Session) Check(l *Ledger, compacted func(rev int64, when time.Duration) bool) error {
	to := s.seen
	if !s.created || s.ended && len(s.told) == 0 {
		return nil
	}
	if s.ended { // there is a hole after its last event
		to = s.told[len(s.told)-1].Mod
	}
	want := l.Changes(s.Prefix, s.From, to)
	for i := range max(len(want), len(s.told)) {
		switch {
		case i >= len(s.told):
			return fmt.Errorf("%s, revisions %d to %d, was not told %+v", s.Name, s.From, to, want[i])
		case i >= len(want):
			return fmt.Errorf("%s, revisions %d to %d, was told %+v, which did not happen", s.Name, s.From, to, s.told[i].Change)
		case s.told[i].Change != want[i]:
			return fmt.Errorf("%s, revisions %d to %d, was told %+v where %+v happened", s.Name, s.From, to, s.told[i].Change, want[i])
		}
		if err := s.checkPrev(l, s.told[i], compacted); err != nil {
			return err
		}
	}
	return nil
}

// checkPrev holds the pair before an event against the ledger. It may be missing only if there was none, or compaction has taken it.
func (s *Session) checkPrev(l *Ledger, e Told, compacted func(int64, time.Duration) bool) error {
	if !s.PrevKV {
		return nil
	}
	prev := l.At(e.Key, e.Mod-1)
	switch {
	case e.HasPrev && e.Prev != prev:
		return fmt.Errorf("%s: the event of %s at revision %d comes with %+v as the pair before, it was %+v", s.Name, e.Key, e.Mod, e.Prev, prev)
	case !e.HasPrev && prev.Version > 0 && !compacted(e.Mod, e.When):
		return fmt.Errorf("%s: the event of %s at revision %d comes without the pair before, %+v", s.Name, e.Key, e.Mod, prev)
	}
	return nil
}
