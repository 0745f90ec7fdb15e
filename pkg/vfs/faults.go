package vfs

import (
	"io"
	"path/filepath"
	"sync"
)

// Op names kinds of operations; a Fault may name several with |.
type Op uint32

// The operations that can be made to fail.
const (
	OpOpen Op = 1 << iota // Open and OpenReadWrite
	OpCreate
	OpRename // matched by the new name
	OpRemove
	OpList
	OpMkdir
	OpSyncDir
	OpStat
	OpLock
	OpRead
	OpWrite
	OpSync
	OpTruncate
	OpPreallocate
	OpClose

	OpAny Op = 1<<iota - 1
)

// Fault says which operations go wrong and how. The zero values of Path, After
// and Times mean: every path, from the first matching call on, for ever.
type Fault struct {
	Op    Op
	Path  string // pattern of path.Match for the last component of the name; "" is all
	After int    // how many matching calls pass before the first that fails
	Times int    // how many calls fail; 0 is all that follow

	// Err is returned. A nil Err lets the operation go on (with Hook and FlipBits
	// still in force), for instance to corrupt what is read silently.
	Err error
	// Short, for OpWrite with an Err, first writes this many bytes.
	Short int
	// Torn, for OpWrite with an Err, first writes only the sectors (of the
	// file, counted from the one the write begins in) for which it returns
	// true. It takes precedence over Short.
	Torn func(sector int) bool
	// FlipBits, for OpRead, are bits of the file, counted as 8*offset+bit, that
	// come out inverted when a read covers them.
	FlipBits []int64
	// Hook is called before the operation, without locks held, with the name.
	// It may block (a slow disk) or note the call.
	Hook func(op Op, name string)
}

// Plan is a set of faults that can change while in use.
type Plan struct {
	mu     sync.Mutex
	faults []*armed // guarded by mu
}

type armed struct {
	Fault
	seen, hits int
}

// Add puts a fault in force and returns a function that tells how many
// operations it has hit so far. Of several faults that match an operation, the
// first added that has an Err decides; hooks and flips of all are used.
func (p *Plan) Add(f Fault) (hits func() int) {
	a := &armed{Fault: f}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, a)
	return func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return a.hits
	}
}

// Clear ends all faults.
func (p *Plan) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = nil
}

// take finds the faults that hit this operation and runs their hooks.
func (p *Plan) take(op Op, name string) []*armed {
	p.mu.Lock()
	var hit []*armed
	for _, a := range p.faults {
		if a.Op&op == 0 || !a.matches(name) {
			continue
		}
		a.seen++
		if a.seen <= a.After || a.Times > 0 && a.hits >= a.Times {
			continue
		}
		a.hits++
		hit = append(hit, a)
	}
	p.mu.Unlock()
	for _, a := range hit {
		if a.Hook != nil {
			a.Hook(op, name)
		}
	}
	return hit
}

func (a *armed) matches(name string) bool {
	if a.Path == "" {
		return true
	}
	ok, err := filepath.Match(a.Path, filepath.Base(name))
	return ok && err == nil
}

func firstErr(hit []*armed) *armed {
	for _, a := range hit {
		if a.Err != nil {
			return a
		}
	}
	return nil
}

// check is take for operations that either fail or do not.
func (p *Plan) check(op Op, name string) error {
	if a := firstErr(p.take(op, name)); a != nil {
		return pathErr("planned fault", name, a.Err)
	}
	return nil
}

// WithFaults returns base with the faults of plan, which may be changed at any time.
func WithFaults(base FS, plan *Plan) FS { return &faultFS{base, plan} }

type faultFS struct {
	base FS
	plan *Plan
}

var (
	_ FS   = (*faultFS)(nil)
	_ File = (*faultFile)(nil)
)

func (f *faultFS) open(op Op, name string, open func(string) (File, error)) (File, error) {
	if err := f.plan.check(op, name); err != nil {
		return nil, err
	}
	file, err := open(name)
	if err != nil {
		return nil, err
	}
	return &faultFile{File: file, name: name, plan: f.plan}, nil
}

