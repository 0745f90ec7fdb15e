package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"go.uber.org/zap"

	"github.com/coordd/coordd/apply"
	"github.com/coordd/coordd/member"
	"github.com/coordd/coordd/mvcc/backend"
	"github.com/coordd/coordd/pkg/vfs"
	"github.com/coordd/coordd/raftnode"
	"github.com/coordd/coordd/snap"
	"github.com/coordd/coordd/wal"
)

// storage is everything a node has on disk, opened in this order: the lock of
// the data directory, the snapshot files, the data file, the log.
type storage struct {
	dir     string // DataDir/member
	lock    io.Closer
	snaps   *snap.Store
	machine *apply.Machine
	log     *wal.Log
	start   raftnode.Start
	meta    wal.Metadata
}

func (c Config) memberDir() string { return filepath.Join(c.DataDir, "member") }
func (c Config) snapDir() string   { return filepath.Join(c.memberDir(), "snap") }
func (c Config) dbPath() string    { return filepath.Join(c.snapDir(), "db") }

func (c Config) walDir() string {
	return or(c.WALDir, filepath.Join(c.memberDir(), "wal"))
}

// openStorage opens what the data directory holds, or founds a member there. On
// error nothing stays open.
func openStorage(cfg Config, m *metrics) (_ *storage, err error) {
	s := &storage{dir: cfg.memberDir()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := makeDirs(cfg); err != nil {
		return nil, err
	}
	if s.lock, err = lockDir(cfg); err != nil {
		return nil, err
	}
	if s.snaps, err = snap.Open(vfs.OS(), cfg.snapDir(), snap.Options{UnsafeNoSync: cfg.UnsafeNoFsync, OnSync: observeSeconds(m.disk.snapSync)}); err != nil {
		return nil, err
	}
	if wal.Exists(cfg.FS, cfg.walDir()) {
		return s, s.reopen(cfg, m)
	}
	return s, s.found(cfg, m)
}

// makeDirs makes the directories. The data file is opened by bbolt, on the
// operating system's files, whatever cfg.FS is.
func makeDirs(cfg Config) error {
	for _, dir := range []string{cfg.snapDir(), cfg.walDir()} {
		if err := makeDir(vfs.OS(), dir); err != nil {
			return fmt.Errorf("cannot make the data directory: %w: choose another with --data-dir, or let this user write there", err)
		}
		if err := makeDir(cfg.FS, dir); err != nil {
			return fmt.Errorf("cannot make the data directory: %w", err)
		}
	}
	// A start that was cut short may have made this and not made it durable.
	return errors.Join(vfs.OS().SyncDir(cfg.DataDir), cfg.FS.SyncDir(cfg.DataDir))
}

// makeDir makes a directory with its missing parents, and makes the names of all that it made durable: the
// log syncs its own directory and that one's name, but a power cut would take a whole directory away
// whose name is not durable further up.
func makeDir(fs vfs.FS, dir string) error {
	var made []string
	for d := filepath.Clean(dir); d != filepath.Dir(d); d = filepath.Dir(d) {
		if _, err := fs.Stat(d); !errors.Is(err, os.ErrNotExist) {
			break
		}
		made = append(made, d)
	}
	if err := fs.MkdirAll(dir); err != nil {
		return err
	}
	for _, d := range made {
		if err := fs.SyncDir(filepath.Dir(d)); err != nil {
			return err
		}
	}
	return nil
}

func lockDir(cfg Config) (io.Closer, error) {
	lock, err := cfg.FS.Lock(filepath.Join(cfg.memberDir(), "LOCK"))
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return nil, fmt.Errorf("data directory %s is in use by another process: stop that one, or choose another with --data-dir", cfg.DataDir)
	case err != nil:
		return nil, fmt.Errorf("cannot lock data directory %s: %w", cfg.DataDir, err)
	}
	return lock, nil
}

func (c Config) walOptions(m *metrics) wal.Options {
	return wal.Options{
		SegmentBytes: c.SegmentBytes, UnsafeNoSync: c.UnsafeNoFsync, Logger: c.Logger,
		OnSync: observeSeconds(m.disk.walSync), OnWrite: m.disk.wrote,
	}
}

func (c Config) applyOptions(m *metrics) apply.Options {
	return apply.Options{
		Backend: backend.Options{
			BatchInterval: c.BatchInterval, BatchOps: c.BatchOps, NoSync: c.UnsafeNoFsync,
			Logger: c.Logger, OnCommit: observeSeconds(m.disk.commit), OnPhases: m.disk.phases, OnSnapshot: observeSeconds(m.disk.snapshot),
		},
	}
}

// found makes a member of a new cluster. The data file is made under another
// name and is whole and durable before it gets its own, and that before the log
// exists; so a start that was cut short begins again here.
func (s *storage) found(cfg Config, m *metrics) (err error) {
	if !cfg.NewCluster {
		return errors.New("joining a running cluster (--initial-cluster-state existing) is not there yet: found a new cluster, or restart this member with its own data directory")
	}
	members, self, err := foundingMembers(cfg)
	if err != nil {
		return err
	}
	var ids []member.ID
	var voters []uint64
	for i := range members {
		members[i].Name = "" // known once the member has published itself
		ids = append(ids, members[i].ID)
		voters = append(voters, uint64(members[i].ID))
	}
	s.start = raftnode.Bootstrap(voters)
	if err := s.foundData(cfg, m, members); err != nil {
		return err
	}
	if s.machine, err = apply.Open(cfg.dbPath(), cfg.applyOptions(m)); err != nil {
		return err
	}
	s.meta = wal.Metadata{MemberID: uint64(self), ClusterID: uint64(member.ClusterID(ids))}
	if s.log, err = wal.Create(cfg.FS, cfg.walDir(), s.meta, cfg.walOptions(m)); err != nil {
		return err
	}
	return s.resetLog()
}

