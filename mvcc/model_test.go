package mvcc_test

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/mvcc"
	"github.com/coordd/coordd/mvcc/backend"
)

// modelRow is one change.
type modelRow struct {
	id backend.RowID
	kv *kvpb.KeyValue // of a tombstone: the key
}

// model is the store as the list of all changes there ever were.
type model struct {
	rows      []modelRow
	rev       int64
	compacted int64
}

// at gives the keys that existed at the end of main revision rev.
func (m *model) at(rev int64) map[string]*modelRow {
	all := map[string]*modelRow{}
	for i := range m.rows {
		r := &m.rows[i]
		switch {
		case r.id.Main > rev:
		case r.id.Tombstone:
			delete(all, string(r.kv.Key))
		default:
			all[string(r.kv.Key)] = r
		}
	}
	return all
}

// within gives the pairs of an interval at rev in order; end as on the wire.
func (m *model) within(key, end []byte, rev int64) (out []*modelRow) {
	all := m.at(rev)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		switch {
		case len(end) == 0 && k != string(key), k < string(key):
		case len(end) > 0 && string(end) != "\x00" && k >= string(end):
		default:
			out = append(out, all[k])
		}
	}
	return out
}

// kept gives the rows that compaction leaves.
func (m *model) kept() (out []modelRow) {
	newest := map[string]backend.Revision{}
	for _, r := range m.rows {
		if r.id.Main <= m.compacted {
			newest[string(r.kv.Key)] = r.id.Revision
		}
	}
	for _, r := range m.rows {
		if r.id.Main >= m.compacted || newest[string(r.kv.Key)] == r.id.Revision && !r.id.Tombstone {
			out = append(out, r)
		}
	}
	return out
}

// hash is HashKV by its definition.
func (m *model) hash(t *rapid.T, rev int64) uint32 {
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	sum.Write([]byte("key"))
	for _, r := range m.kept() {
		if r.id.Main > rev {
			continue
		}
		key := fmt.Sprintf("%s_%s", be(r.id.Main), be(r.id.Sub))
		if r.id.Tombstone {
			key += "t"
		}
		sum.Write([]byte(key))
		sum.Write(marshal(t, r.kv))
	}
	return sum.Sum32()
}

func be(v int64) string {
	var b [8]byte
	for i := range b {
		b[i] = byte(v >> (56 - 8*i))
	}
	return string(b[:])
}

