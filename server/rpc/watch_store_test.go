package rpc

import (
	"path/filepath"
	"testing"

	"github.com/coordd/coordd/mvcc"
	"github.com/coordd/coordd/mvcc/backend"
	"github.com/coordd/coordd/watch"
)

// watchDB is a store with a watch hub, driven as the apply loop drives them.
type watchDB struct {
	store *mvcc.Store
	hub   *watch.Hub
}

func newWatchDB(t testing.TB, o watch.Options) *watchDB {
	t.Helper()
	b, err := backend.Open(filepath.Join(t.TempDir(), "db"), backend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := mvcc.Open(b, mvcc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := &watchDB{store: s, hub: watch.New(s, o)}
	t.Cleanup(func() {
		d.hub.Close()
		b.Close()
	})
	return d
}

// put makes one revision that puts all keys, and returns it.
func (d *watchDB) put(value string, keys ...string) int64 {
	tx := d.store.Begin()
	for _, k := range keys {
		tx.Put([]byte(k), []byte(value), 0)
	}
	rev := tx.Rev()
	events := tx.End()
	d.store.Publish()
	d.hub.Publish(rev, events)
	return rev
}

// compact compacts at rev.
func (d *watchDB) compact(t testing.TB, rev int64) {
	t.Helper()
	if err := d.store.Compact(rev); err != nil {
		t.Fatal(err)
	}
	d.store.Publish()
}
