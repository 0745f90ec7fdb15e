package wal

import (
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/coordd/coordd/pkg/vfs"
)

// faulty returns a log on a file system with the faults of a plan.
func faulty(t testing.TB, opts Options) (*vfs.Mem, *vfs.Plan, *Log) {
	t.Helper()
	disk, plan := newFS(t), &vfs.Plan{}
	opts.SegmentBytes = minSegmentBytes
	return disk, plan, create(t, vfs.WithFaults(disk, plan), opts)
}

// wantPoisoned checks that the log answers everything with its first error.
func wantPoisoned(t testing.TB, l *Log, first error) {
	t.Helper()
	for name, err := range map[string]error{
		"Append":  l.Append(nil, entries(1, 1, 1, 1), true),
		"Reset":   l.Reset(Position{9, 9}, nil),
		"Sync":    l.Sync(),
		"Release": l.Release(1),
	} {
		if err != first {
			t.Errorf("%s says %v, want %v", name, err, first)
		}
	}
	if err := l.Close(); !errors.Is(err, first) {
		t.Errorf("Close says %v, want %v", err, first)
	}
	if err := l.Append(nil, entries(1, 1, 1, 1), true); err != ErrClosed {
		t.Errorf("after Close: %v", err)
	}
}

func TestFailedSync(t *testing.T) {
	disk, plan, l := faulty(t, Options{})
	must(t, l.Append(nil, entries(1, 2, 1, 100), true))
	hits := plan.Add(vfs.Fault{Op: vfs.OpSync, Err: syscall.EIO, Times: 1})
	err := l.Append(nil, entries(3, 3, 1, 100), true)
	if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), segmentName(1)) || !strings.Contains(err.Error(), "restart") {
		t.Fatalf("error is %v", err)
	}
	wantPoisoned(t, l, err)
	if hits() != 1 {
		t.Fatal("the flush was tried again")
	}
	_, rec := open(t, disk.Crash(nil), Options{})
	wantSummary(t, rec, "after 0/0: 1/1 2/1 hard 0,0,0")

	// The next process sees the bytes in the page cache. It must write them
	// again before it flushes: the failed flush may have marked them clean.
	next := disk.Kill()
	var ops []vfs.Op
	again := &vfs.Plan{}
	again.Add(vfs.Fault{Op: vfs.OpWrite | vfs.OpSync | vfs.OpSyncDir, Hook: func(op vfs.Op, _ string) { ops = append(ops, op) }})
	_, rec = open(t, vfs.WithFaults(next, again), Options{})
	wantSummary(t, rec, "after 0/0: 1/1 2/1 3/1 hard 0,0,0")
	if len(ops) != 3 || ops[0] != vfs.OpWrite || ops[1] != vfs.OpSync {
		t.Fatalf("opening did %v", ops)
	}
	_, rec = open(t, next.Crash(nil), Options{})
	wantSummary(t, rec, "after 0/0: 1/1 2/1 3/1 hard 0,0,0")
}

func TestShortAndTornWrites(t *testing.T) {
	for name, fault := range map[string]vfs.Fault{
		"nothing":     {Err: syscall.EIO},
		"short":       {Err: syscall.ENOSPC, Short: 777},
		"almost all":  {Err: syscall.EIO, Short: 2020},
		"odd sectors": {Err: syscall.EIO, Torn: func(s int) bool { return s%2 == 1 }},
		"the last":    {Err: syscall.EIO, Torn: func(s int) bool { return s >= 3 }},
	} {
		t.Run(name, func(t *testing.T) {
			disk, plan, l := faulty(t, Options{})
			must(t, l.Append(hard(3, 1, 0), entries(1, 2, 3, 100), true))
			fault.Op = vfs.OpWrite
			plan.Add(fault)
			err := l.Append(nil, entries(3, 3, 3, 2000), true)
			if !errors.Is(err, fault.Err) {
				t.Fatalf("error is %v", err)
			}
			wantPoisoned(t, l, err)
			core, logs := observer.New(zap.WarnLevel)
			l, rec := open(t, disk.Kill(), Options{Logger: zap.New(core)})
			wantSummary(t, rec, "after 0/0: 1/3 2/3 hard 3,1,0")
			if wrote := name != "nothing"; wrote != (rec.TornBytes > 0) || wrote != (logs.Len() == 1) || wrote != (rec.TornFile == segmentPath(1)) {
				t.Fatalf("recovered %+v, logged %v", rec, logs.All())
			}
			must(t, l.Append(nil, entries(3, 3, 4, 10), true))
		})
	}
}

