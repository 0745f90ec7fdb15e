package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coordd/coordd/pkg/vfs"
)

func segmentPath(seq uint64) string { return filepath.Join(testDir, segmentName(seq)) }

// edit changes the bytes of a segment file and makes them durable.
func edit(t testing.TB, fs vfs.FS, seq uint64, change func(b []byte) []byte) {
	t.Helper()
	f, err := fs.OpenReadWrite(segmentPath(seq))
	must(t, err)
	size, err := f.Size()
	must(t, err)
	b := make([]byte, size)
	_, err = f.ReadAt(b, 0)
	must(t, err)
	b = change(b)
	must(t, f.Truncate(int64(len(b))))
	_, err = f.WriteAt(b, 0)
	must(t, err)
	must(t, f.Sync())
	must(t, f.Close())
}

// frames returns where the frames of a log without later segments begin, and the end.
func buildFrames(t testing.TB, fs vfs.FS, sync bool, sizes ...int) (starts []int64) {
	l := create(t, fs, Options{SegmentBytes: minSegmentBytes})
	for i, size := range sizes {
		starts = append(starts, l.off)
		must(t, l.Append(hard(1, 1, uint64(i)), entries(uint64(i+1), uint64(i+1), 1, size), sync || i < len(sizes)-1))
	}
	starts = append(starts, l.off)
	if sync {
		must(t, l.Close())
	}
	return starts
}

// TestCutAtEveryByte wipes the end of the last append, which was never made
// durable, from each of its bytes on: what a write interrupted there leaves.
func TestCutAtEveryByte(t *testing.T) {
	fs := newFS(t)
	starts := buildFrames(t, fs, false, 100, 900, 30, 1500)
	begin, end := starts[3], starts[4]
	for cut := begin; cut < end; cut++ {
		disk := fs.Kill()
		edit(t, disk, 1, func(b []byte) []byte { clear(b[cut:]); return b })
		l, rec, err := Open(disk, testDir, Options{SegmentBytes: minSegmentBytes})
		must(t, err)
		want := "after 0/0: 1/1 2/1 3/1 hard 1,1,2"
		if rec.TornBytes == 0 && cut > begin && len(rec.Entries) == 4 {
			want = "after 0/0: 1/1 2/1 3/1 4/1 hard 1,1,3" // only padding was cut
		}
		wantSummary(t, rec, want)
		if got := rec.TornBytes; got > cut-begin || len(rec.Entries) == 3 && cut > begin && got == 0 {
			t.Fatalf("cut at %d of %d: %d torn bytes", cut-begin, end-begin, got)
		}
		must(t, l.Append(nil, entries(uint64(len(rec.Entries)+1), 6, 2, 700), true))
		must(t, l.Close())
		l, rec = open(t, disk, Options{})
		if rec.TornBytes != 0 || len(rec.Entries) != 6 {
			t.Fatalf("cut at %d: after repair and append: %s", cut, summary(t, rec))
		}
		must(t, l.Close())
	}
}

// TestTornSectors loses every subset of the sectors of a durable-less last append.
func TestTornSectors(t *testing.T) {
	fs := newFS(t)
	starts := buildFrames(t, fs, false, 100, 1900)
	first, last := starts[1]/sectorSize, (starts[2]-1)/sectorSize
	n := int(last - first + 1)
	if n < 4 {
		t.Fatalf("only %d sectors", n)
	}
	for lost := 1; lost < 1<<n; lost++ {
		disk := fs.Kill()
		edit(t, disk, 1, func(b []byte) []byte {
			for i := range n {
				if lost>>i&1 == 1 {
					from := max((first+int64(i))*sectorSize, starts[1])
					clear(b[from : (first+int64(i)+1)*sectorSize])
				}
			}
			return b
		})
		l, rec, err := Open(disk, testDir, Options{})
		must(t, err)
		wantSummary(t, rec, "after 0/0: 1/1 hard 1,1,0")
		if all := lost == 1<<n-1; all != (rec.TornBytes == 0) {
			t.Fatalf("lost %b of %d sectors: %d torn bytes", lost, n, rec.TornBytes)
		}
		must(t, l.Close())
	}
}

// TestTruncatedFile: the size of a segment is durable before it is used, so a
// shorter file is no crash.
func TestTruncatedFile(t *testing.T) {
	fs := newFS(t)
	starts := buildFrames(t, fs, true, 100, 900)
	for cut := starts[0]; cut <= starts[2]; cut++ {
		disk := fs.Kill()
		edit(t, disk, 1, func(b []byte) []byte { return b[:cut] })
		_, _, err := Open(disk, testDir, Options{})
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), segmentName(1)) || !strings.Contains(err.Error(), fmt.Sprint(cut)) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
}