// foundData makes the data file of a new member, in place of one that a start
// which was cut short has left. One that holds more is not touched.
func (s *storage) foundData(cfg Config, m *metrics, members []member.Member) error {
	pos, err := backend.PositionOf(cfg.dbPath())
	switch {
	case err == nil && pos.Index > 1:
		return fmt.Errorf("data file %s holds entries up to %d, but there is no log in %s: restore the log, or this member from its peers", cfg.dbPath(), pos.Index, cfg.walDir())
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	temp := cfg.dbPath() + ".founding.tmp"
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot found the member: %w", err)
	}
	data, err := apply.Open(temp, cfg.applyOptions(m))
	if err != nil {
		return err
	}
	if err := errors.Join(data.Found(s.start.Index, s.start.Term, members), data.Close()); err != nil {
		return err
	}
	return replaceFile(cfg, temp)
}

// resetLog lets the log begin at the founding snapshot.
func (s *storage) resetLog() error {
	return s.log.Reset(wal.Position{Index: s.start.Index, Term: s.start.Term}, s.start.HardState)
}

// foundingMembers are the members that the configuration names, and this one's
// id among them.
func foundingMembers(cfg Config) ([]member.Member, member.ID, error) {
	members, err := member.ParseInitialCluster(cfg.InitialCluster, cfg.ClusterToken)
	if err != nil {
		return nil, 0, err
	}
	urls, err := member.ParsePeerURLs(cfg.PeerURLs)
	if err != nil {
		return nil, 0, err
	}
	slices.Sort(urls)
	for _, m := range members {
		if m.Name != cfg.Name {
			continue
		}
		if !slices.Equal(m.PeerURLs, urls) {
			return nil, 0, fmt.Errorf("--initial-cluster has %s=%v but --initial-advertise-peer-urls is %v: make them the same", cfg.Name, m.PeerURLs, urls)
		}
		return members, m.ID, nil
	}
	return nil, 0, fmt.Errorf("--initial-cluster %q does not name this member %q: add it, or correct --name", cfg.InitialCluster, cfg.Name)
}

// reopen opens an existing member. If the log begins after the data file, the
// member stopped between storing a leader's snapshot and installing it; that
// is then done first.
func (s *storage) reopen(cfg Config, m *metrics) (err error) {
	var rec *wal.Recovered
	if s.log, rec, err = wal.Open(cfg.FS, cfg.walDir(), cfg.walOptions(m)); err != nil {
		return err
	}
	s.meta = rec.Meta
	if info, err := os.Stat(cfg.dbPath()); rec.Start.Index <= 1 && (errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0) {
		return fmt.Errorf("data file %s is missing or empty though the log in %s exists: restore the file, or this member from its peers", cfg.dbPath(), cfg.walDir())
	}
	if err := adoptSnapshot(cfg, s.snaps, snap.Position(rec.Start), m); err != nil {
		return err
	}
	if s.machine, err = apply.Open(cfg.dbPath(), cfg.applyOptions(m)); err != nil {
		return err
	}
	pos := s.machine.Position()
	if rec.Start.Index == 0 && len(rec.Entries) == 0 && pos.Index == 1 { // cut short while being founded
		s.start = raftnode.Bootstrap(s.machine.Members.ConfState().Voters)
		return s.resetLog()
	}
	s.start = raftnode.Start{
		Index: rec.Start.Index, Term: rec.Start.Term, Entries: rec.Entries, HardState: rec.HardState,
		ConfState: s.machine.Members.ConfState(), Applied: pos.Index,
	}
	cfg.Logger.Info("restarting local member",
		zap.Stringer("local-member-id", member.ID(s.meta.MemberID)), zap.Stringer("cluster-id", member.ID(s.meta.ClusterID)),
		zap.Uint64("data-index", pos.Index), zap.Uint64("commit-index", rec.HardState.GetCommit()), zap.Int64("torn-bytes", rec.TornBytes))
	return nil
}

// adoptSnapshot puts the leader's snapshot at pos in the place of the data file
// when that file is older.
func adoptSnapshot(cfg Config, snaps *snap.Store, pos snap.Position, m *metrics) error {
	path, err := snaps.Find(pos)
	if errors.Is(err, snap.ErrNotFound) {
		return nil // the data file must do; apply.Open and raftnode check that it does
	}
	if err != nil {
		return err
	}
	at, err := backend.PositionOf(cfg.dbPath())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err == nil && at.Index >= pos.Index {
		return snaps.Remove(pos.Index)
	}
	cfg.Logger.Info("Recovering from snapshot backend", zap.String("path", path), zap.Uint64("index", pos.Index))
	return replaceFile(cfg, path)
}

// replaceFile gives a file the data file's name, durably.
func replaceFile(cfg Config, path string) error {
	if err := os.Rename(path, cfg.dbPath()); err != nil {
		return fmt.Errorf("cannot install data file %s: %w", path, err)
	}
	return vfs.OS().SyncDir(cfg.snapDir())
}

// close gives everything back, newest first. It may be called on a storage that
// was opened in part.
func (s *storage) close() error {
	var errs []error
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	if s.machine != nil {
		errs = append(errs, s.machine.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}
