package snap

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/coordd/coordd/pkg/vfs"
)

const testDir = "member/snap"

var testPos = Position{Index: 0x1388, Term: 7}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func store(t testing.TB, fs vfs.FS) *Store {
	t.Helper()
	must(t, fs.MkdirAll(filepath.Dir(testDir)))
	must(t, fs.SyncDir("."))
	s, err := Open(fs, testDir, Options{})
	must(t, err)
	return s
}

func content(size int) []byte {
	b := make([]byte, size)
	r := rand.New(rand.NewPCG(uint64(size), 0))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func stream(t testing.TB, pos Position, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, Send(t.Context(), &b, Header{pos, int64(len(data))}, bytes.NewReader(data)))
	return b.Bytes()
}

func receive(t testing.TB, s *Store, pos Position, data []byte) (string, error) {
	t.Helper()
	return s.Receive(t.Context(), pos, int64(len(data)), bytes.NewReader(stream(t, pos, data)))
}

func read(t testing.TB, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	must(t, err)
	size, err := f.Size()
	must(t, err)
	b := make([]byte, size)
	_, err = f.ReadAt(b, 0)
	must(t, errors.Join(err, f.Close()))
	return b
}

func names(t testing.TB, fs vfs.FS) string {
	t.Helper()
	l, err := fs.List(testDir)
	must(t, err)
	return strings.Join(l, " ")
}

func TestReceiveFindVerify(t *testing.T) {
	for _, size := range []int{0, 1, chunkBytes - 1, chunkBytes, chunkBytes + 1, 3*chunkBytes + 77} {
		fs := vfs.NewMem()
		s := store(t, fs)
		data := content(size)
		if _, err := s.Find(testPos); !errors.Is(err, ErrNotFound) {
			t.Fatalf("finding nothing: %v", err)
		}
		path, err := receive(t, s, testPos, data)
		must(t, err)
		if path != testDir+"/0000000000001388.snap.db" {
			t.Fatalf("path is %s", path)
		}
		disk := fs.Crash(nil) // it is durable
		s = store(t, disk)
		found, err := s.Find(testPos)
		must(t, err)
		must(t, s.Verify(t.Context(), testPos))
		if found != path || !bytes.Equal(read(t, disk, path), data) {
			t.Fatalf("%d bytes: found %s with other content", size, found)
		}
		if _, err := s.Find(Position{testPos.Index, 8}); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "term 8") {
			t.Fatalf("another term: %v", err)
		}
	}
}

func TestRealFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snap")
	s, err := Open(vfs.OS(), dir, Options{})
	must(t, err)
	data := content(100_000)
	path, err := receive(t, s, testPos, data)
	must(t, err)
	must(t, s.Verify(t.Context(), testPos))
	if !bytes.Equal(read(t, vfs.OS(), path), data) {
		t.Fatal("other content")
	}
	must(t, s.Remove(testPos.Index))
	must(t, s.CleanTemp())
	if left, err := vfs.OS().List(dir); err != nil || len(left) != 0 {
		t.Fatalf("left are %v, %v", left, err)
	}
}

// TestDamagedStream: each cut and each flipped bit of a stream is refused, and
// leaves nothing behind.
func TestDamagedStream(t *testing.T) {
	fs := vfs.NewMem()
	s := store(t, fs)
	data := content(500)
	whole := stream(t, testPos, data)
	try := func(what string, at int, b []byte) {
		t.Helper()
		_, err := s.Receive(t.Context(), testPos, int64(len(data)), bytes.NewReader(b))
		if !errors.Is(err, ErrDamaged) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%s at %d: %v", what, at, err)
		}
		if left := names(t, fs); left != "" {
			t.Fatalf("%s at %d leaves %s", what, at, left)
		}
	}
	for cut := range whole {
		try("cut", cut, whole[:cut])
	}
	for bit := range 8 * len(whole) {
		b := bytes.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		try("flip", bit, b)
	}
	for _, size := range []int64{0, 499, 501} {
		if _, err := s.Receive(t.Context(), testPos, size, bytes.NewReader(whole)); !errors.Is(err, ErrDamaged) {
			t.Errorf("size %d: %v", size, err)
		}
	}
	if _, err := s.Receive(t.Context(), Position{1, 1}, 500, bytes.NewReader(whole)); !errors.Is(err, ErrDamaged) {
		t.Errorf("another position: %v", err)
	}
}

