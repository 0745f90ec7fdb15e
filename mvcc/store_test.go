package mvcc_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/mvcc"
	"github.com/coordd/coordd/mvcc/backend"
)

func open(t testing.TB, path string, o mvcc.Options) (*backend.Backend, *mvcc.Store) {
	t.Helper()
	b, err := backend.Open(path, backend.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	s, err := mvcc.Open(b, o)
	if err != nil {
		t.Fatal(err)
	}
	return b, s
}

// reopen commits everything and opens the file anew.
func reopen(t testing.TB, b *backend.Backend, s *mvcc.Store, o mvcc.Options) (*backend.Backend, *mvcc.Store) {
	t.Helper()
	s.Publish()
	pos := b.Position()
	pos.Index++
	if err := b.Commit(pos, true); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, b.Path(), o)
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "db") }

func put(s *mvcc.Store, key, value string) int64 {
	t := s.Begin()
	t.Put([]byte(key), []byte(value), 0)
	t.End()
	s.Publish()
	return s.Revision()
}

func del(s *mvcc.Store, key string) int64 {
	t := s.Begin()
	t.DeleteRange([]byte(key), nil)
	t.End()
	s.Publish()
	return s.Revision()
}

func compact(t testing.TB, s *mvcc.Store, rev int64) {
	t.Helper()
	if err := s.Compact(rev); err != nil {
		t.Fatal(err)
	}
	s.Publish()
	for s.CompactStep(10) {
	}
}