func (f *faultFS) Open(name string) (File, error) { return f.open(OpOpen, name, f.base.Open) }

func (f *faultFS) OpenReadWrite(name string) (File, error) {
	return f.open(OpOpen, name, f.base.OpenReadWrite)
}

func (f *faultFS) Create(name string) (File, error) { return f.open(OpCreate, name, f.base.Create) }

func (f *faultFS) Rename(from, to string) error {
	if err := f.plan.check(OpRename, to); err != nil {
		return err
	}
	return f.base.Rename(from, to)
}

func (f *faultFS) Remove(name string) error {
	if err := f.plan.check(OpRemove, name); err != nil {
		return err
	}
	return f.base.Remove(name)
}

func (f *faultFS) List(dir string) ([]string, error) {
	if err := f.plan.check(OpList, dir); err != nil {
		return nil, err
	}
	return f.base.List(dir)
}

func (f *faultFS) MkdirAll(dir string) error {
	if err := f.plan.check(OpMkdir, dir); err != nil {
		return err
	}
	return f.base.MkdirAll(dir)
}

func (f *faultFS) SyncDir(dir string) error {
	if err := f.plan.check(OpSyncDir, dir); err != nil {
		return err
	}
	return f.base.SyncDir(dir)
}

func (f *faultFS) Stat(name string) (Info, error) {
	if err := f.plan.check(OpStat, name); err != nil {
		return Info{}, err
	}
	return f.base.Stat(name)
}

func (f *faultFS) Lock(name string) (io.Closer, error) {
	if err := f.plan.check(OpLock, name); err != nil {
		return nil, err
	}
	return f.base.Lock(name)
}

// faultFile wraps an open file. Close always closes the wrapped file, so that
// planned faults leak nothing.
type faultFile struct {
	File
	name string
	plan *Plan
}

func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	hit := f.plan.take(OpRead, f.name)
	if a := firstErr(hit); a != nil {
		return 0, pathErr("planned fault", f.name, a.Err)
	}
	n, err := f.File.ReadAt(p, off)
	for _, a := range hit {
		for _, bit := range a.FlipBits {
			if at := bit/8 - off; at >= 0 && at < int64(n) {
				p[at] ^= 1 << (bit % 8)
			}
		}
	}
	return n, err
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	a := firstErr(f.plan.take(OpWrite, f.name))
	if a == nil {
		return f.File.WriteAt(p, off)
	}
	if a.Torn != nil {
		return 0, f.writeTorn(a, p, off)
	}
	n, err := f.File.WriteAt(p[:min(a.Short, len(p))], off)
	if err == nil {
		err = pathErr("planned fault", f.name, a.Err)
	}
	return n, err
}

// WriteSync is a write and a flush, each with its faults.
func (f *faultFile) WriteSync(p []byte, off int64) (int, error) {
	n, err := f.WriteAt(p, off)
	if err != nil {
		return n, err
	}
	return n, f.Sync()
}

// writeTorn writes the chosen sectors and returns the planned error.
func (f *faultFile) writeTorn(a *armed, p []byte, off int64) error {
	first := off / SectorSize
	for at := int64(0); at < int64(len(p)); {
		sector := (off + at) / SectorSize
		end := min((sector+1)*SectorSize-off, int64(len(p)))
		if a.Torn(int(sector - first)) {
			if _, err := f.File.WriteAt(p[at:end], off+at); err != nil {
				return err
			}
		}
		at = end
	}
	return pathErr("planned fault", f.name, a.Err)
}

func (f *faultFile) Sync() error {
	if err := f.plan.check(OpSync, f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultFile) Truncate(size int64) error {
	if err := f.plan.check(OpTruncate, f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultFile) Preallocate(size int64) error {
	if err := f.plan.check(OpPreallocate, f.name); err != nil {
		return err
	}
	return f.File.Preallocate(size)
}

func (f *faultFile) Close() error {
	planned := f.plan.check(OpClose, f.name)
	if err := f.File.Close(); err != nil {
		return err
	}
	return planned
}
