package backend

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
)

func open(t testing.TB, path string, o Options) *Backend {
	t.Helper()
	b, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "db") }

func rev(main int64) Revision { return Revision{Main: main} }

// contents gives all rows that v shows, as "main.sub[t]=row".
func contents(t testing.TB, v View) (out []string) {
	t.Helper()
	defer v.Release()
	err := v.Scan(Revision{}, EndOf(1<<60), func(id RowID, row []byte) bool {
		mark := ""
		if id.Tombstone {
			mark = "t"
		}
		out = append(out, fmt.Sprintf("%d.%d%s=%s", id.Main, id.Sub, mark, row))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func expect(t testing.TB, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestRowsMoveFromTailToFile(t *testing.T) {
	path := newPath(t)
	b := open(t, path, Options{NoSync: true})
	b.AppendRow(Revision{2, 0}, false, []byte("a"))
	expect(t, contents(t, b.View()))
	expect(t, contents(t, b.WriterView()), "2.0=a")
	b.Publish()
	early := b.View()
	b.AppendRow(Revision{2, 1}, true, []byte("b"))
	b.AppendRow(Revision{5, 0}, false, []byte("c"))
	w := b.WriterView()
	b.AppendRow(Revision{6, 0}, false, []byte("d"))
	if row, ok := w.Row(Revision{6, 0}); !ok || string(row) != "d" {
		t.Fatalf("the writer does not see its own row: %q", row)
	}
	w.Release()
	expect(t, contents(t, b.View()), "2.0=a")
	if err := b.Commit(Position{Index: 7, Term: 3, ConfState: []byte("{}")}, true); err != nil {
		t.Fatal(err)
	}
	all := []string{"2.0=a", "2.1t=b", "5.0=c", "6.0=d"}
	expect(t, contents(t, b.View()), all...)
	expect(t, contents(t, early), "2.0=a")
	b.DeleteRows([]RowID{{Revision{2, 1}, true}, {Revision{5, 0}, false}})
	expect(t, contents(t, b.View()), all...)
	if err := b.Commit(Position{Index: 8, Term: 3}, true); err != nil {
		t.Fatal(err)
	}
	expect(t, contents(t, b.View()), "2.0=a", "6.0=d")
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	if v := b.View(); !v.Closed() {
		t.Fatal("a view of a closed backend is not closed")
	}
	b = open(t, path, Options{NoSync: true})
	expect(t, contents(t, b.View()), "2.0=a", "6.0=d")
	if p := b.Position(); p.Index != 8 || p.Term != 3 || string(p.ConfState) != "{}" {
		t.Fatalf("position %+v", p)
	}
	b.AppendRow(Revision{7, 0}, false, []byte("e")) // not before the last row of the file
}

// While a batch is being written, readers have it from memory, and new rows on top of it.
func TestSealedBatchIsVisible(t *testing.T) {
	b := open(t, newPath(t), Options{NoSync: true})
	tx, err := b.db.Begin(true) // the committer waits for this to end
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() }) // before Close, which waits for the committer
	b.AppendRow(rev(2), false, []byte("a"))
	if err := b.Commit(Position{Index: 1}, false); err != nil {
		t.Fatal(err)
	}
	expect(t, contents(t, b.View()), "2.0=a")
	b.AppendRow(rev(3), false, []byte("b"))
	b.Publish()
	expect(t, contents(t, b.View()), "2.0=a", "3.0=b")
	v := b.View()
	if row, ok := v.Row(rev(2)); !ok || string(row) != "a" {
		t.Fatalf("row %q", row)
	}
	if first, last, ok := v.Bounds(); !ok || first != rev(2) || last != rev(3) {
		t.Fatal(first, last, ok)
	}
	if b.Position().Index != 0 {
		t.Fatal("the position is not durable yet")
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(Position{Index: 2}, true); err != nil {
		t.Fatal(err)
	}
	expect(t, contents(t, v), "2.0=a", "3.0=b")
	expect(t, contents(t, b.View()), "2.0=a", "3.0=b")
}

func TestRowFindsEachRowAndNoOther(t *testing.T) {
	b := open(t, newPath(t), Options{NoSync: true})
	known := map[Revision]string{}
	next := Revision{Main: 2}
	for phase := range 3 {
		for i := range 300 {
			tombstone := i%7 == 3
			row := fmt.Sprint(phase, i)
			b.AppendRow(next, tombstone, []byte(row))
			if !tombstone {
				known[next] = row
			}
			if next.Sub++; i%3 != 0 {
				next = Revision{Main: next.Main + 1 + int64(i%2)}
			}
		}
		switch phase {
		case 0:
			if err := b.Commit(Position{Index: 1}, true); err != nil {
				t.Fatal(err)
			}
		case 1: // stays sealed if the committer is slow, which is as good
			if err := b.Commit(Position{Index: 2}, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.Publish()
	v := b.View()
	defer v.Release()
	for main := int64(0); main <= next.Main+1; main++ {
		for sub := range int64(4) {
			r := Revision{main, sub}
			row, ok := v.Row(r)
			if want, there := known[r]; ok != there || string(row) != want {
				t.Fatalf("row %v = %q %v, want %q", r, row, ok, want)
			}
		}
	}
	first, last, ok := v.Bounds()
	if !ok || first != rev(2) || last.Compare(next) >= 0 {
		t.Fatal(first, last, ok)
	}
}

func TestSmallBuckets(t *testing.T) {
	path := newPath(t)
	b := open(t, path, Options{NoSync: true})
	if v, ok := b.Get(BucketMeta, []byte(MetaStorageVersion)); !ok || string(v) != StorageVersion {
		t.Fatalf("storage version %q", v)
	}
	b.Put(BucketLease, []byte("b"), []byte("1"))
	b.Put(BucketLease, []byte("a"), []byte("2"))
	b.Put(BucketLease, []byte("c"), []byte("3"))
	b.Delete(BucketLease, []byte("c"))
	b.Delete(BucketAlarm, []byte("none"))
	b.Put(BucketLease, []byte("b"), []byte("4"))
	if _, ok := b.Get(BucketLease, []byte("a")); ok {
		t.Fatal("seen before the commit")
	}
	if err := b.Commit(Position{Index: 1}, true); err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := b.ForEach(BucketLease, func(k, v []byte) error { got = append(got, string(k)+string(v)); return nil }); err != nil {
		t.Fatal(err)
	}
	expect(t, got, "a2", "b4")
	mine := errors.New("mine")
	if err := b.ForEach(BucketLease, func(_, _ []byte) error { return mine }); err != mine {
		t.Fatal(err)
	}
}

// The layout is a contract with other programs.
func TestLayout(t *testing.T) {
	path := newPath(t)
	b := open(t, path, Options{NoSync: true})
	b.AppendRow(Revision{258, 3}, true, []byte("row"))
	if err := b.Commit(Position{Index: 5, Term: 6, ConfState: []byte(`{"voters":[1]}`)}, true); err != nil {
		t.Fatal(err)
	}
	hash, err := b.Hash()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var got []string
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, x *bbolt.Bucket) error {
			sum.Write(name)
			got = append(got, string(name))
			return x.ForEach(func(k, v []byte) error {
				got = append(got, fmt.Sprintf("%q:%q", k, v))
				if s := string(k); s != "consistent_index" && s != "term" && s != "storageVersion" {
					sum.Write(k)
					sum.Write(v)
				}
				return nil
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, got, "alarm", "auth", "authRoles", "authUsers", "cluster",
		"key", `"\x00\x00\x00\x00\x00\x00\x01\x02_\x00\x00\x00\x00\x00\x00\x00\x03t":"row"`,
		"lease", "members", "members_removed",
		"meta", `"confState":"{\"voters\":[1]}"`, `"consistent_index":"\x00\x00\x00\x00\x00\x00\x00\x05"`,
		`"storageVersion":"3.7.0"`, `"term":"\x00\x00\x00\x00\x00\x00\x00\x06"`)
	if hash != sum.Sum32() {
		t.Fatalf("hash %x, want %x", hash, sum.Sum32())
	}
	if p, err := PositionOf(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(p, err)
	}
	db.Close()
	if p, err := PositionOf(path); err != nil || p.Index != 5 || p.Term != 6 || string(p.ConfState) != `{"voters":[1]}` {
		t.Fatal(p, err)
	}
}

func TestRowKeys(t *testing.T) {
	for _, id := range []RowID{{}, {Revision{1, 2}, false}, {Revision{1 << 62, 1 << 40}, true}} {
		k := EncodeRowKey(id)
		if got, ok := DecodeRowKey(k.Bytes()); !ok || got != id {
			t.Errorf("%v: %v %v", id, got, ok)
		}
	}
	k := EncodeRowKey(RowID{Revision: rev(1)})
	good := k.Bytes()
	for _, bad := range [][]byte{nil, good[:16], append(bytes.Clone(good), 'x'), append(bytes.Clone(good), "tt"...), bytes.Replace(good, []byte("_"), []byte("-"), 1), append([]byte{0xff}, good[1:]...)} {
		if id, ok := DecodeRowKey(bad); ok {
			t.Errorf("%x is row %v", bad, id)
		}
	}
}

func FuzzDecodeRowKey(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x01\x02_\x00\x00\x00\x00\x00\x00\x00\x03t"))
	f.Fuzz(func(t *testing.T, key []byte) {
		if id, ok := DecodeRowKey(key); ok {
			if k := EncodeRowKey(id); !bytes.Equal(k.Bytes(), key) {
				t.Fatalf("%x is decoded as %v, which is %x", key, id, k.Bytes())
			}
		}
	})
}

func TestCommitIsDueByTimeCountAndBytes(t *testing.T) {
	path := newPath(t)
	synctest.Test(t, func(t *testing.T) {
		b := open(t, path, Options{NoSync: true, BatchOps: 10, BatchBytes: 1000})
		next := int64(1)
		index := uint64(0)
		step := func(rows, size int, after time.Duration, want bool) {
			t.Helper()
			for range rows {
				next++
				b.AppendRow(rev(next), false, make([]byte, size))
			}
			index++
			if err := b.CommitIfDue(Position{Index: index}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(after)
			if err := b.CommitIfDue(Position{Index: index}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := b.Position().Index == index; got != want {
				t.Fatalf("committed %v, want %v", got, want)
			}
		}
		step(1, 10, 99*time.Millisecond, false)
		step(1, 10, time.Millisecond, true)
		step(10, 1, 0, true)
		step(1, 1000, 0, true)
		step(0, 0, time.Hour, false) // a position alone is not written
		if err := b.Commit(Position{Index: index}, true); err != nil || b.Position().Index != index {
			t.Fatal(err)
		}
	})
}

// The writer goes on while the disk is slow, up to the bound of the tail.
func TestBackPressure(t *testing.T) {
	path := newPath(t)
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		b := open(t, path, Options{NoSync: true, MaxTailBytes: 2000, OnCommit: func(time.Duration) { <-gate }})
		b.AppendRow(rev(2), false, []byte("a"))
		if err := b.Commit(Position{Index: 1}, false); err != nil {
			t.Fatal(err)
		}
		b.AppendRow(rev(3), false, []byte("b"))
		if err := b.Commit(Position{Index: 2}, false); err != nil {
			t.Fatal(err)
		}
		if b.active.ops() != 1 {
			t.Fatal("a second batch was sealed")
		}
		b.AppendRow(rev(4), false, make([]byte, 1000))
		var done atomic.Bool
		go func() {
			if err := b.Commit(Position{Index: 3}, false); err != nil {
				t.Error(err)
			}
			done.Store(true)
		}()
		synctest.Wait()
		if done.Load() {
			t.Fatal("the tail is over its bound, and the writer did not wait")
		}
		gate <- struct{}{}
		synctest.Wait()
		if !done.Load() {
			t.Fatal("the writer still waits")
		}
		close(gate)
		if err := b.Commit(Position{Index: 3}, true); err != nil || b.Position().Index != 3 {
			t.Fatal(err, b.Position())
		}
	})
}

func TestFailedCommitPoisons(t *testing.T) {
	path := newPath(t)
	b := open(t, path, Options{NoSync: true})
	b.AppendRow(rev(2), false, []byte("a"))
	if err := b.Commit(Position{Index: 1}, true); err != nil {
		t.Fatal(err)
	}
	b.db.MaxSize = 1 << 16 // stands for a full disk: the commit fails when it allocates pages
	b.AppendRow(rev(3), false, make([]byte, 1<<20))
	err := b.Commit(Position{Index: 2}, true)
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "start the member again") {
		t.Fatalf("error %v", err)
	}
	<-b.Fatal()
	if b.Err() != err || b.Position().Index != 1 {
		t.Fatal(b.Err(), b.Position())
	}
	if got := contents(t, b.View()); len(got) != 2 {
		t.Fatalf("readers see %d rows", len(got))
	}
	b.AppendRow(rev(4), false, []byte("c"))
	if b.Commit(Position{Index: 3}, true) != err || b.CommitIfDue(Position{Index: 3}) != err {
		t.Fatal("a poisoned backend commits")
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = open(t, path, Options{})
	expect(t, contents(t, b.View()), "2.0=a")
}

func TestPoisonGivesAdvice(t *testing.T) {
	for cause, want := range map[error]string{
		fmt.Errorf("write: %w", syscall.ENOSPC): "make room on the disk",
		errDamaged:                              "restore it from a snapshot",
		syscall.EIO:                             "see what is wrong with the disk",
	} {
		b := open(t, newPath(t), Options{})
		b.poison(cause)
		b.poison(errors.New("a later one"))
		if err := b.Err(); !errors.Is(err, cause) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), b.Path()) {
			t.Errorf("%v: %v", cause, err)
		}
	}
}

// With a small memory map each growth must move it, while readers hold views all the time.
func TestMemoryMapMovesUnderReaders(t *testing.T) {
	b := open(t, newPath(t), Options{NoSync: true, InitialMmap: 1})
	var published atomic.Int64
	published.Store(1)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				top := published.Load()
				v := b.View()
				for main := int64(2); main <= top; main++ {
					if row, ok := v.Row(rev(main)); !ok || len(row) != 20000 || row[0] != byte(main) || row[19999] != byte(main) {
						t.Errorf("row %d of %d is gone", main, top)
						v.Release()
						return
					}
				}
				v.Release()
			}
		})
	}
	for main := int64(2); main < 300; main++ {
		b.AppendRow(rev(main), false, bytes.Repeat([]byte{byte(main)}, 20000))
		b.Publish()
		published.Store(main)
		if err := b.Commit(Position{Index: uint64(main)}, main%8 == 0); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	readers.Wait()
	if total, used := b.Size(); total < 5<<20 || used > total || used < 5<<20 {
		t.Fatal(total, used)
	}
}

func TestSnapshotIsOfOneCommit(t *testing.T) {
	b := open(t, newPath(t), Options{NoSync: true})
	for main := int64(2); main < 200; main++ {
		b.AppendRow(rev(main), false, make([]byte, 1000))
	}
	if err := b.Commit(Position{Index: 9, Term: 2}, true); err != nil {
		t.Fatal(err)
	}
	want := contents(t, b.View())
	s, err := b.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for main := int64(200); main < 400; main++ {
		b.AppendRow(rev(main), false, make([]byte, 1000))
		b.DeleteRows([]RowID{{Revision: rev(main - 198)}})
		if err := b.Commit(Position{Index: uint64(main)}, true); err != nil {
			t.Fatal(err)
		}
	}
	if s.Position().Index != 9 || s.StorageVersion() != StorageVersion {
		t.Fatal(s.Position(), s.StorageVersion())
	}
	var image bytes.Buffer
	if n, err := s.WriteTo(&image); err != nil || n != s.Size() || n != int64(image.Len()) {
		t.Fatal(n, err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	path := newPath(t)
	if err := os.WriteFile(path, image.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	c := open(t, path, Options{})
	expect(t, contents(t, c.View()), want...)
}

// Rows that come and go do not make the file grow: pages are used anew.
func TestPagesAreReused(t *testing.T) {
	b := open(t, newPath(t), Options{NoSync: true})
	var peak int64
	for main := int64(2); main < 4000; main++ {
		b.AppendRow(rev(main), false, make([]byte, 1000))
		if main > 102 {
			b.DeleteRows([]RowID{{Revision: rev(main - 100)}})
		}
		if main%50 != 0 {
			continue
		}
		if err := b.Commit(Position{Index: uint64(main)}, true); err != nil {
			t.Fatal(err)
		}
		total, _ := b.Size()
		if main == 1000 {
			peak = total
		}
	}
	if total, used := b.Size(); total > peak*3/2 || used > 400_000 {
		t.Fatalf("file of %d bytes, %d in use; it was %d", total, used, peak)
	}
}
