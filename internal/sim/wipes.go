package sim

import (
	"os"
	"strings"
	"time"

	"github.com/coordd/coordd/pkg/vfs"
)

// wipe takes away all files of a member that is down. It has forgotten its votes and what it acknowledged, so it
// may not take part again under its id: from now on each life of it must end by itself, with a message that says so, and the
// others serve without it.
func (m *member) wipe() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.up {
		return
	}
	m.mem, m.refused, m.lost = vfs.NewMem(), nil, true
	if err := os.RemoveAll(m.dataDir(m.lives)); err != nil {
		m.c.violate("sim: %v", err)
	}
	m.c.timeline.add(m.name, "has lost all files")
	m.c.count(func(s *Stats) { s.Wipes++ })
}

// barred reports whether err is how a member ends that has lost its files.
func barred(err error) bool {
	return err != nil && strings.Contains(err.Error(), "has taken part in this cluster before") &&
		strings.Contains(err.Error(), "remove the member and add it anew with an empty data directory")
}

// staysOut checks, when all others serve, that a member without files ends by itself, within recovery.
func (m *member) staysOut() bool {
	for deadline := m.c.now() + recovery; ; time.Sleep(10 * time.Millisecond) {
		m.mu.Lock()
		up := m.up
		m.mu.Unlock()
		if !up {
			return true
		}
		if m.c.now() > deadline {
			m.c.violate("%s has lost its files and goes on", m.name)
			return false
		}
	}
}
