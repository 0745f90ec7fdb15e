package sim

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/coordd/coordd/pkg/vfs"
	"github.com/coordd/coordd/wal"
)

// flip turns one bit of the log of a member that is down, as a bad disk does, and checks that the member notices or is none
// the worse for it. If it refuses to start, it is given its log back as it was, which stands for what the
// message asks for: another member in its place.
func (m *member) flip() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.up || m.lost { // who has lost all files has no log, or one with nothing in it
		return
	}
	whole := m.mem
	damaged := whole.Kill()
	where, err := flipBit(damaged, m.walDir(), m.rng.Float64(), m.rng.IntN(8))
	if err != nil {
		m.c.violate("sim: %v", err)
		return
	}
	m.c.count(func(s *Stats) { s.Flips++ })
	had, hadErr := recovered(whole, m.walDir())
	has, err := recovered(damaged, m.walDir())
	switch {
	case hadErr != nil:
		m.c.violate("%s cannot be started again: %v", m.name, hadErr)
	case err == nil && !reflect.DeepEqual(had, has):
		m.c.violate("%s does not notice a flipped bit in %s: it had entries after %v up to %v and %v, it has those after %v up to %v and %v",
			m.name, where, had.start, had.last(), had.hard, has.start, has.last(), has.hard)
	case err == nil:
		m.c.timeline.add(m.name, "a bit of %s is flipped, without consequence", where)
		m.mem = damaged
	case !errors.Is(err, wal.ErrCorrupt) || !strings.Contains(err.Error(), m.walDir()):
		m.c.violate("%s refuses its log after a bit of %s was flipped, but does not say that it is damaged, and where: %v", m.name, where, err)
	default:
		m.c.timeline.add(m.name, "a bit of %s is flipped: %v", where, err)
		m.refused = damaged
	}
}

// refuse checks that a member does not start on the log that flip has damaged. The goroutine that drives the faults calls it.
func (m *member) refuse() {
	m.mu.Lock()
	damaged, whole := m.refused, m.mem
	m.refused = nil
	if damaged == nil || m.up { // the end of another fault has started it with its own log
		m.mu.Unlock()
		return
	}
	m.mem = damaged
	m.mu.Unlock()
	err := m.start()
	if !errors.Is(err, wal.ErrCorrupt) {
		m.c.violate("%s starts on a damaged log: %v", m.name, err)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mem = whole
}

// flipBit inverts a bit of a log, at some share of what is written in it, and tells where.
func flipBit(fs *vfs.Mem, dir string, share float64, bit int) (where string, err error) {
	type stretch struct {
		name string
		data []byte
	}
	var all []stretch
	total := 0
	names, err := fs.List(dir)
	if err != nil {
		return "", err
	}
	slices.Sort(names)
	for _, name := range names {
		data, err := readFile(fs, filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		data = data[:min(len(data), len(strings.TrimRight(string(data), "\x00"))+100)] // and a little of the room behind
		all = append(all, stretch{filepath.Join(dir, name), data})
		total += len(data)
	}
	at := int(share * float64(total))
	for _, s := range all {
		if at >= len(s.data) {
			at -= len(s.data)
			continue
		}
		f, err := fs.OpenReadWrite(s.name)
		if err != nil {
			return "", err
		}
		_, err = f.WriteAt([]byte{s.data[at] ^ 1<<bit}, int64(at))
		return fmt.Sprintf("%s at offset %d", s.name, at), errors.Join(err, f.Sync(), f.Close())
	}
	return "", errors.New("the log is empty")
}

func readFile(fs *vfs.Mem, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	data := make([]byte, size)
	if err == nil && size > 0 {
		_, err = f.ReadAt(data, 0)
	}
	return data, errors.Join(err, f.Close())
}

// kept is what a log gives back.
type kept struct {
	start   wal.Position
	hard    string
	entries []string
}

func (k kept) last() string {
	if len(k.entries) == 0 {
		return "none"
	}
	return k.entries[len(k.entries)-1]
}

// recovered opens a copy of a log and tells what is in it.
func recovered(fs *vfs.Mem, dir string) (k kept, err error) {
	log, rec, err := wal.Open(fs.Kill(), dir, wal.Options{})
	if err != nil {
		return k, err
	}
	k = kept{start: rec.Start, hard: rec.HardState.String()}
	for _, e := range rec.Entries {
		k.entries = append(k.entries, e.String())
	}
	return k, log.Close()
}
