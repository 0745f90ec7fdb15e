package wal

import (
	"bytes"
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/coordd/coordd/pkg/vfs"
)

const testDir = "member/wal"

var testMeta = Metadata{MemberID: 0xA1, ClusterID: 0xC1}

func newFS(t testing.TB) *vfs.Mem {
	t.Helper()
	fs := vfs.NewMem()
	must(t, fs.MkdirAll(filepath.Dir(testDir)))
	must(t, fs.SyncDir("."))
	return fs
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t testing.TB, fs vfs.FS, opts Options) *Log {
	t.Helper()
	l, err := Create(fs, testDir, testMeta, opts)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func open(t testing.TB, fs vfs.FS, opts Options) (*Log, *Recovered) {
	t.Helper()
	l, rec, err := Open(fs, testDir, opts)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l, rec
}

// entry has content that depends on index, term and size alone.
func entry(index, term uint64, size int) *raftpb.Entry {
	data := bytes.Repeat([]byte(fmt.Sprintf("%d/%d ", index, term)), size/4+1)[:size]
	return &raftpb.Entry{Index: new(index), Term: new(term), Type: new(raftpb.EntryNormal), Data: data}
}

func entries(from, to, term uint64, size int) []*raftpb.Entry {
	var ents []*raftpb.Entry
	for i := from; i <= to; i++ {
		ents = append(ents, entry(i, term, size))
	}
	return ents
}

func hard(term, vote, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: new(term), Vote: new(vote), Commit: new(commit)}
}

// summary tells what was recovered in a line: start, then index/term of entries
// (checking their content), then the hard state.
func summary(t testing.TB, rec *Recovered) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "after %d/%d:", rec.Start.Index, rec.Start.Term)
	for i, e := range rec.Entries {
		if e.GetIndex() != rec.Start.Index+1+uint64(i) {
			t.Fatalf("entry %d after %d has index %d", i, rec.Start.Index, e.GetIndex())
		}
		if want := entry(e.GetIndex(), e.GetTerm(), len(e.Data)); !bytes.Equal(e.Data, want.Data) {
			t.Fatalf("entry %d has content %q", e.GetIndex(), e.Data)
		}
		fmt.Fprintf(&b, " %d/%d", e.GetIndex(), e.GetTerm())
	}
	h := rec.HardState
	fmt.Fprintf(&b, " hard %d,%d,%d", h.GetTerm(), h.GetVote(), h.GetCommit())
	return b.String()
}

func wantSummary(t testing.TB, rec *Recovered, want string) {
	t.Helper()
	if got := summary(t, rec); got != want {
		t.Fatalf("recovered %q, want %q", got, want)
	}
}

func TestAppendAndReopen(t *testing.T) {
	fs := newFS(t)
	if Exists(fs, testDir) {
		t.Fatal("log exists before it was made")
	}
	l := create(t, fs, Options{})
	must(t, l.Append(hard(1, 2, 0), entries(1, 3, 1, 10), true))
	must(t, l.Append(hard(2, 3, 2), entries(3, 4, 2, 700), false))
	must(t, l.Append(nil, nil, true))
	must(t, l.Append(hard(2, 3, 4), nil, true))
	if got := l.Last(); got != (Position{4, 2}) {
		t.Fatalf("last is %v", got)
	}
	must(t, l.Close())
	must(t, l.Close())
	if !Exists(fs, testDir) {
		t.Fatal("log does not exist after it was made")
	}
	l, rec := open(t, fs, Options{})
	wantSummary(t, rec, "after 0/0: 1/1 2/1 3/2 4/2 hard 2,3,4")
	if rec.Meta != testMeta || rec.TornBytes != 0 || rec.Segments != 1 {
		t.Fatalf("recovered %+v", rec)
	}
	must(t, l.Append(nil, entries(5, 5, 2, 0), true))
	must(t, l.Close())
	_, rec = open(t, fs, Options{})
	wantSummary(t, rec, "after 0/0: 1/1 2/1 3/2 4/2 5/2 hard 2,3,4")
}

