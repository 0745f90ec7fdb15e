package faults

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/coordd/coordd/tests/cluster"
)

// turns of a member that stutters: so long it stands still, and runs.
const (
	standing = 60 * time.Millisecond
	running  = 20 * time.Millisecond
)

// hit lets a fault begin, and gives what ends it.
func (s *Site) hit(f Fault, victims []*cluster.Member) (undo func() error, err error) {
	switch f.Kind {
	case Kill, KillAll, Restart, FlushFails, FullDisk:
		s.mark(victims, true)
	}
	switch f.Kind {
	case Kill, KillAll:
		for _, m := range victims { // as near to at once as can be
			m.Pause()
		}
		each(victims, (*cluster.Member).Kill)
	case Restart:
		each(victims, func(m *cluster.Member) { m.Stop() })
	case Hold, HoldLong:
		each(victims, (*cluster.Member).Pause)
	case Stutter:
		return s.stutter(victims), nil
	case SlowDisk:
		s.flushes(victims, func(d *Disk) { d.Slow(f.By) })
		return func() error {
			s.flushes(victims, func(d *Disk) { d.Slow(0) })
			return s.back(nil, false)
		}, nil
	case FlushFails:
		s.flushes(victims, (*Disk).FailNext)
		return func() error { return s.afterFailure(victims[0]) }, nil
	case FullDisk:
		if err := s.Small.Fill(); err != nil {
			return nil, err
		}
		return func() error { return errors.Join(s.Small.Empty(), s.back(victims, true)) }, nil
	default:
		return s.links(f, victims), nil
	}
	return func() error { return s.back(victims, false) }, nil
}

// mark notes whether members may be found not running.
func (s *Site) mark(members []*cluster.Member, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range members {
		s.down[m] = down
	}
}

func each(all []*cluster.Member, do func(m *cluster.Member)) {
	for _, m := range all {
		do(m)
	}
}

func (s *Site) flushes(victims []*cluster.Member, do func(d *Disk)) {
	for i, m := range s.Cluster.Members {
		for _, v := range victims {
			if v == m {
				do(s.Disks[i])
			}
		}
	}
}

// endLimit is how long a member may take to end when its disk has failed.
const endLimit = 30 * time.Second

// afterFailure ends FlushFails: if a flush has failed, the member must have ended, or do so soon.
func (s *Site) afterFailure(m *cluster.Member) error {
	failed := false
	s.flushes([]*cluster.Member{m}, func(d *Disk) { failed = d.Heal() })
	for end := time.Now().Add(endLimit); failed && m.Running(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("member %s goes on after a flush has failed: %s", m.Name, cluster.Tail(m.Log(), 20))
		}
	}
	return s.back([]*cluster.Member{m}, failed)
}

// noRoom stands in the log of a member that ended since its disk was full, perhaps when there was room again.
const noRoom = "no space left on device"

// stutter holds members in quick turns.
func (s *Site) stutter(victims []*cluster.Member) (undo func() error) {
	stop := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		for {
			each(victims, (*cluster.Member).Pause)
			time.Sleep(standing)
			each(victims, (*cluster.Member).Resume)
			select {
			case <-stop:
				return
			case <-time.After(running):
			}
		}
	})
	return func() error {
		close(stop)
		busy.Wait()
		return s.back(nil, false)
	}
}

// back lets members go on, starts those again that do not run, and waits until these are ready. mayEnd: they may have
// ended by themselves. Any other member that does not run has ended without a reason.
func (s *Site) back(victims []*cluster.Member, mayEnd bool) error {
	s.restarts.Lock()
	defer s.restarts.Unlock()
	return s.restore(victims, mayEnd)
}

// restore is back under the mutex.
func (s *Site) restore(victims []*cluster.Member, mayEnd bool) error {
	var started []*cluster.Member
	for _, m := range victims {
		m.Resume()
		if m.Running() {
			continue
		}
		if mayEnd {
			s.mu.Lock()
			s.ended++
			s.mu.Unlock()
		}
		m.Kill() // takes note of an end by itself
		if err := m.Start(); err != nil {
			return err
		}
		started = append(started, m)
	}
	for _, m := range started {
		if err := m.WaitReady(cluster.StartLimit); err != nil {
			return err
		}
	}
	s.mark(victims, false)
	for _, m := range s.Cluster.Members {
		if s.mayBeDown(m) || m.Running() {
			continue
		}
		if s.Small != nil && s.Small.member == m && strings.Contains(m.Log(), noRoom) {
			s.mark([]*cluster.Member{m}, true)
			return s.restore([]*cluster.Member{m}, true)
		}
		return fmt.Errorf("member %s has ended by itself: %s", m.Name, cluster.Tail(m.Log(), 20))
	}
	return nil
}

func (s *Site) mayBeDown(m *cluster.Member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down[m]
}

// links disturbs the network.
func (s *Site) links(f Fault, victims []*cluster.Member) (undo func() error) {
	pairs := s.pairs(f, victims)
	rule := Rule{Cut: true}
	if f.Kind == SlowLinks {
		rule = Rule{Delay: f.By, Chunk: 4 << 10}
	}
	for _, l := range pairs {
		s.Network.Set(l.from, l.to, rule)
	}
	return func() error {
		for _, l := range pairs {
			if f.Break {
				s.Network.Break(l.from, l.to)
			}
			s.Network.Set(l.from, l.to, Rule{})
		}
		return s.back(nil, false)
	}
}

// pairs are the directions of links that a fault disturbs.
func (s *Site) pairs(f Fault, victims []*cluster.Member) []link {
	var all []link
	if f.Kind == CutClient {
		for _, g := range f.Victims {
			for _, client := range s.Groups[g] {
				for _, m := range s.Cluster.Members {
					all = append(all, link{client, m.Name}, link{m.Name, client})
				}
			}
		}
		return all
	}
	v := victims[0].Name
	for _, m := range s.Cluster.Members {
		switch {
		case m.Name == v, f.Kind == CutLink && m != victims[1]:
		case f.Kind == Unheard:
			all = append(all, link{v, m.Name})
		case f.Kind == Deaf:
			all = append(all, link{m.Name, v})
		default:
			all = append(all, link{v, m.Name}, link{m.Name, v})
		}
	}
	return all
}
