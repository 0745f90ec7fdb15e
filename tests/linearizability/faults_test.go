package linearizability

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/coordd/coordd/tests/cluster"
)

// faults makes one fault after the other.
type faults struct {
	cluster *cluster.Cluster
	rng     *rand.Rand
	begin   time.Time // of the run

	done  []porcupine.Annotation // what was done, for people
	count map[string]int
}

// fault is what happens to some members for a while.
type fault struct {
	name   string
	hit    func(m *cluster.Member)
	leader bool // the first member hit is the leader, if one is known
	count  int
}

// kinds are the faults, by how often they come. Most hit the leader; one that is held for longer than an election takes is the
// hardest, since it goes on as if it still led.
func (f *faults) kinds() []fault {
	kill, pause := (*cluster.Member).Kill, (*cluster.Member).Pause
	return []fault{
		{"kill the leader", kill, true, 1}, {"kill the leader", kill, true, 1},
		{"kill one", kill, false, 1}, {"kill one", kill, false, 1},
		{"hold the leader", pause, true, 1}, {"hold the leader", pause, true, 1}, {"hold the leader", pause, true, 1}, {"hold the leader", pause, true, 1},
		{"hold one", pause, false, 1},
		{"kill two", kill, true, 2},
		{"hold two", pause, true, 2},
		{"kill all", kill, false, 3},
	}
}

// run makes faults until the context ends, and leaves all members running. An error is of a member that does not come back.
func (f *faults) run(ctx context.Context) error {
	f.count = map[string]int{}
	for f.quiet(ctx, 200*time.Millisecond, 1000*time.Millisecond) {
		all := f.kinds()
		x := all[f.rng.IntN(len(all))]
		victims := f.victims(ctx, x)
		from, text := time.Since(f.begin), x.name
		for _, m := range victims {
			x.hit(m)
			text += " " + m.Name
		}
		f.quiet(ctx, 50*time.Millisecond, 2500*time.Millisecond)
		if err := f.restore(victims); err != nil {
			return fmt.Errorf("after %s: %w", text, err)
		}
		f.count[x.name]++
		f.done = append(f.done, porcupine.Annotation{Tag: "faults", Start: int64(from), End: int64(time.Since(f.begin)), Description: text, BackgroundColor: "#ffcccc"})
	}
	return nil
}

// quiet waits for a random time. False: the context has ended.
func (f *faults) quiet(ctx context.Context, least, most time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(least + time.Duration(f.rng.Int64N(int64(most-least)))):
		return true
	}
}

// victims draws the members to hit.
func (f *faults) victims(ctx context.Context, x fault) []*cluster.Member {
	order := f.rng.Perm(f.cluster.Size())
	if x.leader {
		if leader, err := f.cluster.FindLeader(ctx); err == nil {
			for i, n := range order {
				if f.cluster.Members[n] == leader {
					order[0], order[i] = order[i], order[0]
				}
			}
		}
	}
	var all []*cluster.Member
	for _, n := range order[:x.count] {
		all = append(all, f.cluster.Members[n])
	}
	return all
}

// restore lets the members go on, or starts them again. It waits until those that were started are ready.
func (f *faults) restore(victims []*cluster.Member) error {
	var started []*cluster.Member
	for _, m := range victims {
		m.Resume()
		if !m.Running() {
			m.Kill() // takes note of an end by itself
			if err := m.Start(); err != nil {
				return err
			}
			started = append(started, m)
		}
	}
	for _, m := range started {
		if err := m.WaitReady(cluster.StartLimit); err != nil {
			return err
		}
	}
	for _, m := range f.cluster.Members {
		if !m.Running() {
			return fmt.Errorf("member %s has ended by itself: %s", m.Name, m.Log())
		}
	}
	return nil
}
