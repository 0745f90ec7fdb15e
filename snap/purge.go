package snap

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"
	"strings"
)

// List returns the positions of the snapshots whose description can be read,
// oldest first.
func (s *Store) List() ([]Position, error) {
	indexes, err := s.indexes()
	if err != nil {
		return nil, err
	}
	var found []Position
	for _, index := range indexes {
		if h, _, err := s.readMeta(index); err == nil && h.Position.Index == index {
			found = append(found, h.Position)
		}
	}
	return found, nil
}

// indexes returns the raft indexes of all snapshot files in ascending order,
// which is that of their names.
func (s *Store) indexes() ([]uint64, error) {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return nil, fmt.Errorf("snap: list %s: %w", s.dir, err)
	}
	var indexes []uint64
	for _, name := range names {
		if index, ok := ParseName(name); ok {
			indexes = append(indexes, index)
		}
	}
	return indexes, nil
}

// Remove removes the snapshot at a raft index, durably. It is no error when
// there is none.
func (s *Store) Remove(index uint64) error {
	if err := s.removeOne(index); err != nil {
		return fmt.Errorf("snap: remove %s: %w", s.path(index), err)
	}
	return nil
}

// removeOne removes the file before its description, so that what is left by a
// crash in between is a description without file, which nobody takes for a snapshot.
func (s *Store) removeOne(index uint64) error {
	for _, name := range [...]string{s.path(index), s.metaPath(index)} {
		err := s.fs.Remove(name)
		if errors.Is(err, iofs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = s.syncDir(s.dir)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Purge removes all snapshots but the keep newest (by index).
func (s *Store) Purge(keep int) error {
	indexes, err := s.indexes()
	if err != nil {
		return err
	}
	for _, index := range indexes[:max(len(indexes)-max(keep, 0), 0)] {
		if err := s.Remove(index); err != nil {
			return err
		}
	}
	return nil
}

// CleanTemp removes what an interrupted Receive or Remove left behind. It is
// meant for the start; what is being received right now is left alone.
func (s *Store) CleanTemp() error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return fmt.Errorf("snap: list %s: %w", s.dir, err)
	}
	present := make(map[string]bool, len(names))
	for _, name := range names {
		present[name] = true
	}
	for _, name := range names {
		if !s.leftOver(name, present) {
			continue
		}
		path := filepath.Join(s.dir, name)
		if err := ignoreMissing(s.fs.Remove(path)); err != nil {
			return fmt.Errorf("snap: remove left-over %s: %w", path, err)
		}
	}
	return nil
}

// leftOver tells whether a name is one of ours that nothing needs: a temporary
// file, or a description without file.
func (s *Store) leftOver(name string, present map[string]bool) bool {
	base, temp := strings.CutSuffix(name, tempSuffix)
	if digits, isMeta := strings.CutSuffix(base, metaSuffix); isMeta {
		base = digits + fileSuffix
		temp = temp || !present[base]
	}
	index, ours := ParseName(base)
	if !ours || !temp {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, busy := s.receiving[index]
	return !busy
}

func ignoreMissing(err error) error {
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	return err
}
