package vfs

import (
	"bytes"
	"path/filepath"
	"testing"
)

// block is an aligned block of one letter.
func block(letter byte) []byte {
	return append(Aligned(BlockSize), bytes.Repeat([]byte{letter}, BlockSize)...)
}

func writeSync(t *testing.T, f File, off int64, p []byte) {
	t.Helper()
	if n, err := f.WriteSync(p, off); n != len(p) || err != nil {
		t.Fatalf("wrote %d bytes of %d durably: %v", n, len(p), err)
	}
}

// WriteSync writes like WriteAt, whether it can be quick or not, before and after writes of other kinds, and when the file has another name
// or none.
func TestWriteSync(t *testing.T) {
	for name, fsys := range map[string]FS{"os": OS(), "mem": NewMem(), "faults": WithFaults(NewMem(), &Plan{})} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, fsys.MkdirAll(dir))
			was, now := filepath.Join(dir, "was"), filepath.Join(dir, "now")
			f, err := fsys.Create(was)
			must(t, err)
			must(t, f.Preallocate(3*BlockSize))
			writeSync(t, f, BlockSize, block('b'))
			must(t, fsys.Rename(was, now))
			writeSync(t, f, 0, block('a'))
			write(t, f, BlockSize+1, "not quick")
			writeSync(t, f, 2*BlockSize+1, []byte("nor this"))
			writeSync(t, f, 3*BlockSize, block('d')) // behind the end
			write(t, f, 3*BlockSize-1, "c")
			writeSync(t, f, 0, block('A'))

			want := make([]byte, 4*BlockSize)
			copy(want, bytes.Repeat([]byte{'A'}, BlockSize))
			copy(want[BlockSize:], bytes.Repeat([]byte{'b'}, BlockSize))
			copy(want[BlockSize+1:], "not quick")
			copy(want[2*BlockSize+1:], "nor this")
			want[3*BlockSize-1] = 'c'
			copy(want[3*BlockSize:], bytes.Repeat([]byte{'d'}, BlockSize))
			if got := content(t, fsys, now); got != string(want) {
				t.Fatal("the file has another content")
			}
			must(t, fsys.Remove(now))
			writeSync(t, f, 0, block('x'))
			must(t, f.Close())
			if _, err := f.WriteSync(block('y'), 0); err == nil {
				t.Error("wrote to a closed file")
			}
		})
	}
}

// A handle for reading refuses durable writes as it does others.
func TestWriteSyncOfReader(t *testing.T) {
	for name, fsys := range map[string]FS{"os": OS(), "mem": NewMem()} {
		dir := t.TempDir()
		must(t, fsys.MkdirAll(dir))
		must(t, file(t, fsys, filepath.Join(dir, "f"), "r", true).Close())
		f, err := fsys.Open(filepath.Join(dir, "f"))
		must(t, err)
		if _, err := f.WriteSync(block('w'), 0); err == nil {
			t.Errorf("%s: wrote to a file opened for reading", name)
		}
		must(t, f.Close())
	}
}

// What was written before by the same handle is durable, too.
func TestWriteSyncSurvivesCrash(t *testing.T) {
	m := NewMem()
	f := file(t, m, "/f", "before", false)
	must(t, m.SyncDir("/"))
	writeSync(t, f, BlockSize, block('x'))
	write(t, f, 0, "behind")
	if got := content(t, m.Crash(nil), "/f"); got[:6] != "before" || got[BlockSize:] != string(block('x')) {
		t.Errorf("after a crash the file begins with %q and has %d bytes", got[:6], len(got))
	}
}
