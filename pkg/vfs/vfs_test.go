package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, f File, off int64, s string) {
	t.Helper()
	n, err := f.WriteAt([]byte(s), off)
	if err != nil || n != len(s) {
		t.Fatalf("wrote %d bytes of %d: %v", n, len(s), err)
	}
}

// content reads a file, or returns "-" when it is missing.
func content(t testing.TB, fsys FS, name string) string {
	t.Helper()
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "-"
	}
	must(t, err)
	size, err := f.Size()
	must(t, err)
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n != len(b) {
		t.Fatal(err)
	}
	must(t, f.Close())
	return string(b)
}

func file(t testing.TB, fsys FS, name, s string, sync bool) File {
	t.Helper()
	f, err := fsys.Create(name)
	must(t, err)
	write(t, f, 0, s)
	if sync {
		must(t, f.Sync())
	}
	return f
}

// TestContract holds all implementations to the contract of FS and File.
func TestContract(t *testing.T) {
	for name, fsys := range map[string]FS{
		"os": OS(), "mem": NewMem(), "faults": WithFaults(NewMem(), &Plan{}),
	} {
		t.Run(name, func(t *testing.T) { testContract(t, fsys, filepath.Join(t.TempDir(), "a", "b")) })
	}
}

func testContract(t *testing.T, fsys FS, dir string) {
	p := func(s string) string { return filepath.Join(dir, s) }
	if _, err := fsys.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("stat of nothing: %v", err)
	}
	must(t, fsys.MkdirAll(dir))
	must(t, fsys.MkdirAll(dir))
	if info, err := fsys.Stat(dir); err != nil || !info.Dir || info.Size != 0 {
		t.Fatalf("stat of a directory: %+v, %v", info, err)
	}
	for op, err := range map[string]error{
		"open": second(fsys.Open(p("x"))), "open rw": second(fsys.OpenReadWrite(p("x"))), "remove": fsys.Remove(p("x")),
		"rename": fsys.Rename(p("x"), p("y")), "list": second(fsys.List(p("x"))), "sync dir": fsys.SyncDir(p("x")), "create": second(fsys.Create(p("x/y"))),
	} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s of a missing name: %v", op, err)
		}
	}
	f := file(t, fsys, p("one"), "hello", true)
	write(t, f, 8, "x")
	if got := content(t, fsys, p("one")); got != "hello\x00\x00\x00x" {
		t.Fatalf("content is %q", got)
	}
	must(t, f.Truncate(4))
	must(t, f.Preallocate(2)) // never shortens
	must(t, f.Preallocate(6))
	if got := content(t, fsys, p("one")); got != "hell\x00\x00" {
		t.Fatalf("content is %q", got)
	}
	buf := make([]byte, 4)
	if n, err := f.ReadAt(buf, 4); n != 2 || err != io.EOF {
		t.Fatalf("read at the end: %d, %v", n, err)
	}
	if n, err := f.ReadAt(nil, 0); n != 0 || err != nil {
		t.Fatalf("read of nothing: %d, %v", n, err)
	}
	must(t, fsys.Rename(p("one"), p("two")))
	must(t, file(t, fsys, p("three"), "3", true).Close())
	must(t, fsys.Rename(p("three"), p("two"))) // replaces
	must(t, fsys.SyncDir(dir))
	if got, err := fsys.List(dir); err != nil || strings.Join(got, " ") != "two" {
		t.Fatalf("list: %v, %v", got, err)
	}
	write(t, f, 0, "still usable")
	must(t, f.Close())
	if info, err := fsys.Stat(p("two")); err != nil || info != (Info{Size: 1}) {
		t.Fatalf("stat: %+v, %v", info, err)
	}
	must(t, fsys.Remove(p("two")))
	if got := content(t, fsys, p("two")); got != "-" {
		t.Fatalf("removed file has %q", got)
	}
	ro := file(t, fsys, p("ro"), "r", false)
	must(t, ro.Close())
	ro, err := fsys.Open(p("ro"))
	must(t, err)
	if _, err := ro.WriteAt([]byte("w"), 0); err == nil {
		t.Error("wrote to a file opened for reading")
	}
	must(t, ro.Close())
	if err := ro.Sync(); err == nil {
		t.Error("used a closed file")
	}
	testLock(t, fsys, p("lock"))
}

