package sim

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/coordd/coordd/pkg/vfs"
	"github.com/coordd/coordd/wal"
)

// someLog is a log of so many entries.
func someLog(t *testing.T, entries uint64) *vfs.Mem {
	t.Helper()
	fs := vfs.NewMem()
	log, err := wal.Create(fs, "/wal", wal.Metadata{MemberID: 1, ClusterID: 2}, wal.Options{SegmentBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		hard := &raftpb.HardState{Term: new(uint64(3)), Vote: new(uint64(1)), Commit: new(i)}
		entry := &raftpb.Entry{Term: new(uint64(3)), Index: new(i + 1), Data: make([]byte, 100)}
		if err := log.Append(hard, []*raftpb.Entry{entry}, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return fs
}

// TestRecoveredTellsLogsApart: what flip compares must show a lost entry.
func TestRecoveredTellsLogsApart(t *testing.T) {
	a, errA := recovered(someLog(t, 300), "/wal")
	b, errB := recovered(someLog(t, 299), "/wal")
	if errA != nil || errB != nil || reflect.DeepEqual(a, b) || len(a.entries) != 300 {
		t.Errorf("%v, %v: %d and %d entries, %s and %s", errA, errB, len(a.entries), len(b.entries), a.hard, b.hard)
	}
}

// TestFlippedBits inverts single bits of a log: it must be refused, or be as good as before.
func TestFlippedBits(t *testing.T) {
	whole := someLog(t, 300)
	had, err := recovered(whole, "/wal")
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	refused := 0
	for range 100 {
		damaged := whole.Kill()
		where, err := flipBit(damaged, "/wal", rng.Float64(), rng.IntN(8))
		if err != nil {
			t.Fatal(err)
		}
		has, err := recovered(damaged, "/wal")
		switch {
		case errors.Is(err, wal.ErrCorrupt):
			refused++
		case err != nil:
			t.Errorf("seed %d, %s: %v", seed, where, err)
		case !reflect.DeepEqual(had, has):
			t.Errorf("seed %d, %s: opens with %d entries of %d", seed, where, len(has.entries), len(had.entries))
		}
	}
	if refused < 30 {
		t.Errorf("seed %d: only %d of 100 flipped bits were noticed", seed, refused)
	}
}
