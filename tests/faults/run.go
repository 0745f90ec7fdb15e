package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coordd/tests/cluster"
)

// Site is a cluster with all that can be done to it.
type Site struct {
	Cluster *cluster.Cluster
	Network *Network
	Disks   []*Disk // one for each member; nil: they cannot be made slow
	Small   *SmallDisk
	Groups  [][]string // clients that are cut off together

	restarts sync.Mutex // held while members are started; before mu

	begin time.Time // of the faults

	mu      sync.Mutex // guards all below
	members []*cluster.Member
	done    []Done
	counts  map[Kind]int
	ended   int                      // members that ended by themselves as they should
	down    map[*cluster.Member]bool // those that may be found not running
}

// Done is a fault that was made.
type Done struct {
	Fault
	From, To time.Duration // since the begin; To is 0 while it lasts
	Names    []string      // of the victims
}

// NewSite prepares a cluster of size members behind a network and, if the kernel permits, slow disks, and starts it. full is the
// member that gets a disk that can be made full, -1: none. It ends with the test.
func NewSite(t testing.TB, size, full int, args ...string) *Site {
	t.Helper()
	s := &Site{counts: map[Kind]int{}, down: map[*cluster.Member]bool{}}
	s.Network = NewNetwork(s.owner)
	t.Cleanup(func() { // after all others
		s.Network.Close()
		for _, d := range s.Disks {
			d.Wait()
		}
	})
	slow := CanSlow()
	if slow != nil {
		t.Logf("disks cannot be made slow here, members stutter instead: %v", slow)
	}
	n := 0
	s.Cluster = cluster.PrepareWith(t, size, func(m *cluster.Member) {
		address, err := s.Network.Listen(m.Name, m.PeerURL[len("http://"):])
		if err != nil {
			t.Fatal(err)
		}
		m.Advertised = "http://" + address
		s.Network.Name(m.Name, m.ClientURL[len("http://"):])
		if slow == nil {
			d := &Disk{}
			s.Disks = append(s.Disks, d)
			m.Launch = d.Launch
		}
		if n == full {
			s.Small = NewSmallDisk(t, m)
		}
		n++
	}, args...)
	s.mu.Lock()
	s.members = s.Cluster.Members
	s.mu.Unlock()
	s.Cluster.Start(t)
	s.begin = time.Now()
	return s
}

// Shape is what a plan for this site is drawn for.
func (s *Site) Shape(length, ttl time.Duration) Shape {
	shape := Shape{Members: s.Cluster.Size(), Groups: len(s.Groups), Length: length, TTL: ttl, Full: -1, Slow: s.Disks != nil}
	if s.Small != nil {
		shape.Full = s.Small.index(s.Cluster)
	}
	return shape
}

// owner names the member that has a socket. Connections come from processes, so the mutex is all that orders this after the preparation.
func (s *Site) owner(remote net.Addr) (string, error) {
	s.mu.Lock()
	members := s.members
	s.mu.Unlock()
	return owner(members, remote)
}

// Now is the time since the begin.
func (s *Site) Now() time.Duration { return time.Since(s.begin) }

// Begin is the begin.
func (s *Site) Begin() time.Time { return s.begin }

// Run makes the faults of a plan until it or the context ends, and leaves all whole. An error is of a member that ended by itself or
// does not come back.
func (s *Site) Run(ctx context.Context, p Plan) error {
	offset := s.Now() // the plan begins now
	var wait sync.WaitGroup
	var failed [2]error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, all := range [2][]Fault{p.Processes, p.Links} {
		wait.Go(func() {
			if failed[i] = s.lane(ctx, all, offset); failed[i] != nil {
				cancel()
			}
		})
	}
	wait.Wait()
	return errors.Join(failed[:]...)
}

func (s *Site) lane(ctx context.Context, all []Fault, offset time.Duration) error {
	for _, f := range all {
		switch late := s.Now() - offset - f.At; {
		case late > f.For: // what came before took so long
			continue
		case !pause(ctx, -late):
			return nil
		}
		victims := s.victims(ctx, f)
		i := s.note(f, victims)
		undo, err := s.hit(f, victims)
		if err == nil {
			pause(ctx, f.At+f.For-(s.Now()-offset))
			err = undo()
		}
		s.settle(i)
		if err != nil {
			return fmt.Errorf("%v: %w", f, err)
		}
	}
	return nil
}

// pause waits. False: the context has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(max(d, 0)):
		return true
	}
}

// victims gives the members a fault hits.
func (s *Site) victims(ctx context.Context, f Fault) []*cluster.Member {
	if f.Kind == CutClient {
		return nil
	}
	order := slices.Clone(f.Victims)
	if f.Leader {
		if leader, err := s.leader(ctx); err == nil {
			if i := slices.Index(order, leader); i >= 0 {
				order[0], order[i] = order[i], order[0]
			} else {
				order[0] = leader
			}
		}
	}
	var all []*cluster.Member
	for _, n := range order {
		all = append(all, s.Cluster.Members[n])
	}
	return all
}

func (s *Site) leader(ctx context.Context) (int, error) {
	m, err := s.Cluster.FindLeader(ctx)
	if err != nil {
		return 0, err
	}
	return slices.Index(s.Cluster.Members, m), nil
}

func (s *Site) note(f Fault, victims []*cluster.Member) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := Done{Fault: f, From: s.Now()}
	for _, m := range victims {
		d.Names = append(d.Names, m.Name)
	}
	if f.Kind == CutClient {
		for _, g := range f.Victims {
			d.Names = append(d.Names, s.Groups[g]...)
		}
	}
	s.counts[f.Kind]++
	s.done = append(s.done, d)
	return len(s.done) - 1
}

func (s *Site) settle(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done[i].To = s.Now()
}

// Done gives the faults so far.
func (s *Site) Done() []Done {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.done)
}

// Count is how many faults of each kind there were, and how many members ended by themselves as they should.
func (s *Site) Count() (all int, kinds map[Kind]int, ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kinds = map[Kind]int{}
	for k, n := range s.counts {
		kinds[k], all = n, all+n
	}
	return all, kinds, s.ended
}

// Calm is the last moment between from and to at which something was disturbed; from, if nothing was.
func (s *Site) Calm(from, to time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.done {
		end := d.To
		if end == 0 {
			end = to
		}
		if d.From <= to && end > from {
			from = max(from, min(end, to))
		}
	}
	return from
}