// fill appends until the next append of this size begins a new segment.
func fill(t testing.TB, l *Log) (last uint64) {
	t.Helper()
	for i := uint64(1); ; i++ {
		if physicalEnd(l.off, 3100) > l.current.size {
			return i - 1
		}
		must(t, l.Append(nil, entries(i, i, 1, 3000), true))
	}
}

func TestFullDiskAtCut(t *testing.T) {
	for name, op := range map[string]vfs.Op{"create": vfs.OpCreate, "preallocate": vfs.OpPreallocate} {
		t.Run(name, func(t *testing.T) {
			disk, plan, l := faulty(t, Options{})
			plan.Add(vfs.Fault{Op: op, Err: syscall.ENOSPC})
			last := fill(t, l)
			err := l.Append(nil, entries(last+1, last+1, 1, 3000), true)
			if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "make room") || !strings.Contains(err.Error(), segmentName(2)) {
				t.Fatalf("error is %v", err)
			}
			wantPoisoned(t, l, err)
			for _, after := range []*vfs.Mem{disk.Kill(), disk.Crash(nil)} {
				l, rec := open(t, after, Options{SegmentBytes: minSegmentBytes})
				if got := uint64(len(rec.Entries)); got != last {
					t.Fatalf("%d entries of %d", got, last)
				}
				must(t, l.Append(nil, entries(last+1, last+1, 1, 3000), true))
				if names := list(t, after); strings.Contains(names, tempSuffix) {
					t.Fatalf("left behind: %s", names)
				}
			}
		})
	}
}

// TestFullDiskWhilePreparing: making the next segment ahead may fail as long
// as there is room when it is needed.
func TestFullDiskWhilePreparing(t *testing.T) {
	_, plan, l := faulty(t, Options{})
	hits := plan.Add(vfs.Fault{Op: vfs.OpPreallocate, Err: syscall.ENOSPC, Times: 1})
	last := fill(t, l)
	must(t, l.Append(nil, entries(last+1, last+1, 1, 3000), true))
	if l.current.seq != 2 || hits() != 1 {
		t.Fatalf("log is in segment %d after %d failures", l.current.seq, hits())
	}
}

// TestFailedFlushWhilePreparing is final: nobody knows what the disk holds.
func TestFailedFlushWhilePreparing(t *testing.T) {
	for name, op := range map[string]vfs.Op{"content": vfs.OpSync, "name": vfs.OpSyncDir} {
		t.Run(name, func(t *testing.T) {
			_, plan, l := faulty(t, Options{})
			path := segmentName(2) + "*"
			if op == vfs.OpSyncDir {
				path = ""
			}
			plan.Add(vfs.Fault{Op: op, Path: path, Err: syscall.EIO, Times: 1})
			last := fill(t, l)
			err := l.Append(nil, entries(last+1, last+1, 1, 3000), true)
			if !errors.Is(err, syscall.EIO) {
				t.Fatalf("error is %v", err)
			}
			wantPoisoned(t, l, err)
		})
	}
}

func TestFailedRelease(t *testing.T) {
	disk, plan, l := faulty(t, Options{})
	last := fill(t, l)
	must(t, l.Append(nil, entries(last+1, last+1, 1, 3000), true))
	plan.Add(vfs.Fault{Op: vfs.OpRemove, Err: syscall.EACCES, Times: 1})
	if err := l.Release(last); !errors.Is(err, syscall.EACCES) || !strings.Contains(err.Error(), segmentName(1)) {
		t.Fatalf("error is %v", err)
	}
	must(t, l.Append(nil, entries(last+2, last+2, 1, 10), true)) // nothing is lost
	must(t, l.Release(last))
	if names := list(t, disk); strings.Contains(names, segmentName(1)) {
		t.Fatalf("not removed: %s", names)
	}
	must(t, l.Close())
	l, rec := open(t, vfs.WithFaults(disk, plan), Options{SegmentBytes: minSegmentBytes})
	if rec.Start != (Position{last, 1}) || len(rec.Entries) != 2 {
		t.Fatalf("recovered %s", summary(t, rec))
	}
	for i := last + 3; l.current.seq == 2; i++ {
		must(t, l.Append(nil, entries(i, i, 1, 3000), true))
	}
	plan.Add(vfs.Fault{Op: vfs.OpSyncDir, Err: syscall.EIO, Times: 1})
	err := l.Release(l.Last().Index)
	if !errors.Is(err, syscall.EIO) {
		t.Fatalf("error is %v", err)
	}
	wantPoisoned(t, l, err)
}

