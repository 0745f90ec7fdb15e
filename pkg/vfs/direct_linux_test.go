package vfs

import (
	"path/filepath"
	"testing"
)

// A durable write of whole blocks takes the second handle, if the file system of the temporary directory can do that, but not while there
// is something else to flush; and it does without, for good, when that handle fails it.
func TestDirect(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	made, err := OS().Create(name)
	must(t, err)
	f := made.(*osFile)
	write(t, f, 0, "x")
	writeSync(t, f, 0, block('a'))
	if f.direct.tried || f.unsynced.Load() {
		t.Fatal("went past what was written before, or left it")
	}
	writeSync(t, f, 0, block('b'))
	if !f.direct.tried {
		t.Fatal("did not try")
	}
	if f.direct.file == nil {
		t.Skip("this file system cannot do it")
	}
	must(t, f.direct.file.Close())
	writeSync(t, f, 0, block('c'))
	if f.direct.file != nil {
		t.Error("kept a handle that fails")
	}
	writeSync(t, f, BlockSize, block('d'))
	if got := content(t, OS(), name); got != string(block('c'))+string(block('d')) {
		t.Error("the file has another content")
	}
	must(t, f.Close())
}

func TestAligned(t *testing.T) {
	for _, n := range []int{0, 1, BlockSize, 5 * BlockSize} {
		b := Aligned(n)
		if len(b) != 0 || cap(b) != n {
			t.Errorf("length %d and room for %d bytes, want %d", len(b), cap(b), n)
		}
		if b = append(b, make([]byte, n)...); n%BlockSize == 0 && n > 0 && (!aligned(b, BlockSize) || aligned(b, 512) || aligned(b[1:], 0)) {
			t.Errorf("%d bytes are not told from others", n)
		}
	}
}
