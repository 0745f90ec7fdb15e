package watch

import (
	"path/filepath"
	"testing"

	"github.com/coordd/coordd/mvcc"
	"github.com/coordd/coordd/mvcc/backend"
)

// op is one change of a transaction.
type op struct {
	key, end string // end as in the API, for deletes
	value    string
	del      bool
}

// db is a real store with a hub, driven as the apply loop drives them. One goroutine uses it.
type db struct {
	backend *backend.Backend
	store   *mvcc.Store
	hub     *Hub
	pending []mvcc.Event
	rev     int64
	index   uint64
}

// fataler is what tests of the standard library and of rapid have in common.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

// openDB makes an empty store in dir and a hub on it. The caller closes it.
func openDB(t fataler, dir string, o Options) *db {
	t.Helper()
	d := &db{}
	d.openStore(t, filepath.Join(dir, "db"))
	d.rev = d.store.Revision()
	d.hub = New(d.store, o)
	return d
}

func (d *db) openStore(t fataler, path string) {
	t.Helper()
	b, err := backend.Open(path, backend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := mvcc.Open(b, mvcc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d.backend, d.store = b, s
}

// testDB is openDB for a whole test.
func testDB(t testing.TB, o Options) *db {
	d := openDB(t, t.TempDir(), o)
	t.Cleanup(d.close)
	return d
}

func (d *db) close() {
	d.hub.Close()
	d.backend.Close()
}

// txn makes one transaction, not yet published, and returns the store's revision after it.
func (d *db) txn(ops ...op) int64 {
	tx := d.store.Begin()
	for _, o := range ops {
		if o.del {
			tx.DeleteRange([]byte(o.key), wireEnd(o.end))
		} else {
			tx.Put([]byte(o.key), []byte(o.value), 0)
		}
	}
	d.rev = tx.Rev()
	d.pending = append(d.pending, tx.End()...)
	return d.rev
}

func wireEnd(end string) []byte {
	if end == "" {
		return nil
	}
	return []byte(end)
}

// publish ends a batch, and now and then hands it to the file.
func (d *db) publish() int64 {
	d.store.Publish()
	d.hub.Publish(d.rev, d.pending)
	d.pending = nil
	if d.index++; d.index%8 == 0 {
		d.backend.Commit(backend.Position{Index: d.index, Term: 1}, false)
	}
	return d.rev
}

// put makes and publishes one put.
func (d *db) put(key, value string) int64 {
	d.txn(op{key: key, value: value})
	return d.publish()
}

// del makes and publishes one delete.
func (d *db) del(key string) int64 {
	d.txn(op{key: key, del: true})
	return d.publish()
}

// compact compacts at rev; removal is up to step.
func (d *db) compact(t fataler, rev int64) {
	t.Helper()
	if err := d.store.Compact(rev); err != nil {
		t.Fatal(err)
	}
	d.publish()
}

// step removes some compacted rows and reports whether there are more.
func (d *db) step(rows int) bool { return d.store.CompactStep(rows) }

// swap does as when a snapshot from the leader is installed: what was not published comes with the store.
func (d *db) swap() {
	d.store.Publish()
	d.pending = nil
	d.hub.Swap(d.store)
}
