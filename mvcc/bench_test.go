package mvcc_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/coordd/coordd/mvcc"
	"github.com/coordd/coordd/mvcc/backend"
)

// filled makes a store of n keys with values of size bytes, written in random order, all in the file.
func filled(tb testing.TB, n, size int) (path string, b *backend.Backend, s *mvcc.Store) {
	tb.Helper()
	path = filepath.Join(tb.TempDir(), "db")
	b, err := backend.Open(path, backend.Options{NoSync: true})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = b.Close() })
	if s, err = mvcc.Open(b, mvcc.Options{}); err != nil {
		tb.Fatal(err)
	}
	value := make([]byte, size)
	pos := backend.Position{}
	for i, k := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		t := s.Begin()
		t.Put(benchKey(k), value, 0)
		t.End()
		if i%1000 == 0 {
			s.Publish()
			pos.Index++
			if err := b.CommitIfDue(pos); err != nil {
				tb.Fatal(err)
			}
		}
	}
	s.Publish()
	pos.Index++
	if err := b.Commit(pos, true); err != nil {
		tb.Fatal(err)
	}
	return path, b, s
}

func benchKey(i int) []byte { return fmt.Appendf(nil, "/registry/pods/default/pod-%08d", i) }

func BenchmarkPut(b *testing.B) {
	_, back, s := filled(b, 10000, 256)
	keys := make([][]byte, 10000)
	for i := range keys {
		keys[i] = benchKey(i)
	}
	value := make([]byte, 256)
	pos := backend.Position{Index: 1 << 20}
	rnd := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		t := s.Begin()
		t.Put(keys[rnd.IntN(len(keys))], value, 0)
		t.End()
		if i%16 == 15 {
			s.Publish()
			pos.Index++
			if err := back.CommitIfDue(pos); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkGet(b *testing.B) {
	_, _, s := filled(b, 200000, 256)
	rnd := rand.New(rand.NewPCG(1, 2))
	keys := make([][]byte, 4096)
	for i := range keys {
		keys[i] = benchKey(rnd.IntN(200000))
	}
	var buf []byte
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		row, res, err := s.Get(keys[i%len(keys)], 0, buf[:0])
		if err != nil || res.Count != 1 {
			b.Fatal(res, err)
		}
		buf = row
	}
}

func benchRange(b *testing.B, from, to []byte, o mvcc.RangeOptions, want int64) {
	_, _, s := filled(b, 200000, 256)
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		bytes := 0
		res, err := s.Range(from, to, o, func(row []byte) error {
			bytes += len(row)
			return nil
		})
		if err != nil || res.Count != want {
			b.Fatal(res, err)
		}
	}
}

func BenchmarkRange1000(b *testing.B) {
	benchRange(b, benchKey(70000), benchKey(71000), mvcc.RangeOptions{}, 1000)
}

func BenchmarkPage500(b *testing.B) {
	benchRange(b, []byte("/registry/"), []byte("/registry0"), mvcc.RangeOptions{Limit: 500}, 200000)
}

func BenchmarkCount(b *testing.B) {
	benchRange(b, []byte("/registry/pods/default/pod-00000100"), []byte("/registry0"), mvcc.RangeOptions{CountOnly: true}, 200000-100)
}

func BenchmarkOpen(b *testing.B) {
	path, back, s := filled(b, 200000, 256)
	if err := back.Close(); err != nil {
		b.Fatal(err)
	}
	_ = s
	b.ReportAllocs()
	for b.Loop() {
		back, err := backend.Open(path, backend.Options{})
		if err != nil {
			b.Fatal(err)
		}
		s, err := mvcc.Open(back, mvcc.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if s.Revision() != 200001 {
			b.Fatal(s.Revision())
		}
		if err := back.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkMemory reports the bytes of memory a key of an opened store takes, besides the key itself.
func BenchmarkMemory(b *testing.B) {
	const n = 200000
	path, back, _ := filled(b, n, 256)
	if err := back.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		before := heap()
		back, err := backend.Open(path, backend.Options{})
		if err != nil {
			b.Fatal(err)
		}
		s, err := mvcc.Open(back, mvcc.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(heap()-before)/n-float64(len(benchKey(0))), "B/key")
		runtime.KeepAlive(s)
		if err := back.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