func TestRealFiles(t *testing.T) {
	fs, dir := vfs.OS(), filepath.Join(t.TempDir(), "wal")
	l, err := Create(fs, dir, testMeta, Options{SegmentBytes: minSegmentBytes})
	must(t, err)
	for i := uint64(1); i <= 60; i++ {
		must(t, l.Append(hard(1, 1, i-1), entries(i, i, 1, 1000), i%2 == 0))
	}
	if _, _, err := Open(fs, dir, Options{}); !errors.Is(err, ErrInUse) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("opening a log twice: %v", err)
	}
	must(t, l.Release(30))
	must(t, l.Close())
	l, rec, err := Open(fs, dir, Options{SegmentBytes: minSegmentBytes})
	must(t, err)
	if last := rec.Start.Index + uint64(len(rec.Entries)); last != 60 || rec.Start.Index == 0 || rec.Start.Index > 30 {
		t.Fatalf("recovered %s", summary(t, rec))
	}
	must(t, l.Close())
}

// A log on real files goes on where it was, within a block, after each Open, whatever its appends are made durable with.
func TestRealFilesReopened(t *testing.T) {
	fs, dir, opts := vfs.OS(), filepath.Join(t.TempDir(), "wal"), Options{SegmentBytes: minSegmentBytes}
	l, err := Create(fs, dir, testMeta, opts)
	must(t, err)
	for i := uint64(1); i <= 120; i++ {
		must(t, l.Append(hard(1, 1, i-1), entries(i, i, 1, int(i*i*37%5000)), i%5 != 0))
		if i%7 != 0 {
			continue
		}
		must(t, l.Close())
		var rec *Recovered
		l, rec, err = Open(fs, dir, opts)
		must(t, err)
		summary(t, rec) // checks the content
		if rec.Start.Index != 0 || len(rec.Entries) != int(i) || rec.HardState.GetCommit() != i-1 || rec.TornBytes != 0 {
			t.Fatalf("recovered %d entries after %d of %d, hard state %v", len(rec.Entries), rec.Start.Index, i, rec.HardState)
		}
	}
	must(t, l.Close())
}

func TestWrongEntriesChangeNothing(t *testing.T) {
	fs := newFS(t)
	l := create(t, fs, Options{})
	must(t, l.Reset(Position{10, 2}, hard(2, 0, 10)))
	must(t, l.Append(nil, entries(11, 12, 2, 5), true))
	gap := append(entries(13, 13, 2, 5), entries(15, 15, 2, 5)...)
	for name, ents := range map[string][]*raftpb.Entry{
		"after a gap": entries(14, 14, 2, 5), "with a gap": gap,
		"before the reset": entries(10, 11, 2, 5), "no index": {{}},
	} {
		if err := l.Append(hard(9, 9, 9), ents, true); !errors.Is(err, ErrNotContiguous) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, l.Append(nil, entries(12, 13, 3, 5), true))
	must(t, l.Close())
	_, rec := open(t, fs, Options{})
	wantSummary(t, rec, "after 10/2: 11/2 12/3 13/3 hard 2,0,10")
}

func TestReset(t *testing.T) {
	fs := newFS(t)
	l := create(t, fs, Options{SegmentBytes: minSegmentBytes})
	for i := uint64(1); i <= 20; i++ {
		must(t, l.Append(hard(1, 1, 5), entries(i, i, 1, 2000), true))
	}
	must(t, l.Reset(Position{500, 3}, hard(3, 0, 500)))
	_, rec := open(t, fs.Crash(nil), Options{})
	wantSummary(t, rec, "after 500/3: hard 3,0,500")
	must(t, l.Append(nil, entries(501, 501, 3, 10), true))
	must(t, l.Reset(Position{400, 4}, nil)) // a new leader's snapshot may lie before an uncommitted tail
	must(t, l.Append(nil, entries(401, 402, 4, 10), true))
	must(t, l.Release(400))
	_, rec = open(t, fs.Crash(nil), Options{})
	wantSummary(t, rec, "after 400/4: 401/4 402/4 hard 3,0,500")
	if rec.Segments != 1 {
		t.Fatalf("%d segments after release", rec.Segments)
	}
}