// TestEveryBitFlip flips each bit of what was acknowledged, and some of the rest,
// in a log of two segments: everything acknowledged is there or the log is refused.
func TestEveryBitFlip(t *testing.T) {
	fs := newFS(t)
	l := create(t, fs, Options{SegmentBytes: minSegmentBytes})
	sizes := []int{0, 30, 600, 15500, 70, 520, 0}
	for i, size := range sizes {
		must(t, l.Append(hard(1, 1, uint64(i)), entries(uint64(i+1), uint64(i+1), 1, size), true))
	}
	used := l.off
	if l.current.seq != 3 && l.current.seq != 2 {
		t.Fatalf("log ends in segment %d", l.current.seq)
	}
	last := l.current.seq
	must(t, l.Close())
	var refused, repaired, harmless int
	try := func(seq uint64, bit int64) {
		plan := &vfs.Plan{}
		plan.Add(vfs.Fault{Op: vfs.OpRead, Path: segmentName(seq), FlipBits: []int64{bit}})
		l, rec, err := Open(vfs.WithFaults(fs.Kill(), plan), testDir, Options{})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), segmentName(seq)) {
				t.Fatalf("segment %d, bit %d: %v", seq, bit, err)
			}
			refused++
			return
		}
		wantSummary(t, rec, "after 0/0: 1/1 2/1 3/1 4/1 5/1 6/1 7/1 hard 1,1,6")
		if rec.TornBytes > 0 {
			repaired++
		} else {
			harmless++
		}
		if bit/8 < used && seq == last {
			t.Fatalf("segment %d, bit %d: not noticed", seq, bit)
		}
		must(t, l.Close())
	}
	for bit := int64(0); bit < used*8; bit++ {
		try(last, bit)
	}
	for seq := uint64(1); seq <= last; seq++ {
		for bit := int64(0); bit < minSegmentBytes*8; bit += 131 {
			try(seq, bit)
		}
	}
	if refused < int(used)*8 || repaired == 0 {
		t.Fatalf("%d refused, %d repaired, %d harmless", refused, repaired, harmless)
	}
}

// TestDamage: what no crash can do is refused with the place and the reason,
// and changes nothing.
func TestDamage(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, fs *vfs.Mem, off int64) // off: of the third frame of segment 1
		want   []string
	}{
		{"hole in synced frames", func(t *testing.T, fs *vfs.Mem, off int64) {
			edit(t, fs, 1, func(b []byte) []byte { clear(b[off : off+40]); return b })
		}, []string{segmentName(1), "expected a frame, found none"}},
		{"missing segment", func(t *testing.T, fs *vfs.Mem, off int64) {
			must(t, fs.Remove(segmentPath(2)))
		}, []string{segmentName(3), "expected segment 2", "missing"}},
		{"segment under another name", func(t *testing.T, fs *vfs.Mem, off int64) {
			must(t, fs.Rename(segmentPath(1), segmentPath(2)))
		}, []string{segmentName(2), "found the header of segment 1"}},
		{"end of an early segment", func(t *testing.T, fs *vfs.Mem, off int64) {
			edit(t, fs, 2, func(b []byte) []byte { clear(b[segmentHeader:]); return b })
		}, []string{segmentName(2), "offset 512", "ends at offset"}},
		{"header of an early segment", func(t *testing.T, fs *vfs.Mem, off int64) {
			edit(t, fs, 2, func(b []byte) []byte { clear(b[:segmentHeader]); return b })
		}, []string{segmentName(2), "offset 0", segmentMagic}},
		{"header of the last segment", func(t *testing.T, fs *vfs.Mem, off int64) {
			edit(t, fs, 3, func(b []byte) []byte { clear(b[:segmentHeader]); return b })
		}, []string{segmentName(3), "offset 0", "was durable"}},
		{"newer format", func(t *testing.T, fs *vfs.Mem, off int64) {
			edit(t, fs, 1, func(b []byte) []byte {
				binary.LittleEndian.PutUint32(b[8:], 9)
				binary.LittleEndian.PutUint32(b[headerFields:], checksumOf(b[:headerFields]))
				return b
			})
		}, []string{segmentName(1), "expected format version 1, found 9"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := newFS(t)
			l := create(t, fs, Options{SegmentBytes: minSegmentBytes})
			var off int64
			for i := uint64(1); i <= 12; i++ {
				if i == 3 {
					off = l.off
				}
				must(t, l.Append(nil, entries(i, i, 1, 3000), true))
			}
			if l.current.seq != 3 || l.durable < 6000 {
				t.Fatalf("log ends in segment %d at %d", l.current.seq, l.durable)
			}
			must(t, l.Close())
			c.damage(t, fs, off)
			before := list(t, fs)
			_, _, err := Open(fs, testDir, Options{})
			if !errors.Is(err, ErrCorrupt) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("error is %v", err)
			}
			for _, w := range append(c.want, "add it again") {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not say %q", err, w)
				}
			}
			if after := list(t, fs); before != after {
				t.Errorf("files were %s, are %s", before, after)
			}
			if _, _, again := Open(fs, testDir, Options{}); again == nil || again.Error() != err.Error() {
				t.Errorf("the second time it says %v", again)
			}
		})
	}
}

// TestHoleInLastSegment: a wiped frame is a crash only if nothing after it
// proves that it had been durable.
func TestHoleInLastSegment(t *testing.T) {
	fs := newFS(t)
	l := create(t, fs, Options{SegmentBytes: minSegmentBytes})
	must(t, l.Append(nil, entries(1, 1, 1, 600), true))
	second := l.off
	must(t, l.Append(nil, entries(2, 2, 1, 600), false))
	third := l.off
	must(t, l.Append(nil, entries(3, 3, 1, 600), true))
	lose := func(disk *vfs.Mem) *vfs.Mem {
		edit(t, disk, 1, func(b []byte) []byte { clear(b[second:third]); return b })
		return disk
	}
	// Frames 2 and 3 became durable together: 3 does not vouch for 2.
	_, rec := open(t, lose(fs.Kill()), Options{})
	wantSummary(t, rec, "after 0/0: 1/1 hard 0,0,0")
	// Frame 4 does.
	must(t, l.Append(nil, entries(4, 4, 1, 600), true))
	if _, _, err := Open(lose(fs.Kill()), testDir, Options{}); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), fmt.Sprintf("offset %d", second)) {
		t.Fatalf("error is %v", err)
	}
}

func checksumOf(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func list(t testing.TB, fs vfs.FS) string {
	t.Helper()
	names, err := fs.List(testDir)
	must(t, err)
	return strings.Join(names, " ")
}
