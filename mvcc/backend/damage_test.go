package backend

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestFileInUse(t *testing.T) {
	path := newPath(t)
	b := open(t, path, Options{})
	start := time.Now()
	_, err := Open(path, Options{LockTimeout: 30 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "in use by another process") || strings.Contains(err.Error(), "\n") {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 30*time.Millisecond {
		t.Fatalf("gave up after %v", took)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path, Options{})
}

func TestOpenRefusesWhatIsNoDataFile(t *testing.T) {
	for name, data := range map[string][]byte{
		"text":    []byte("hello"),
		"zeros":   make([]byte, 1<<16),
		"garbage": bytes.Repeat([]byte("garbage!"), 1<<13),
	} {
		path := newPath(t)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		for what, f := range map[string]func() error{
			"open":     func() error { _, err := Open(path, Options{}); return err },
			"position": func() error { _, err := PositionOf(path); return err },
		} {
			if err := f(); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "restore it") {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: the file was changed", name)
		}
	}
	if _, err := Open(t.TempDir(), Options{}); err == nil {
		t.Error("opened a directory")
	}
	if _, err := Open(filepath.Join(t.TempDir(), "no", "db"), Options{}); err == nil {
		t.Error("opened a file in no directory")
	}
}

// image makes a file with branches, leaves, long values, and free pages, and gives its bytes.
func image(t testing.TB) []byte {
	path := newPath(t)
	b := open(t, path, Options{NoSync: true})
	for main := int64(2); main < 1500; main++ {
		size := 20
		if main%100 == 0 {
			size = 9000
		}
		b.AppendRow(rev(main), main%5 == 0, make([]byte, size))
	}
	for i := range 300 {
		b.Put(BucketLease, fmt.Appendf(nil, "%08d", i), make([]byte, 30))
	}
	if err := b.Commit(Position{Index: 1, Term: 1}, true); err != nil {
		t.Fatal(err)
	}
	for main := int64(2); main < 300; main++ {
		b.DeleteRows([]RowID{{rev(main), main%5 == 0}})
	}
	if err := b.Commit(Position{Index: 2, Term: 1}, true); err != nil {
		t.Fatal(err)
	}
	return imageOf(t, b)
}

// imageOf gives the bytes of the file, without the room it has to grow.
func imageOf(t testing.TB, b *Backend) []byte {
	s, err := b.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var data bytes.Buffer
	if _, err := s.WriteTo(&data); err != nil {
		t.Fatal(err)
	}
	return data.Bytes()
}

// use opens data as a file and, if that works, reads and writes. Nothing may panic; only errors that name the file
// are fine.
func use(t testing.TB, path string, data []byte) (opened bool) {
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := PositionOf(path); err != nil && !strings.Contains(err.Error(), path) {
		t.Fatalf("position: %v", err)
	}
	b, err := Open(path, Options{NoSync: true, InitialMmap: 1 << 20})
	if err != nil {
		if !strings.Contains(err.Error(), path) {
			t.Fatalf("open: %v", err)
		}
		return false
	}
	defer func() { _ = b.Close() }()
	v := b.View()
	_ = v.Scan(Revision{}, EndOf(1<<60), func(RowID, []byte) bool { return true })
	v.Release()
	b.last = Revision{Main: 1 << 50}
	b.AppendRow(rev(1<<50+1), false, []byte("row"))
	b.DeleteRows([]RowID{{Revision: rev(301)}})
	b.Put(BucketLease, []byte("x"), []byte("y"))
	if err := b.Commit(Position{Index: 1 << 63, Term: 1}, true); err != nil && !strings.Contains(err.Error(), path) {
		t.Fatalf("commit: %v", err)
	}
	return true
}

func TestDamageIsAnErrorNotAPanic(t *testing.T) {
	good := image(t)
	path := newPath(t)
	if !use(t, path, good) {
		t.Fatal("the undamaged file is refused")
	}
	refused := 0
	rapid.Check(t, func(r *rapid.T) {
		data := bytes.Clone(good)
		for range rapid.IntRange(1, 3).Draw(r, "damages") {
			page := rapid.IntRange(0, len(data)/4096-1).Draw(r, "page")
			switch rapid.IntRange(0, 3).Draw(r, "kind") {
			case 0: // in the header or the elements
				data[page*4096+rapid.IntRange(0, 200).Draw(r, "at")] ^= byte(rapid.IntRange(1, 255).Draw(r, "bits"))
			case 1: // anywhere in the page
				data[page*4096+rapid.IntRange(0, 4095).Draw(r, "at")] = rapid.Byte().Draw(r, "byte")
			case 2: // another page's contents
				other := rapid.IntRange(0, len(data)/4096-1).Draw(r, "other")
				copy(data[page*4096:][:4096], data[other*4096:])
			case 3:
				clear(data[page*4096:][:4096])
			}
		}
		if rapid.IntRange(0, 3).Draw(r, "cut") == 0 {
			data = data[:rapid.IntRange(1, len(data)).Draw(r, "length")]
		}
		if !use(t, path, data) {
			refused++
		}
	})
	if refused < 10 {
		t.Fatalf("only %d damaged files were refused", refused)
	}
}

func FuzzCheckData(f *testing.F) {
	f.Add(imageOf(f, open(f, newPath(f), Options{NoSync: true})))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := checkData(data); err != nil && !strings.Contains(err.Error(), errDamaged.Error()) {
			t.Fatal(err)
		}
	})
}

