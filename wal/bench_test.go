package wal

import (
	"path/filepath"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/coordd/coordd/pkg/vfs"
)

// nullFS is the operating system's file system without the cost of writing, so
// that what remains is the cost of the log.
type nullFS struct{ vfs.FS }

type nullFile struct{ vfs.File }

func (f nullFS) Create(name string) (vfs.File, error) {
	file, err := f.FS.Create(name)
	return nullFile{file}, err
}

func (nullFile) WriteAt(p []byte, _ int64) (int, error)   { return len(p), nil }
func (nullFile) WriteSync(p []byte, _ int64) (int, error) { return len(p), nil }
func (nullFile) Sync() error                              { return nil }

// appender appends one entry of 300 bytes per call, with a new hard state.
func appender(tb testing.TB, fs vfs.FS) func() {
	l, err := Create(fs, filepath.Join(tb.TempDir(), "wal"), testMeta, Options{SegmentBytes: 1 << 28})
	must(tb, err)
	tb.Cleanup(func() { must(tb, l.Close()) })
	ents := entries(1, 1, 7, 300)
	hs := hard(7, 1, 0)
	return func() {
		must(tb, l.Append(hs, ents, true))
		*ents[0].Index++
		*hs.Commit++
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(1000, appender(t, nullFS{vfs.OS()})); n != 0 {
		t.Errorf("%v allocations per append", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	appendOne := appender(b, nullFS{vfs.OS()})
	b.ReportAllocs()
	for b.Loop() {
		appendOne()
	}
}

func BenchmarkAppendSync(b *testing.B) {
	appendOne := appender(b, vfs.OS())
	b.ReportAllocs()
	for b.Loop() {
		appendOne()
	}
}

func BenchmarkOpen(b *testing.B) {
	fs := newFS(b)
	l := create(b, fs, Options{})
	var bytes int64
	for i := uint64(1); i <= 100_000; i++ {
		must(b, l.Append(nil, []*raftpb.Entry{entry(i, 1, 300)}, true))
		bytes += 300
	}
	must(b, l.Close())
	b.SetBytes(bytes)
	for b.Loop() {
		l, _, err := Open(fs, testDir, Options{})
		must(b, err)
		must(b, l.Close())
	}
}
