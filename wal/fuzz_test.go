package wal

import (
	"bytes"
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/coordd/coordd/pkg/raftcodec"
	"github.com/coordd/coordd/pkg/vfs"
)

// openPadded opens a log of segments with this content, followed by zeros up to
// the size of a segment. What opens must be usable and open again as it was;
// what does not must be refused as damaged.
func openPadded(t *testing.T, segments ...[]byte) *Recovered {
	t.Helper()
	disk := vfs.NewMem()
	must(t, disk.MkdirAll(testDir))
	for i, content := range segments {
		file, err := disk.Create(segmentPath(uint64(i + 1)))
		must(t, err)
		must(t, file.Preallocate(minSegmentBytes))
		_, err = file.WriteAt(content, 0)
		must(t, errors.Join(err, file.Close()))
	}
	l, rec, err := Open(disk, testDir, Options{SegmentBytes: minSegmentBytes})
	if err != nil {
		if !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		return nil
	}
	last := rec.Start.Index + uint64(len(rec.Entries))
	if last == 1<<64-1 {
		return rec
	}
	must(t, l.Append(nil, entries(last+1, last+1, 1, 100), true))
	must(t, l.Close())
	l, again, err := Open(disk, testDir, Options{})
	must(t, err)
	if len(again.Entries) != len(rec.Entries)+1 || again.TornBytes != 0 {
		t.Fatalf("%d entries, then %d, %d torn bytes", len(rec.Entries), len(again.Entries), again.TornBytes)
	}
	must(t, l.Close())
	return rec
}

// FuzzOpen opens two segments of arbitrary content.
func FuzzOpen(f *testing.F) {
	fs := newFS(f)
	l := create(f, fs, Options{SegmentBytes: minSegmentBytes})
	must(f, l.Append(hard(1, 1, 1), entries(1, 2, 1, 20), true))
	must(f, l.Append(nil, entries(2, 3, 2, 300), true))
	must(f, l.Append(hard(2, 1, 1), nil, true))
	l.mu.Lock()
	l.current.size = l.off // so that the next append begins a segment
	l.mu.Unlock()
	must(f, l.Append(nil, entries(4, 4, 2, 30), true))
	must(f, l.Close())
	content := func(seq uint64) (used []byte) {
		edit(f, fs, seq, func(b []byte) []byte { used = bytes.TrimRight(b, "\x00"); return b })
		return used
	}
	first, second := content(1), content(2)
	f.Add(first, second)
	f.Add(second, first)
	f.Add(first, []byte{})
	f.Add([]byte(segmentMagic), make([]byte, 600))
	f.Add(first[:700], second[:520])
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if len(a) <= minSegmentBytes && len(b) <= minSegmentBytes {
			openPadded(t, a, b)
		}
	})
}

// FuzzPayload opens a log with a frame whose checksums are right and whose
// payload and flags are arbitrary.
func FuzzPayload(f *testing.F) {
	f.Add(byte(0), raftcodec.AppendEntries(nil, entries(1, 3, 1, 10)))
	f.Add(byte(flagHardState), []byte{1, 2, 3, 0})
	f.Add(byte(flagHardState|flagReset), []byte{1, 2, 3, 40, 2, 1, 3, 2, 41})
	f.Add(byte(0), raftcodec.AppendEntries(nil, []*raftpb.Entry{{}, {Index: new(uint64(5))}}))
	f.Fuzz(func(t *testing.T, flags byte, payload []byte) {
		if len(payload) > minSegmentBytes/2 {
			return
		}
		s := segmentInfo{seq: 1, size: minSegmentBytes, meta: testMeta}
		content := s.encode(nil)
		body := append(make([]byte, frameHeader), payload...)
		body = append(body, mark)
		seal(body, flags&flagBits, segmentHeader, segmentHeader, frameSeed(testMeta, 1), s.crc)
		rec := openPadded(t, spread(content, segmentHeader, body))
		if rec != nil && rec.TornBytes != 0 {
			t.Fatalf("a whole frame was taken for a torn one: %+v", rec)
		}
	})
}