func marshal(t *rapid.T, kv *kvpb.KeyValue) []byte {
	b, err := kv.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// subject is a store and its model.
type subject struct {
	path  string
	b     *backend.Backend
	s     *mvcc.Store
	m     *model // with all that has ended
	index uint64 // of the log
	// committed is the model as of the last commit, which a restart returns to.
	committed model
	unseen    bool // something has not been published
}

func (x *subject) open(t *rapid.T) {
	var err error
	if x.b, err = backend.Open(x.path, backend.Options{NoSync: true, InitialMmap: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	leases := map[string]int64{}
	x.s, err = mvcc.Open(x.b, mvcc.Options{Pages: 2, OnLive: func(key []byte, lease int64) { leases[string(key)] = lease }})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{}
	for k, r := range x.m.at(x.m.rev) {
		if r.kv.Lease != 0 {
			want[k] = r.kv.Lease
		}
	}
	if !maps.Equal(leases, want) {
		t.Fatalf("leases at open %v, want %v", leases, want)
	}
}

func (x *subject) publish() { x.s.Publish(); x.unseen = false }

func (x *subject) commit(t *rapid.T) {
	x.publish()
	x.index++
	if err := x.b.Commit(backend.Position{Index: x.index, Term: 1}, true); err != nil {
		t.Fatal(err)
	}
	x.committed = *x.m
	x.committed.rows = slices.Clone(x.m.rows)
}

func (x *subject) restart(t *rapid.T) {
	if err := x.b.Close(); err != nil {
		t.Fatal(err)
	}
	*x.m = x.committed
	x.m.rows = slices.Clone(x.committed.rows)
	x.unseen = false
	x.open(t)
}

var modelKeys = rapid.SampledFrom([]string{"a", "a\x00", "aa", "ab", "b", "ba", "c", "c\xff", "d"})

// txn runs a random transaction on both.
func (x *subject) txn(t *rapid.T) {
	tx := x.s.Begin()
	m := x.m
	begin, sub := m.rev, int64(0)
	var want []mvcc.Event
	add := func(r modelRow, prev *modelRow) {
		m.rows = append(m.rows, r)
		e := mvcc.Event{
			Rev: r.id.Revision, Tombstone: r.id.Tombstone, Key: r.kv.Key, Row: marshal(t, r.kv),
			Lease: r.kv.Lease, Create: r.kv.CreateRevision, Version: r.kv.Version,
		}
		if prev != nil {
			e.PrevRev, e.PrevLease = prev.id.Revision, prev.kv.Lease
		}
		want = append(want, e)
		sub++
		m.rev = begin + 1
	}
	for range rapid.IntRange(0, 4).Draw(t, "ops") {
		key := []byte(modelKeys.Draw(t, "key"))
		now := m.at(begin + 1)
		switch rapid.IntRange(0, 3).Draw(t, "op") {
		case 0, 1:
			value, lease := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "value"), rapid.SampledFrom([]int64{0, 7, -8}).Draw(t, "lease")
			kv := &kvpb.KeyValue{Key: key, Value: value, Lease: lease, CreateRevision: begin + 1, ModRevision: begin + 1, Version: 1}
			prev := now[string(key)]
			if prev != nil {
				kv.CreateRevision, kv.Version = prev.kv.CreateRevision, prev.kv.Version+1
			}
			tx.Put(key, value, lease)
			add(modelRow{backend.RowID{Revision: mvcc.Revision{Main: begin + 1, Sub: sub}}, kv}, prev)
		case 2:
			end := drawEnd(t)
			doomed := m.within(key, end, begin+1)
			if n := tx.DeleteRange(key, end); n != len(doomed) {
				t.Fatalf("delete [%q,%q) = %d, want %d", key, end, n, len(doomed))
			}
			for _, d := range doomed {
				add(modelRow{backend.RowID{Revision: mvcc.Revision{Main: begin + 1, Sub: sub}, Tombstone: true}, &kvpb.KeyValue{Key: d.kv.Key}}, d)
			}
		case 3:
			checkRange(t, tx.Range, m, m.rev, begin+1)
			row, ok := tx.Get(key)
			if want := now[string(key)]; ok != (want != nil) || ok && !bytes.Equal(row, marshal(t, want.kv)) {
				t.Fatalf("get %q: %x %v", key, row, ok)
			}
		}
		if tx.Rev() != m.rev || tx.Changed() != (sub > 0) {
			t.Fatalf("rev %d, changed %v; want %d", tx.Rev(), tx.Changed(), m.rev)
		}
	}
	got := tx.End()
	if d := cmp.Diff(want, got, cmp.Transformer("nil", func(b []byte) string { return string(b) })); d != "" {
		t.Fatal(d)
	}
	x.unseen = x.unseen || sub > 0
}

func drawEnd(t *rapid.T) []byte {
	switch rapid.IntRange(0, 3).Draw(t, "end") {
	case 0:
		return nil
	case 1:
		return []byte{0}
	default:
		return []byte(modelKeys.Draw(t, "end"))
	}
}

type rangeFunc func(key, end []byte, o mvcc.RangeOptions, visit func(row []byte) error) (mvcc.RangeResult, error)

// checkRange asks a random question of a reader whose current revision is rev; the model's rows up to top count as
// current.
func checkRange(t *rapid.T, ask rangeFunc, m *model, rev, top int64) {
	key, end := []byte(modelKeys.Draw(t, "from")), drawEnd(t)
	o := mvcc.RangeOptions{
		Rev:       rapid.Int64Range(-1, rev+1).Draw(t, "rev"),
		Limit:     rapid.Int64Range(-1, 4).Draw(t, "limit"),
		CountOnly: rapid.IntRange(0, 3).Draw(t, "count") == 0,
		KeysOnly:  rapid.IntRange(0, 3).Draw(t, "keys") == 0,
	}
	var got []*kvpb.KeyValue
	res, err := ask(key, end, o, func(row []byte) error {
		if o.KeysOnly {
			row = mvcc.StripValue(row, nil)
		}
		kv := new(kvpb.KeyValue)
		got = append(got, kv)
		return kv.UnmarshalVT(row)
	})
	at := o.Rev
	switch {
	case at <= 0:
		at = top
	case at > rev:
		if err != errs.ErrFutureRev {
			t.Fatalf("read at %d of %d: %v", at, rev, err)
		}
		return
	case at < m.compacted:
		if err != errs.ErrCompacted {
			t.Fatalf("read at %d, compacted %d: %v", at, m.compacted, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	all := m.within(key, end, at)
	want := mvcc.RangeResult{Rev: rev, Count: int64(len(all))}
	var rows []*kvpb.KeyValue
	for i, r := range all {
		if o.CountOnly {
			break
		}
		if len(end) > 0 && o.Limit > 0 && int64(i) == o.Limit {
			want.More, want.Next = true, r.kv.Key
			break
		}
		kv := proto.CloneOf(r.kv)
		if o.KeysOnly {
			kv.Value = nil
		}
		rows = append(rows, kv)
	}
	if d := cmp.Diff(want, res); d != "" {
		t.Fatalf("[%q,%q) %+v: %s", key, end, o, d)
	}
	if d := cmp.Diff(rows, got, protocmp.Transform()); d != "" {
		t.Fatalf("[%q,%q) %+v: %s", key, end, o, d)
	}
}

// checkHistory compares the changes from a random revision on.
func (x *subject) checkHistory(t *rapid.T) {
	from, to := rapid.Int64Range(0, x.m.rev+1).Draw(t, "from"), rapid.Int64Range(0, x.m.rev+1).Draw(t, "to")
	var got []mvcc.Event
	err := x.s.History(from, to, func(e mvcc.Event) bool {
		e.Key, e.Row = bytes.Clone(e.Key), bytes.Clone(e.Row)
		got = append(got, e)
		return true
	})
	if from < x.m.compacted {
		if err != errs.ErrCompacted {
			t.Fatalf("history from %d, compacted %d: %v", from, x.m.compacted, err)
		}
		return
	}
	var want []mvcc.Event
	for _, r := range x.m.rows {
		if r.id.Main >= from && r.id.Main <= to {
			want = append(want, mvcc.Event{
				Rev: r.id.Revision, Tombstone: r.id.Tombstone, Key: r.kv.Key, Row: marshal(t, r.kv),
				Lease: r.kv.Lease, Create: r.kv.CreateRevision, Version: r.kv.Version,
			})
		}
	}
	if d := cmp.Diff(want, got, cmp.Transformer("bytes", func(b []byte) string { return string(b) })); err != nil || d != "" {
		t.Fatalf("history %d-%d: %v %s", from, to, err, d)
	}
}

// check compares what readers see. All has been published.
func (x *subject) check(t *rapid.T) {
	if x.s.Revision() != x.m.rev || x.s.CompactedRevision() != x.m.compacted {
		t.Fatalf("at %d, compacted %d; want %d, %d", x.s.Revision(), x.s.CompactedRevision(), x.m.rev, x.m.compacted)
	}
	checkRange(t, x.s.Range, x.m, x.m.rev, x.m.rev)
	x.checkHistory(t)
	key, rev := modelKeys.Draw(t, "key"), rapid.Int64Range(max(x.m.compacted, 1), x.m.rev).Draw(t, "rev")
	row, res, err := x.s.Get([]byte(key), rev, []byte("x"))
	wantRow := []byte("x")
	if r := x.m.at(rev)[key]; r != nil {
		wantRow = append(wantRow, marshal(t, r.kv)...)
	}
	if err != nil || !bytes.Equal(row, wantRow) || res.Count != int64(min(len(wantRow)-1, 1)) {
		t.Fatalf("get %q at %d: %q %+v %v", key, rev, row, res, err)
	}
	prev, ok := x.s.Prev([]byte(key), rev+1)
	if ok != (len(wantRow) > 1) || ok && !bytes.Equal(prev, wantRow[1:]) {
		t.Fatalf("prev %q at %d: %q %v", key, rev+1, prev, ok)
	}
	hash, compacted, at, err := x.s.HashKV(rev)
	if want := x.m.hash(t, rev); err != nil || hash != want || compacted != x.m.compacted || at != rev {
		t.Fatalf("hash at %d: %x %d %d %v, want %x", rev, hash, compacted, at, err, want)
	}
}

func (x *subject) compact(t *rapid.T) {
	rev := x.m.rev + 1 - rapid.Int64Range(0, x.m.rev+2).Draw(t, "back") // small numbers are drawn more often
	var want error
	switch {
	case rev <= x.m.compacted:
		want = errs.ErrCompacted
	case rev > x.m.rev:
		want = errs.ErrFutureRev
	}
	err := x.s.Compact(rev)
	if err != want {
		t.Fatalf("compact %d of %d, compacted %d: %v", rev, x.m.rev, x.m.compacted, err)
	}
	if err == nil {
		x.m.compacted = rev
		x.unseen = true
	}
}

func TestStoreAgainstModel(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		x := &subject{path: filepath.Join(dir, fmt.Sprint(n)), m: &model{rev: 1, compacted: -1}, committed: model{rev: 1, compacted: -1}}
		x.open(t)
		defer func() { _ = x.b.Close() }()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 11).Draw(t, "step") {
			case 0, 1, 2, 3, 4, 5:
				x.txn(t)
			case 6:
				x.publish()
			case 7:
				x.commit(t)
			case 8:
				x.compact(t)
			case 9, 10:
				x.s.CompactStep(rapid.IntRange(1, 5).Draw(t, "rows"))
			case 11:
				x.restart(t)
			}
			if x.unseen && rapid.Bool().Draw(t, "see") {
				x.publish()
			}
			if !x.unseen {
				x.check(t)
			}
		}
		x.finish(t)
	})
}

// finish removes all there is to remove and compares the rows in the file, before and after a restart.
func (x *subject) finish(t *rapid.T) {
	for x.s.CompactStep(3) {
	}
	x.commit(t)
	for range 2 {
		v := x.b.View()
		var got []backend.RowID
		if err := v.Scan(mvcc.Revision{}, backend.EndOf(x.m.rev), func(id backend.RowID, _ []byte) bool {
			got = append(got, id)
			return true
		}); err != nil {
			t.Fatal(err)
		}
		v.Release()
		var want []backend.RowID
		for _, r := range x.m.kept() {
			want = append(want, r.id)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("rows left: %v, want %v", got, want)
		}
		x.check(t)
		x.restart(t)
		if x.s.CompactStep(100) {
			t.Fatal("a finished removal began again")
		}
	}
}