// TestReleaseKeepsWhatIsNeeded overwrites across a segment boundary: the older
// segment still has live entries below the one that overwrote.
func TestReleaseKeepsWhatIsNeeded(t *testing.T) {
	fs := newFS(t)
	l := create(t, fs, Options{SegmentBytes: minSegmentBytes})
	var i uint64
	for l.current.seq < 2 {
		i++
		must(t, l.Append(nil, entries(i, i, 1, 1000), true))
	}
	start := l.current.start.Index
	must(t, l.Append(nil, entries(start-4, start+3, 2, 10), true))
	must(t, l.Release(start-1))
	disk := fs.Kill()
	_, rec := open(t, disk, Options{})
	if rec.Start.Index != 0 || len(rec.Entries) != int(start)+3 || rec.Entries[start-5].GetTerm() != 2 || rec.Entries[start-6].GetTerm() != 1 {
		t.Fatalf("recovered %s", summary(t, rec))
	}
	must(t, l.Release(start))
	_, rec = open(t, fs.Kill(), Options{})
	if rec.Segments != 1 || rec.Start != (Position{start - 4, 2}) || len(rec.Entries) != 7 {
		t.Fatalf("recovered %s", summary(t, rec))
	}
}

// TestReleaseBeforeSync: the header of the segment that takes over must be
// durable before the ones it replaces go.
func TestReleaseBeforeSync(t *testing.T) {
	fs := newFS(t)
	l := create(t, fs, Options{SegmentBytes: minSegmentBytes})
	var i uint64
	for l.current.seq < 2 {
		i++
		must(t, l.Append(nil, entries(i, i, 1, 1000), false))
	}
	must(t, l.Release(i-1))
	_, rec := open(t, fs.Crash(nil), Options{})
	if rec.Segments != 1 || rec.Start != (Position{i - 1, 1}) {
		t.Fatalf("recovered %s from %d segments", summary(t, rec), rec.Segments)
	}
}

func TestLargeAppend(t *testing.T) {
	fs := newFS(t)
	l := create(t, fs, Options{SegmentBytes: minSegmentBytes})
	must(t, l.Append(nil, entries(1, 1, 1, 100), true))
	must(t, l.Append(nil, entries(2, 3, 1, 100_000), true))
	must(t, l.Append(nil, entries(4, 4, 1, 100), true))
	_, rec := open(t, fs.Crash(nil), Options{})
	wantSummary(t, rec, "after 0/0: 1/1 2/1 3/1 4/1 hard 0,0,0")
}

func TestUnsafeNoSync(t *testing.T) {
	fs, plan := newFS(t), &vfs.Plan{}
	flushes := plan.Add(vfs.Fault{Op: vfs.OpSync | vfs.OpSyncDir, Hook: func(vfs.Op, string) {}})
	opts := Options{SegmentBytes: minSegmentBytes, UnsafeNoSync: true}
	l := create(t, vfs.WithFaults(fs, plan), opts)
	for i := uint64(1); i <= 30; i++ {
		must(t, l.Append(nil, entries(i, i, 1, 1000), true))
	}
	must(t, l.Release(20))
	must(t, l.Close())
	l, _ = open(t, vfs.WithFaults(fs.Kill(), plan), opts)
	if flushes() != 0 {
		t.Fatalf("%d flushes", flushes())
	}
	if got := l.Last(); got != (Position{30, 1}) {
		t.Fatalf("log ends at %v", got)
	}
}

func TestNoLogAndSecondCreate(t *testing.T) {
	fs := newFS(t)
	if _, _, err := Open(fs, testDir, Options{}); !errors.Is(err, iofs.ErrNotExist) || !strings.Contains(err.Error(), testDir) {
		t.Errorf("opening nothing: %v", err)
	}
	l := create(t, fs, Options{})
	if _, err := Create(fs, testDir, testMeta, Options{}); !errors.Is(err, ErrInUse) {
		t.Errorf("creating an open log: %v", err)
	}
	must(t, l.Close())
	if _, err := Create(fs, testDir, testMeta, Options{}); !errors.Is(err, ErrExists) {
		t.Errorf("creating a log again: %v", err)
	}
}