// read gives the interval at rev as "key=value@mod" strings.
func read(t testing.TB, s *mvcc.Store, key, end string, o mvcc.RangeOptions) (out []string, res mvcc.RangeResult) {
	t.Helper()
	res, err := s.Range([]byte(key), []byte(end), o, func(row []byte) error {
		var kv kvpb.KeyValue
		if err := kv.UnmarshalVT(row); err != nil {
			return err
		}
		out = append(out, fmt.Sprintf("%s=%s@%d", kv.Key, kv.Value, kv.ModRevision))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, res
}

func history(t testing.TB, s *mvcc.Store, from int64) (out []string) {
	t.Helper()
	err := s.History(from, s.Revision(), func(e mvcc.Event) bool {
		op := "put"
		if e.Tombstone {
			op = "delete"
		}
		out = append(out, fmt.Sprintf("%s %s@%d.%d", op, e.Key, e.Rev.Main, e.Rev.Sub))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func expect(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestNewStore(t *testing.T) {
	b, s := open(t, newPath(t), mvcc.Options{})
	if s.Revision() != 1 || s.CompactedRevision() != -1 {
		t.Fatal(s.Revision(), s.CompactedRevision())
	}
	if err := s.Compact(0); err != nil {
		t.Fatal(err)
	}
	s.Publish()
	for s.CompactStep(1) {
	}
	if put(s, "a", "1") != 2 {
		t.Fatal(s.Revision())
	}
	_, s = reopen(t, b, s, mvcc.Options{})
	if s.Revision() != 2 || s.CompactedRevision() != 0 {
		t.Fatal(s.Revision(), s.CompactedRevision())
	}
}

// A key is deleted and put again in one transaction, and the store is compacted exactly there: the key must stay,
// also after a restart before, in the middle of and after the removal.
func TestDeleteAndPutInOneRevisionThenCompactThere(t *testing.T) {
	for stopAfter := range 6 {
		b, s := open(t, newPath(t), mvcc.Options{})
		put(s, "k", "old")
		put(s, "other", "x")
		tx := s.Begin()
		tx.DeleteRange([]byte("k"), nil)
		if _, ok := tx.Get([]byte("k")); ok {
			t.Fatal("deleted, and still there")
		}
		tx.Put([]byte("k"), []byte("new"), 0)
		if e := tx.End(); len(e) != 2 || !e[0].Tombstone || e[1].Version != 1 || e[1].Create != 4 || e[1].PrevRev.Main != 0 {
			t.Fatalf("%+v", e)
		}
		if err := s.Compact(4); err != nil {
			t.Fatal(err)
		}
		s.Publish()
		for range stopAfter {
			s.CompactStep(1)
		}
		for range 2 {
			got, _ := read(t, s, "\x00", "\x00", mvcc.RangeOptions{})
			expect(t, got, "k=new@4", "other=x@3")
			expect(t, history(t, s, 4), "delete k@4.0", "put k@4.1")
			b, s = reopen(t, b, s, mvcc.Options{})
		}
		del(s, "k")
		compact(t, s, 5)
		_, s = reopen(t, b, s, mvcc.Options{})
		got, _ := read(t, s, "\x00", "\x00", mvcc.RangeOptions{})
		expect(t, got, "other=x@3")
	}
}

// Compaction exactly at a deletion leaves it for watchers that start there; the next one takes it.
func TestTombstoneAtCompactedRevision(t *testing.T) {
	b, s := open(t, newPath(t), mvcc.Options{})
	put(s, "k", "1")
	put(s, "k", "2")
	del(s, "k")
	put(s, "k", "3")
	compact(t, s, 4)
	b, s = reopen(t, b, s, mvcc.Options{})
	expect(t, history(t, s, 4), "delete k@4.0", "put k@5.0")
	if got, _ := read(t, s, "k", "", mvcc.RangeOptions{Rev: 4}); len(got) != 0 {
		t.Fatal(got)
	}
	compact(t, s, 5)
	if err := s.History(4, 5, func(mvcc.Event) bool { return true }); err != errs.ErrCompacted {
		t.Fatal(err)
	}
	_, s = reopen(t, b, s, mvcc.Options{})
	expect(t, history(t, s, 5), "put k@5.0")
}

// Rows never go before readers know: also if nothing was published since the compaction, they are told that the revision
// is compacted, not that a row is missing.
func TestRemovalWithoutPublish(t *testing.T) {
	b, s := open(t, newPath(t), mvcc.Options{})
	put(s, "k", "1")
	put(s, "k", "2")
	if err := s.Compact(3); err != nil {
		t.Fatal(err)
	}
	for s.CompactStep(10) {
	}
	if err := b.Commit(backend.Position{Index: 1}, true); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get([]byte("k"), 2, nil); err != errs.ErrCompacted {
		t.Fatal(err)
	}
	if row, _, err := s.Get([]byte("k"), 3, nil); err != nil || len(row) == 0 {
		t.Fatal(err)
	}
}

// A reader that holds a view is not disturbed by what the writer removes meanwhile.
func TestReadAcrossRemoval(t *testing.T) {
	b, s := open(t, newPath(t), mvcc.Options{})
	for i := range 50 {
		put(s, fmt.Sprintf("k%02d", i), "old")
	}
	if err := b.Commit(backend.Position{Index: 1}, true); err != nil {
		t.Fatal(err)
	}
	n := 0
	_, err := s.Range([]byte("k"), []byte("l"), mvcc.RangeOptions{}, func(row []byte) error {
		if n++; n == 1 { // the visitor plays the writer
			for i := range 50 {
				put(s, fmt.Sprintf("k%02d", i), "new")
			}
			compact(t, s, s.Revision())
			for i := range 4 {
				if err := b.Commit(backend.Position{Index: uint64(2 + i)}, true); err != nil {
					return err
				}
			}
		}
		if !bytes.Contains(row, []byte("old")) {
			return fmt.Errorf("row %q", row)
		}
		return nil
	})
	if err != nil || n != 50 {
		t.Fatal(n, err)
	}
}

func TestCompactDone(t *testing.T) {
	b, s := open(t, newPath(t), mvcc.Options{})
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	for i := range 20 {
		put(s, fmt.Sprint(i%3), "x")
	}
	if !closed(s.CompactDone(5)) {
		t.Fatal("waits for a compaction that never was")
	}
	if err := s.Compact(5); err != nil {
		t.Fatal(err)
	}
	first := s.CompactDone(5)
	s.Publish()
	s.CompactStep(1)
	if err := errors.Join(s.Compact(10), s.Compact(15)); err != nil {
		t.Fatal(err)
	}
	middle, last := s.CompactDone(10), s.CompactDone(15)
	for !closed(first) {
		if closed(middle) || closed(last) || !s.CompactStep(1) {
			t.Fatal("ended out of order")
		}
	}
	b, s = reopen(t, b, s, mvcc.Options{})
	if s.CompactedRevision() != 15 {
		t.Fatal(s.CompactedRevision())
	}
	last = s.CompactDone(15)
	if closed(last) {
		t.Fatal("the restart forgot the removal")
	}
	for s.CompactStep(1) {
	}
	if !closed(last) || !closed(s.CompactDone(99)) {
		t.Fatal("not done")
	}
	_, s = reopen(t, b, s, mvcc.Options{})
	if s.CompactStep(1) || !closed(s.CompactDone(15)) {
		t.Fatal("done, and begun again")
	}
}

// Enough rows for several loaders, many versions and leases: a restart gives the same store.
func TestRestartOfManyRows(t *testing.T) {
	b, s := open(t, newPath(t), mvcc.Options{})
	rnd := rand.New(rand.NewPCG(3, 4))
	want := map[string]int64{}
	for i := range 20000 {
		tx := s.Begin()
		for range 1 + i%2 {
			key := fmt.Sprintf("/p/%x", rnd.IntN(4000))
			if i%100 == 0 {
				key = "hot"
			}
			if rnd.IntN(5) == 0 {
				tx.DeleteRange([]byte(key), nil)
				delete(want, key)
				continue
			}
			lease := int64(rnd.IntN(3))
			tx.Put([]byte(key), fmt.Append(nil, i), lease)
			if want[key] = lease; lease == 0 {
				delete(want, key)
			}
		}
		tx.End()
	}
	s.Publish()
	before, res := read(t, s, "\x00", "\x00", mvcc.RangeOptions{})
	hash, _, _, err := s.HashKV(0)
	if err != nil {
		t.Fatal(err)
	}
	old, _ := read(t, s, "\x00", "\x00", mvcc.RangeOptions{Rev: 7000})
	var order []string
	got := map[string]int64{}
	_, s = reopen(t, b, s, mvcc.Options{OnLive: func(key []byte, lease int64) {
		order = append(order, string(key))
		got[string(key)] = lease
	}})
	after, resAfter := read(t, s, "\x00", "\x00", mvcc.RangeOptions{})
	expect(t, after, before...)
	if res.Rev != resAfter.Rev || res.Count != resAfter.Count {
		t.Fatal(res, resAfter)
	}
	if h, _, _, err := s.HashKV(0); err != nil || h != hash {
		t.Fatalf("hash %x %v, want %x", h, err, hash)
	}
	oldAfter, _ := read(t, s, "\x00", "\x00", mvcc.RangeOptions{Rev: 7000})
	expect(t, oldAfter, old...)
	if !maps.Equal(got, want) || !slices.IsSorted(order) || len(order) != len(want) {
		t.Fatalf("%d leased keys, want %d", len(got), len(want))
	}
}

// The pages of a listing show one revision, whatever is written meanwhile.
func TestPagesOfOneRevision(t *testing.T) {
	_, s := open(t, newPath(t), mvcc.Options{})
	for i := range 1000 {
		put(s, fmt.Sprintf("k%03d", i), "x")
	}
	want, res := read(t, s, "k", "l", mvcc.RangeOptions{})
	rev, key := res.Rev, "k"
	var got []string
	for page := 0; ; page++ {
		part, res := read(t, s, key, "l", mvcc.RangeOptions{Rev: rev, Limit: 70})
		if wantCount := int64(1000 - len(got)); res.Count != wantCount || res.More != (wantCount > 70) {
			t.Fatalf("page %d: %+v", page, res)
		}
		got = append(got, part...)
		if !res.More {
			break
		}
		key = string(res.Next)
		del(s, fmt.Sprintf("k%03d", 999-page*10))
		put(s, fmt.Sprintf("k%03d-", page*66), "new")
		put(s, fmt.Sprintf("k%03d", 500+page), "changed")
	}
	expect(t, got, want...)
}

func TestClosedStoreAnswersStopped(t *testing.T) {
	b, s := open(t, newPath(t), mvcc.Options{})
	put(s, "k", "v")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Range([]byte("k"), nil, mvcc.RangeOptions{}, nil)
	_, _, err2 := s.Get([]byte("k"), 0, nil)
	_, _, _, err3 := s.HashKV(0)
	err4 := s.History(1, 2, nil)
	for _, err := range []error{err, err2, err3, err4} {
		if err != errs.ErrStopped {
			t.Error(err)
		}
	}
	if _, ok := s.Prev([]byte("k"), 3); ok {
		t.Error("prev of a closed store")
	}
}

func TestVisitorsErrorIsReturned(t *testing.T) {
	_, s := open(t, newPath(t), mvcc.Options{})
	put(s, "a", "1")
	put(s, "b", "2")
	mine := errors.New("mine")
	for _, end := range []string{"", "c"} {
		if _, err := s.Range([]byte("a"), []byte(end), mvcc.RangeOptions{}, func([]byte) error { return mine }); err != mine {
			t.Error(err)
		}
	}
	n := 0
	if err := s.History(1, 9, func(mvcc.Event) bool { n++; return false }); err != nil || n != 1 {
		t.Error(n, err)
	}
}

func TestOpenRefusesBadRows(t *testing.T) {
	for name, damage := range map[string]func(b *backend.Backend){
		"row 2.0":             func(b *backend.Backend) { b.AppendRow(mvcc.Revision{Main: 2}, false, []byte("\x0a\xff")) },
		"row 3.1":             func(b *backend.Backend) { b.AppendRow(mvcc.Revision{Main: 3, Sub: 1}, true, nil) },
		"scheduledCompactRev": func(b *backend.Backend) { b.Put(backend.BucketMeta, []byte("scheduledCompactRev"), []byte("x")) },
	} {
		b, err := backend.Open(newPath(t), backend.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		damage(b)
		if err := b.Commit(backend.Position{Index: 1}, true); err != nil {
			t.Fatal(err)
		}
		if _, err := mvcc.Open(b, mvcc.Options{}); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), b.Path()) {
			t.Errorf("%s: %v", name, err)
		}
		_ = b.Close()
	}
}

// Readers run while the writer writes, publishes, compacts and commits. Each transaction writes the same value
// under all keys, so whatever a reader sees must be of one transaction, that of the revision it is told.
func TestConcurrentReaders(t *testing.T) {
	b, s := open(t, newPath(t), mvcc.Options{})
	const keys = 100
	write := func(i int) {
		tx := s.Begin()
		for k := range keys {
			if (i+k)%7 == 0 {
				tx.DeleteRange(fmt.Appendf(nil, "k%02d", k), nil)
			} else {
				tx.Put(fmt.Appendf(nil, "k%02d", k), fmt.Append(nil, i), 0)
			}
		}
		tx.End()
	}
	write(2)
	s.Publish()
	var stop atomic.Bool
	var readers sync.WaitGroup
	for r := range 4 {
		readers.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(r), 1))
			for !stop.Load() {
				readSome(t, s, rnd, keys)
			}
		})
	}
	for i := 3; i < 600; i++ {
		write(i)
		if i%3 != 0 {
			continue
		}
		if err := s.Compact(int64(i - 1 - i%10)); err != nil && err != errs.ErrCompacted {
			t.Fatal(err)
		}
		s.Publish()
		for s.CompactStep(37) && i%2 == 0 {
		}
		if err := b.Commit(backend.Position{Index: uint64(i)}, i%2 == 0); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	readers.Wait()
}

// readSome asks one question and checks the answer, for [TestConcurrentReaders].
func readSome(t *testing.T, s *mvcc.Store, rnd *rand.Rand, keys int) {
	o := mvcc.RangeOptions{}
	if rnd.IntN(2) == 0 {
		o.Rev = max(s.Revision()-rnd.Int64N(15), 1)
	}
	if rnd.IntN(2) == 0 {
		o.Limit = 10
	}
	n := 0
	var value []byte
	res, err := s.Range([]byte("k"), []byte("l"), o, func(row []byte) error {
		var kv kvpb.KeyValue
		if err := kv.UnmarshalVT(row); err != nil {
			return err
		}
		if n++; n == 1 {
			value = kv.Value
		} else if !bytes.Equal(value, kv.Value) {
			return fmt.Errorf("values %s and %s in one answer", value, kv.Value)
		}
		return nil
	})
	if err == errs.ErrCompacted && o.Rev != 0 {
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	at := o.Rev
	if at == 0 {
		at = res.Rev
	}
	if at == 1 {
		return
	}
	live := 0
	for k := range keys {
		if (int(at)+k)%7 != 0 {
			live++
		}
	}
	if res.Count != int64(live) || string(value) != fmt.Sprint(at) || o.Limit == 0 && n != live {
		t.Errorf("at %d of %d: count %d, value %s, %d rows; want %d", at, res.Rev, res.Count, value, n, live)
	}
	if _, _, _, err := s.HashKV(at); err != nil && err != errs.ErrCompacted {
		t.Error(err)
	}
}

// Reads at the present do not allocate.
func TestReadsDoNotAllocate(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector makes pools forget, so counts mean nothing; make test counts them")
	}
	b, s := open(t, newPath(t), mvcc.Options{})
	for i := range 500 {
		put(s, fmt.Sprintf("k%03d", i), "x")
	}
	if err := b.Commit(backend.Position{Index: 1}, true); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 0, 100)
	key, end := []byte("k100"), []byte("k200")
	if n := testing.AllocsPerRun(100, func() { buf, _, _ = s.Get(key, 0, buf[:0]) }); n >= 1 {
		t.Errorf("get: %v allocations", n)
	}
	rows := 0
	if n := testing.AllocsPerRun(100, func() {
		if _, err := s.Range(key, end, mvcc.RangeOptions{}, func([]byte) error { rows++; return nil }); err != nil {
			t.Error(err)
		}
	}); n >= 2 {
		t.Errorf("range: %v allocations", n)
	}
}