func TestFailedOpenAndCreate(t *testing.T) {
	disk, _, l := faulty(t, Options{})
	must(t, l.Append(nil, entries(1, 1, 1, 10), true))
	must(t, l.Close())
	for _, op := range []vfs.Op{vfs.OpOpen, vfs.OpRead, vfs.OpWrite, vfs.OpSync, vfs.OpSyncDir, vfs.OpLock} {
		plan := &vfs.Plan{}
		hits := plan.Add(vfs.Fault{Op: op, Err: syscall.EIO})
		if _, _, err := Open(vfs.WithFaults(disk, plan), testDir, Options{}); !errors.Is(err, syscall.EIO) || errors.Is(err, ErrCorrupt) || hits() == 0 {
			t.Errorf("op %d: opening says %v", op, err)
		}
	}
	open(t, disk, Options{}) // the lock was dropped each time, nothing was harmed
	for _, op := range []vfs.Op{vfs.OpMkdir, vfs.OpCreate, vfs.OpWrite, vfs.OpSync, vfs.OpRename, vfs.OpSyncDir, vfs.OpLock} {
		disk, plan := newFS(t), &vfs.Plan{}
		hits := plan.Add(vfs.Fault{Op: op, Err: syscall.EIO})
		if _, err := Create(vfs.WithFaults(disk, plan), testDir, testMeta, Options{}); !errors.Is(err, syscall.EIO) || hits() == 0 {
			t.Errorf("op %d: creating says %v", op, err)
		}
		if !Exists(disk, testDir) {
			create(t, disk, Options{})
		}
	}
}

// TestSlowPreparation: while the next segment is prepared slowly, appends go on,
// and Close waits for the goroutine.
func TestSlowPreparation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var syncs []time.Duration
		_, plan, l := faulty(t, Options{OnSync: func(d time.Duration) { syncs = append(syncs, d) }})
		plan.Add(vfs.Fault{Op: vfs.OpPreallocate, Hook: func(vfs.Op, string) { <-time.After(time.Minute) }})
		plan.Add(vfs.Fault{Op: vfs.OpSync, Path: segmentName(1) + "*", Hook: func(vfs.Op, string) { <-time.After(time.Millisecond) }})
		begin := time.Now()
		last := fill(t, l)
		if took := time.Since(begin); took != time.Duration(last)*time.Millisecond || len(syncs) != int(last) || syncs[0] != time.Millisecond {
			t.Fatalf("%d appends took %v, flushes %v", last, took, syncs)
		}
		must(t, l.Close())
		if took := time.Since(begin); took < time.Minute {
			t.Fatalf("Close returned after %v, before the goroutine ended", took)
		}
	})
}

// TestConcurrentUse appends, flushes, releases and looks at the same time.
func TestConcurrentUse(t *testing.T) {
	fs := newFS(t)
	l := create(t, fs, Options{SegmentBytes: minSegmentBytes})
	const n = 300
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for _, work := range []func() error{
		func() error { return l.Sync() },
		func() error { return l.Release(l.Last().Index / 2) },
	} {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if err := work(); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for i := uint64(1); i <= n; i++ {
		must(t, l.Append(hard(1, 1, i), entries(i, i, 1, 500), i%7 == 0))
	}
	close(stop)
	wg.Wait()
	must(t, l.Release(n/2))
	must(t, l.Close())
	_, rec := open(t, fs, Options{})
	if end := rec.Start.Index + uint64(len(rec.Entries)); end != n || rec.Start.Index > n/2 || rec.Start.Index < n/3 {
		t.Fatalf("recovered %s", summary(t, rec))
	}
}
