package vfs

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

var (
	errNotDir  = errors.New("not a directory")
	errIsDir   = errors.New("is a directory")
	errTwoDirs = errors.New("rename between directories is not supported")
)

// Mem is a file system in memory that knows which bytes and names a power cut
// may take away. See the package comment for the model.
type Mem struct {
	// mu guards everything below, including all nodes and their content:
	// operations are short and simplicity wins.
	mu    sync.Mutex
	root  *memDir
	locks map[string]struct{} // clean paths of held locks
}

// NewMem returns an empty file system.
func NewMem() *Mem {
	return &Mem{root: newMemDir(), locks: make(map[string]struct{})}
}

var (
	_ FS   = (*Mem)(nil)
	_ File = (*memFile)(nil)
)

// memDir is a directory: its names now, its names as of the last SyncDir, and
// the changes between the two in order. Values are *memDir or *memData.
type memDir struct {
	names   map[string]any
	durable map[string]any
	changes []memChange
}

// memChange is one atomic change of a directory: remove one name (unless
// empty), then bind another (unless empty). A rename does both.
type memChange struct {
	remove, bind string
	node         any
}

func newMemDir() *memDir {
	return &memDir{names: make(map[string]any), durable: make(map[string]any)}
}

func (d *memDir) change(c memChange) {
	applyChange(d.names, c)
	d.changes = append(d.changes, c)
}

func applyChange(names map[string]any, c memChange) {
	if c.remove != "" {
		delete(names, c.remove)
	}
	if c.bind != "" {
		names[c.bind] = c.node
	}
}

// parts splits a path into its components below the root.
func parts(name string) []string {
	clean := strings.Trim(filepath.ToSlash(filepath.Clean(name)), "/")
	if clean == "" || clean == "." {
		return nil
	}
	return strings.Split(clean, "/")
}

// dirLocked finds a directory.
func (m *Mem) dirLocked(op string, path []string, name string) (*memDir, error) {
	d := m.root
	for _, p := range path {
		switch next := d.names[p].(type) {
		case *memDir:
			d = next
		case nil:
			return nil, pathErr(op, name, fs.ErrNotExist)
		default:
			return nil, pathErr(op, name, errNotDir)
		}
	}
	return d, nil
}

// parentLocked finds the directory of a name and the last component.
func (m *Mem) parentLocked(op, name string) (*memDir, string, error) {
	path := parts(name)
	if len(path) == 0 {
		return nil, "", pathErr(op, name, errIsDir)
	}
	d, err := m.dirLocked(op, path[:len(path)-1], name)
	return d, path[len(path)-1], err
}

// fileLocked finds a file.
func (m *Mem) fileLocked(op, name string) (*memData, error) {
	d, base, err := m.parentLocked(op, name)
	if err != nil {
		return nil, err
	}
	switch n := d.names[base].(type) {
	case *memData:
		return n, nil
	case nil:
		return nil, pathErr(op, name, fs.ErrNotExist)
	default:
		return nil, pathErr(op, name, errIsDir)
	}
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) { return m.open(name, false) }

// OpenReadWrite implements FS.
func (m *Mem) OpenReadWrite(name string) (File, error) { return m.open(name, true) }

func (m *Mem) open(name string, write bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, err := m.fileLocked("open", name)
	if err != nil {
		return nil, err
	}
	return &memFile{fs: m, name: name, data: data, write: write}, nil
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parentLocked("create", name)
	if err != nil {
		return nil, err
	}
	switch n := d.names[base].(type) {
	case *memDir:
		return nil, pathErr("create", name, errIsDir)
	case *memData:
		n.truncate(0)
		return &memFile{fs: m, name: name, data: n, write: true}, nil
	}
	data := newMemData()
	d.change(memChange{bind: base, node: data})
	return &memFile{fs: m, name: name, data: data, write: true}, nil
}

// Rename implements FS.
func (m *Mem) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, oldBase, err := m.parentLocked("rename", from)
	if err != nil {
		return err
	}
	d2, newBase, err := m.parentLocked("rename", to)
	if err != nil {
		return err
	}
	if d != d2 {
		return pathErr("rename", to, errTwoDirs)
	}
	node, ok := d.names[oldBase]
	if !ok {
		return pathErr("rename", from, fs.ErrNotExist)
	}
	if _, isDir := d.names[newBase].(*memDir); isDir {
		return pathErr("rename", to, errIsDir)
	}
	if oldBase != newBase {
		d.change(memChange{remove: oldBase, bind: newBase, node: node})
	}
	return nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.fileLocked("remove", name); err != nil {
		return err
	}
	d, base, err := m.parentLocked("remove", name)
	if err != nil {
		return err
	}
	d.change(memChange{remove: base})
	return nil
}

// List implements FS.
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := m.dirLocked("list", parts(dir), dir)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(d.names)), nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.root
	for _, p := range parts(dir) {
		switch next := d.names[p].(type) {
		case *memDir:
			d = next
		case nil:
			made := newMemDir()
			d.change(memChange{bind: p, node: made})
			d = made
		default:
			return pathErr("mkdir", dir, errNotDir)
		}
	}
	return nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := m.dirLocked("syncdir", parts(dir), dir)
	if err != nil {
		return err
	}
	d.durable = maps.Clone(d.names)
	d.changes = nil
	return nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.dirLocked("stat", parts(name), name); err == nil {
		return Info{Dir: true}, nil
	}
	data, err := m.fileLocked("stat", name)
	if err != nil {
		return Info{}, err
	}
	return Info{Size: int64(len(data.bytes))}, nil
}

// Lock implements FS. Locks are those of this Mem: a clone made by Crash or
// Kill has none.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parentLocked("lock", name)
	if err != nil {
		return nil, err
	}
	key := strings.Join(parts(name), "/")
	if _, held := m.locks[key]; held {
		return nil, pathErr("lock", name, ErrLocked)
	}
	if _, ok := d.names[base]; !ok {
		d.change(memChange{bind: base, node: newMemData()})
	}
	m.locks[key] = struct{}{}
	return &memLock{fs: m, key: key}, nil
}

type memLock struct {
	fs   *Mem
	key  string
	once sync.Once
}

// Close drops the lock.
func (l *memLock) Close() error {
	l.once.Do(func() {
		l.fs.mu.Lock()
		defer l.fs.mu.Unlock()
		delete(l.fs.locks, l.key)
	})
	return nil
}
