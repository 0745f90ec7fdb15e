package vfs

import (
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
)

var (
	errNegative = errors.New("negative offset or size")
	errReadOnly = errors.New("file is open for reading only")
)

// maxVersions bounds how many states of one unsynced sector are remembered.
const maxVersions = 4

// memData is the content of a file. It is guarded by the mutex of its Mem.
type memData struct {
	bytes       []byte
	durableSize int64
	// older holds, for each sector written since the last Sync, its earlier
	// states, oldest first; the first one is the durable one. A nil state is
	// all zero.
	older map[int64][][]byte
}

func newMemData() *memData { return &memData{older: make(map[int64][][]byte)} }

// remember saves the states of the sectors that [off, off+n) touches, before
// they are changed.
func (d *memData) remember(off, n int64) {
	for s := off / SectorSize; s*SectorSize < off+n; s++ {
		states := d.older[s]
		if len(states) == maxVersions {
			states = slices.Delete(states, 1, 2) // never the durable one
		}
		d.older[s] = append(states, d.sector(s))
	}
}

// sector returns a copy of a sector, nil when it has nothing but zeros.
func (d *memData) sector(s int64) []byte {
	from, to := s*SectorSize, (s+1)*SectorSize
	if from >= int64(len(d.bytes)) {
		return nil
	}
	cut := d.bytes[from:min(to, int64(len(d.bytes)))]
	for _, b := range cut {
		if b != 0 {
			return slices.Clone(cut)
		}
	}
	return nil
}

func (d *memData) writeAt(p []byte, off int64) {
	d.remember(off, int64(len(p)))
	if end := off + int64(len(p)); end > int64(len(d.bytes)) {
		d.grow(end)
	}
	copy(d.bytes[off:], p)
}

func (d *memData) grow(size int64) {
	if int64(cap(d.bytes)) >= size {
		old := len(d.bytes)
		d.bytes = d.bytes[:size]
		clear(d.bytes[old:])
		return
	}
	grown := make([]byte, size)
	copy(grown, d.bytes)
	d.bytes = grown
}

func (d *memData) truncate(size int64) {
	have := int64(len(d.bytes))
	if size < have {
		d.remember(size, have-size)
		d.bytes = d.bytes[:size]
		return
	}
	d.grow(size)
}

func (d *memData) sync() {
	clear(d.older)
	d.durableSize = int64(len(d.bytes))
}

// clone copies the content with all it remembers.
func (d *memData) clone() *memData {
	return &memData{
		bytes:       slices.Clone(d.bytes),
		durableSize: d.durableSize,
		older:       maps.Clone(d.older), // states are never changed in place
	}
}

// afterCrash is the content as a disk may show it after a power cut.
func (d *memData) afterCrash(r *rand.Rand) *memData {
	size := d.durableSize
	if r != nil && r.IntN(2) == 0 {
		size = int64(len(d.bytes))
	}
	out := newMemData()
	out.bytes = make([]byte, size)
	copy(out.bytes, d.bytes)
	for _, s := range slices.Sorted(maps.Keys(d.older)) {
		states := d.older[s]
		pick := 0
		if r != nil {
			pick = r.IntN(len(states) + 1) // the last choice is the newest state
		}
		if pick == len(states) || s*SectorSize >= size {
			continue
		}
		cut := out.bytes[s*SectorSize : min((s+1)*SectorSize, size)]
		clear(cut)
		copy(cut, states[pick])
	}
	out.durableSize = size
	return out
}

// memFile is an open handle.
type memFile struct {
	fs     *Mem
	name   string
	data   *memData
	write  bool
	closed bool
}

// enter locks the file system and checks the handle; on success the caller unlocks.
func (f *memFile) enter(op string, write bool) error {
	f.fs.mu.Lock()
	var err error
	switch {
	case f.closed:
		err = ErrClosed
	case write && !f.write:
		err = errReadOnly
	default:
		return nil
	}
	f.fs.mu.Unlock()
	return pathErr(op, f.name, err)
}

// ReadAt implements File.
func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.enter("read", false); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	if off < 0 {
		return 0, pathErr("read", f.name, errNegative)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if off >= int64(len(f.data.bytes)) {
		return 0, io.EOF
	}
	n := copy(p, f.data.bytes[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements File.
func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.enter("write", true); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	if off < 0 {
		return 0, pathErr("write", f.name, errNegative)
	}
	f.data.writeAt(p, off)
	return len(p), nil
}

// WriteSync implements File.
func (f *memFile) WriteSync(p []byte, off int64) (int, error) {
	n, err := f.WriteAt(p, off)
	if err != nil {
		return n, err
	}
	return n, f.Sync()
}

// Sync implements File.
func (f *memFile) Sync() error {
	if err := f.enter("sync", false); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	f.data.sync()
	return nil
}

// Truncate implements File.
func (f *memFile) Truncate(size int64) error {
	if err := f.enter("truncate", true); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	if size < 0 {
		return pathErr("truncate", f.name, errNegative)
	}
	f.data.truncate(size)
	return nil
}

// Preallocate implements File.
func (f *memFile) Preallocate(size int64) error {
	if err := f.enter("preallocate", true); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	if size > int64(len(f.data.bytes)) {
		f.data.grow(size)
	}
	return nil
}

// Size implements File.
func (f *memFile) Size() (int64, error) {
	if err := f.enter("size", false); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	return int64(len(f.data.bytes)), nil
}

// Close implements File. Unsynced bytes stay unsynced.
func (f *memFile) Close() error {
	if err := f.enter("close", false); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	f.closed = true
	return nil
}