// A power cut leaves the file as of some commit, with the position of that commit: after each commit the file is
// looked at as if the power had gone after it, and as if it had gone before or while the meta page was written,
// which comes last.
func TestPowerCutAroundCommits(t *testing.T) {
	const page = 4096
	if os.Getpagesize() != page {
		t.Skip("the pages of the file have another size here")
	}
	path, copyPath := newPath(t), newPath(t)
	b := open(t, path, Options{NoSync: true})
	type commit struct {
		file []byte
		pos  Position
		rows []string
	}
	read := func() []byte {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		total, _ := b.Size()
		return data[:total] // the rest is room to grow
	}
	check := func(what string, data []byte, want ...commit) {
		t.Helper()
		if err := os.WriteFile(copyPath, data, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Open(copyPath, Options{NoSync: true})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer func() { _ = c.Close() }()
		for _, w := range want {
			if c.Position().Index == w.pos.Index {
				value, _ := c.Get(BucketCluster, []byte("i"))
				if string(value) != fmt.Sprint(w.pos.Index) {
					t.Fatalf("%s: at %d with %q", what, w.pos.Index, value)
				}
				expect(t, contents(t, c.View()), w.rows...)
				return
			}
		}
		t.Fatalf("%s: position %d", what, c.Position().Index)
	}
	var before commit
	main := int64(2)
	for i := range 40 {
		pos := Position{Index: uint64(i + 1), Term: 1}
		for range i * 7 % 60 {
			b.AppendRow(rev(main), main%3 == 0, make([]byte, main*37%700))
			if main > 100 {
				b.DeleteRows([]RowID{{rev(main - 98), (main-98)%3 == 0}})
			}
			main++
		}
		b.Put(BucketCluster, []byte("i"), fmt.Append(nil, pos.Index))
		if err := b.Commit(pos, true); err != nil {
			t.Fatal(err)
		}
		now := commit{read(), pos, contents(t, b.View())}
		check("after the commit", now.file, now)
		if i > 0 {
			cut := bytes.Clone(now.file)
			copy(cut[:2*page], before.file[:2*page])
			check("before the meta page", cut, before)
			for m := range 2 {
				torn := bytes.Clone(now.file)
				copy(torn[m*page+pageHeader+48:(m+1)*page], before.file[m*page+pageHeader+48:(m+1)*page])
				check("within the meta page", torn, before, now)
			}
		}
		before = now
	}
}