func TestVerifyFindsChanges(t *testing.T) {
	fs := vfs.NewMem()
	s := store(t, fs)
	_, err := receive(t, s, testPos, content(600))
	must(t, err)
	for name, size := range map[string]int{"0000000000001388.snap.db": 600, "0000000000001388.snap.meta": metaBytes} {
		for bit := range int64(size) * 8 {
			plan := &vfs.Plan{}
			plan.Add(vfs.Fault{Op: vfs.OpRead, Path: name, FlipBits: []int64{bit}})
			s, err := Open(vfs.WithFaults(fs, plan), testDir, Options{})
			must(t, err)
			if err := s.Verify(t.Context(), testPos); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "remove the snapshot") {
				t.Fatalf("bit %d of %s: %v", bit, name, err)
			}
		}
	}
	f, err := fs.OpenReadWrite(testDir + "/" + Name(testPos.Index))
	must(t, err)
	must(t, f.Truncate(599))
	must(t, f.Close())
	if _, err := s.Find(testPos); !errors.Is(err, ErrDamaged) {
		t.Fatalf("shorter file: %v", err)
	}
}

func TestFaults(t *testing.T) {
	for name, f := range map[string]vfs.Fault{
		"full disk":            {Op: vfs.OpPreallocate, Err: syscall.ENOSPC},
		"failed create":        {Op: vfs.OpCreate, Err: syscall.EACCES},
		"short write":          {Op: vfs.OpWrite, Path: "*.db.tmp", Err: syscall.EIO, Short: 100},
		"failed flush":         {Op: vfs.OpSync, Path: "*.db.tmp", Err: syscall.EIO},
		"failed close":         {Op: vfs.OpClose, Path: "*.db.tmp", Err: syscall.EIO},
		"description":          {Op: vfs.OpWrite, Path: "*.meta.tmp", Err: syscall.ENOSPC},
		"description's flush":  {Op: vfs.OpSync, Path: "*.meta.tmp", Err: syscall.EIO},
		"description's rename": {Op: vfs.OpRename, Path: "*.meta", Err: syscall.EIO},
		"rename":               {Op: vfs.OpRename, Path: "*.db", Err: syscall.EIO},
		"directory's flush":    {Op: vfs.OpSyncDir, Err: syscall.EIO, Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			disk, plan := vfs.NewMem(), &vfs.Plan{}
			s := store(t, vfs.WithFaults(disk, plan))
			hits := plan.Add(f)
			data := content(2000)
			if _, err := receive(t, s, testPos, data); !errors.Is(err, f.Err) || hits() == 0 || !strings.Contains(err.Error(), testDir) {
				t.Fatalf("error is %v", err)
			}
			if strings.Contains(names(t, disk), ".snap.db") {
				t.Fatalf("left behind: %s", names(t, disk))
			}
			plan.Clear()
			must(t, s.CleanTemp())
			if left := names(t, disk); left != "" {
				t.Fatalf("left behind: %s", left)
			}
			_, err := receive(t, s, testPos, data)
			must(t, err)
			must(t, s.Verify(t.Context(), testPos))
		})
	}
}

// TestPowerCut cuts the power before each file operation of replacing a
// snapshot by another of the same index: whatever Find finds is whole.
func TestPowerCut(t *testing.T) {
	fs, plan := vfs.NewMem(), &vfs.Plan{}
	s := store(t, vfs.WithFaults(fs, plan))
	r := rand.New(rand.NewPCG(3, 4))
	newPos := Position{testPos.Index, 9}
	found := map[Position]int{}
	check := func(disk *vfs.Mem) {
		s := store(t, disk)
		for _, pos := range []Position{testPos, newPos} {
			if _, err := s.Find(pos); err == nil {
				must(t, s.Verify(t.Context(), pos))
				found[pos]++
			}
		}
		must(t, s.CleanTemp())
		if strings.Contains(names(t, disk), tempSuffix) {
			t.Fatalf("left behind: %s", names(t, disk))
		}
	}
	plan.Add(vfs.Fault{Op: vfs.OpAny, Hook: func(vfs.Op, string) {
		for range 20 {
			check(fs.Crash(r))
		}
	}})
	_, err := receive(t, s, testPos, content(5000))
	must(t, err)
	_, err = receive(t, s, newPos, content(4000))
	must(t, err)
	check(fs.Crash(nil))
	if found[testPos] == 0 || found[newPos] == 0 {
		t.Fatalf("found %v", found)
	}
}