func testLock(t *testing.T, fsys FS, name string) {
	lock, err := fsys.Lock(name)
	must(t, err)
	if _, err := fsys.Lock(name); !errors.Is(err, ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
	must(t, lock.Close())
	lock, err = fsys.Lock(name)
	must(t, err)
	must(t, lock.Close())
}

func second[T any](_ T, err error) error { return err }

// TestCrashKeepsWhatWasSynced and nothing else when nothing is chosen.
func TestCrashKeepsWhatWasSynced(t *testing.T) {
	m := NewMem()
	must(t, m.MkdirAll("d/sub"))
	must(t, m.SyncDir("."))
	f := file(t, m, "d/f", "synced", true)
	must(t, m.SyncDir("d"))
	write(t, f, 0, "SYN")
	write(t, f, 6, " and more")
	file(t, m, "d/new", "new", true)
	file(t, m, "d/sub/deep", "deep", true)
	must(t, m.Rename("d/f", "d/g"))
	c := m.Crash(nil)
	for name, want := range map[string]string{"d/f": "synced", "d/g": "-", "d/new": "-", "d/sub/deep": "-"} {
		if got := content(t, c, name); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	k := m.Kill()
	for name, want := range map[string]string{"d/f": "-", "d/g": "SYNced and more", "d/new": "new", "d/sub/deep": "deep"} {
		if got := content(t, k, name); got != want {
			t.Errorf("after kill: %s has %q, want %q", name, got, want)
		}
	}
	// What was not durable before the kill is not durable after it.
	if got := content(t, k.Crash(nil), "d/f"); got != "synced" {
		t.Errorf("after kill and power cut: %q", got)
	}
	must(t, f.Sync())
	must(t, m.SyncDir("d"))
	if got := content(t, m.Crash(nil), "d/g"); got != "SYNced and more" {
		t.Errorf("after sync: %q", got)
	}
	if got := content(t, m.Crash(nil), "d/sub/deep"); got != "-" {
		t.Errorf("file in a directory never synced: %q", got)
	}
}

// TestCrashChoices: over many power cuts each legal state is seen, no other is,
// and the same seed gives the same disk.
func TestCrashChoices(t *testing.T) {
	m := NewMem()
	sector := func(c string) string { return strings.Repeat(c, SectorSize) }
	f := file(t, m, "f", sector("a")+sector("a"), true)
	must(t, m.SyncDir("."))
	write(t, f, SectorSize/2, sector("b")) // half of each sector
	write(t, f, SectorSize, sector("c"))
	must(t, f.Truncate(3*SectorSize))
	must(t, m.Rename("f", "g"))
	file(t, m, "h", "", false)
	half := SectorSize / 2
	first := map[string]bool{sector("a"): true, sector("a")[:half] + sector("b")[:half]: true}
	last := map[string]bool{sector("a"): true, sector("b")[:half] + sector("a")[:half]: true, sector("c"): true}
	seen := map[string]bool{}
	for seed := range uint64(300) {
		c := m.Crash(rand.New(rand.NewPCG(seed, 0)))
		again := m.Crash(rand.New(rand.NewPCG(seed, 0)))
		names, _ := c.List(".")
		one, two := content(t, c, "f"), content(t, c, "g")
		if one != content(t, again, "f") || two != content(t, again, "g") {
			t.Fatal("the same seed gave another disk")
		}
		if (one == "-") == (two == "-") {
			t.Fatalf("a rename was not atomic: %v", names)
		}
		got := max(one, two)
		if n := len(got); n != 2*SectorSize && n != 3*SectorSize {
			t.Fatalf("%d bytes", n)
		}
		if !first[got[:SectorSize]] || !last[got[SectorSize:2*SectorSize]] {
			t.Fatalf("impossible content %q", got)
		}
		seen[strings.Join(names, " ")] = true
		seen["first "+got[SectorSize-1:SectorSize]] = true
		seen["second "+got[SectorSize:SectorSize+1]] = true
	}
	for _, want := range []string{"f", "g", "f h", "g h", "first a", "first b", "second a", "second b", "second c"} {
		if !seen[want] {
			t.Errorf("never seen: %s", want)
		}
	}
}

func TestFaults(t *testing.T) {
	m, plan := NewMem(), &Plan{}
	fsys := WithFaults(m, plan)
	f := file(t, fsys, "log.1", strings.Repeat("-", 4*SectorSize), true)
	other := file(t, fsys, "other", "o", true)

	hits := plan.Add(Fault{Op: OpSync, Path: "log.*", After: 1, Times: 2, Err: syscall.EIO})
	for i, want := range []error{nil, syscall.EIO, syscall.EIO, nil} {
		must(t, other.Sync())
		if err := f.Sync(); !errors.Is(err, want) {
			t.Errorf("sync %d: %v, want %v", i, err, want)
		}
	}
	if hits() != 2 {
		t.Errorf("%d hits", hits())
	}

	plan.Add(Fault{Op: OpWrite, Times: 1, Err: syscall.ENOSPC, Short: 3})
	if n, err := f.WriteAt([]byte("short"), 0); n != 3 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("short write: %d, %v", n, err)
	}
	if got := content(t, m, "log.1")[:6]; got != "sho---" {
		t.Errorf("short write left %q", got)
	}
	plan.Add(Fault{Op: OpWrite, Times: 1, Err: syscall.EIO, Torn: func(s int) bool { return s != 1 }})
	if _, err := f.WriteAt(bytes.Repeat([]byte("t"), 2*SectorSize), SectorSize+100); !errors.Is(err, syscall.EIO) {
		t.Errorf("torn write: %v", err)
	}
	want := "sho" + strings.Repeat("-", SectorSize+97) + strings.Repeat("t", SectorSize-100) +
		strings.Repeat("-", SectorSize) + strings.Repeat("t", 100) + strings.Repeat("-", SectorSize-100)
	if got := content(t, m, "log.1"); got != want {
		t.Errorf("torn write left %q", got)
	}

	plan.Add(Fault{Op: OpRead, FlipBits: []int64{0, 8*2 + 1}})
	if got := content(t, fsys, "log.1")[:3]; got != "rhm" || content(t, m, "log.1")[:3] != "sho" {
		t.Errorf("flipped bits read %q", got)
	}
	plan.Clear()
	plan.Add(Fault{Op: OpAny, Err: syscall.EROFS})
	for name, err := range map[string]error{
		"open": second(fsys.Open("other")), "create": second(fsys.Create("x")), "rename": fsys.Rename("other", "x"),
		"remove": fsys.Remove("other"), "list": second(fsys.List(".")), "mkdir": fsys.MkdirAll("d"), "syncdir": fsys.SyncDir("."),
		"stat": second(fsys.Stat("other")), "lock": second(fsys.Lock("l")), "truncate": f.Truncate(0), "preallocate": f.Preallocate(1), "close": f.Close(),
	} {
		if !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if names, _ := m.List("."); strings.Join(names, " ") != "log.1 other" {
		t.Errorf("files are %v", names)
	}
	plan.Clear()
	if err := f.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("a planned failure of Close must still close: %v", err)
	}
}

// TestConcurrentUse is for the race detector.
func TestConcurrentUse(t *testing.T) {
	m, plan := NewMem(), &Plan{}
	fsys := WithFaults(m, plan)
	f := file(t, fsys, "f", "x", true)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 50 {
				if _, err := f.WriteAt([]byte{byte(i)}, int64(j)); err != nil {
					t.Error(err)
				}
				hits := plan.Add(Fault{Op: OpSync, Path: "nothing"})
				if err := errors.Join(f.Sync(), fsys.SyncDir(".")); err != nil || hits() != 0 {
					t.Error(err)
				}
				m.Crash(rand.New(rand.NewPCG(uint64(i), uint64(j))))
				m.Kill()
			}
		})
	}
	wg.Wait()
}