func TestPurgeListAndNames(t *testing.T) {
	fs := vfs.NewMem()
	s := store(t, fs)
	for i := uint64(1); i <= 5; i++ {
		_, err := receive(t, s, Position{i * 1000, i}, content(10))
		must(t, err)
	}
	foreign, err := fs.Create(testDir + "/notes.txt")
	must(t, err)
	must(t, foreign.Close())
	must(t, s.Purge(2))
	must(t, s.Remove(77))
	got, err := s.List()
	must(t, err)
	if len(got) != 2 || got[0] != (Position{4000, 4}) || got[1] != (Position{5000, 5}) {
		t.Fatalf("left are %v", got)
	}
	must(t, s.Purge(0))
	must(t, s.CleanTemp())
	if left := names(t, fs.Crash(nil)); left != "" && left != "notes.txt" {
		t.Fatalf("left are %s", left)
	}
	for _, bad := range []string{"", "x.snap.db", "123.snap.db", "000000000000138G.snap.db", "000000000000ABCD.snap.db", "0000000000001388.snap.db.tmp"} {
		if i, ok := ParseName(bad); ok {
			t.Errorf("%q is the name of %d", bad, i)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.Uint64().Draw(t, "index")
		if got, ok := ParseName(Name(i)); !ok || got != i {
			t.Fatalf("%d became %d, %v", i, got, ok)
		}
	})
}

func TestBusyAndCancel(t *testing.T) {
	fs := vfs.NewMem()
	s := store(t, fs)
	data := content(2*chunkBytes + 5)
	whole := stream(t, testPos, data)
	pr, pw := io.Pipe()
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		_, err := s.Receive(ctx, testPos, int64(len(data)), pr)
		done <- err
	}()
	_, err := pw.Write(whole[:headerBytes+chunkHeader+10])
	must(t, err)
	if _, err := receive(t, s, testPos, data); !errors.Is(err, ErrBusy) {
		t.Errorf("a second one at once: %v", err)
	}
	must(t, s.CleanTemp())
	if !strings.Contains(names(t, fs), tempSuffix) {
		t.Error("CleanTemp removed what is being received")
	}
	why := errors.New("shutting down")
	cancel(why)
	_, err = pw.Write(whole[headerBytes+chunkHeader+10 : headerBytes+chunkHeader+chunkBytes])
	must(t, err)
	if err := <-done; !errors.Is(err, why) {
		t.Errorf("canceled: %v", err)
	}
	if err := Send(ctx, io.Discard, Header{testPos, int64(len(data))}, bytes.NewReader(data)); !errors.Is(err, why) {
		t.Errorf("sending after cancel: %v", err)
	}
	if err := Send(t.Context(), io.Discard, Header{testPos, 99}, bytes.NewReader(data[:98])); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("sending too little: %v", err)
	}
}

// FuzzReceive gives arbitrary bytes to Receive: it stores a snapshot only if
// that can be sent again as the same.
func FuzzReceive(f *testing.F) {
	f.Add(stream(f, testPos, content(300)), int64(300))
	f.Add(stream(f, testPos, nil), int64(0))
	f.Add([]byte(magic), int64(1)<<40)
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		if size > 1<<20 {
			size %= 1 << 20
		}
		fs := vfs.NewMem()
		s := store(t, fs)
		path, err := s.Receive(t.Context(), testPos, size, bytes.NewReader(b))
		if err != nil {
			return
		}
		must(t, s.Verify(t.Context(), testPos))
		if got := read(t, fs, path); int64(len(got)) != size {
			t.Fatalf("%d bytes of %d", len(got), size)
		}
	})
}
