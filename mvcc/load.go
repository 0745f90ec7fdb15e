package mvcc

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"runtime"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/coordd/coordd/mvcc/backend"
	"github.com/coordd/coordd/mvcc/index"
)

const (
	// loaders is the most goroutines that read rows, and partsEach how many parts of the revisions each takes on
	// average, so that none is left with most of the work.
	loaders   = 8
	partsEach = 4
	// smallLoad is the number of revisions below which one goroutine is enough.
	smallLoad = 4096
)

// chunkRows is how many rows a loader takes memory for at a time.
const chunkRows = 4096

// run is the rows that one loader has read: in the order of revisions, and the order of their keys.
type run struct {
	chunks [][]index.Change // all full but the last; the keys are in the file's memory
	shared int              // so many first bytes of all keys are those of the first
	order  []sortKey
}

// sortKey stands for a row when sorting: 8 bytes of its key, after those that all have in common, and its place.
type sortKey struct {
	part uint64
	row  int32
}

// load builds the index and returns the main revision of the last row. The rows are read in parts of the revisions
// by several goroutines, each of which sorts what it has read; then several goroutines merge what is there in
// parts of the keys.
func (s *Store) load(onLive func(key []byte, lease int64)) (last int64, err error) {
	v := s.b.View()
	low, high, ok := v.Bounds()
	v.Release()
	if !ok {
		s.tree = new(index.Tree)
		return 0, nil
	}
	n := min(runtime.GOMAXPROCS(0), loaders)
	if high.Main-low.Main < smallLoad {
		n = 1
	}
	views := make([]backend.View, n) // held until the keys are copied; the writer does nothing meanwhile
	for i := range views {
		views[i] = s.b.View()
		defer views[i].Release()
	}
	runs, err := readRuns(views, splitRevisions(low.Main, high.Main, n*partsEach))
	if err != nil {
		return 0, err
	}
	skip := sharedPrefix(runs)
	parallel(n, func(i int) { runs[i].sort(skip) })
	s.tree = merge(runs, skip, n, onLive)
	return high.Main, nil
}

// readRuns reads all parts, with one goroutine for each view.
func readRuns(views []backend.View, parts []part) ([]run, error) {
	runs := make([]run, len(views))
	var next atomic.Int64
	var g errgroup.Group
	for i := range runs {
		g.Go(func() error {
			for p := next.Add(1) - 1; p < int64(len(parts)); p = next.Add(1) - 1 {
				if err := runs[i].read(&views[i], parts[p].from, parts[p].to); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return runs, g.Wait()
}

// parallel calls f(0) to f(n−1) at the same time.
func parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// part is an interval of revisions, both ends included.
type part struct{ from, to Revision }

func splitRevisions(low, high int64, n int) []part {
	width := (high-low)/int64(n) + 1
	var parts []part
	for at := low; at <= high; at += width {
		parts = append(parts, part{Revision{Main: at}, backend.EndOf(min(at+width-1, high))})
	}
	return parts
}

// read appends the rows of a part, which is after the parts before.
func (r *run) read(v *backend.View, from, to Revision) error {
	var bad error
	err := v.Scan(from, to, func(id backend.RowID, row []byte) bool {
		h, err := readHead(row)
		if err != nil {
			bad = badRow(id, err)
			return false
		}
		c := index.Change{Key: h.key, RowID: id}
		if !id.Tombstone {
			c.Create, c.Version, c.Lease = h.create, h.version, h.lease
		}
		r.add(c)
		return true
	})
	if err == nil {
		err = bad
	}
	return err
}

func (r *run) add(c index.Change) {
	last := len(r.chunks) - 1
	if last < 0 {
		r.shared = len(c.Key)
	}
	if last < 0 || len(r.chunks[last]) == chunkRows {
		r.chunks = append(r.chunks, make([]index.Change, 0, chunkRows))
		last++
	}
	r.chunks[last] = append(r.chunks[last], c)
	r.shared = commonPrefix(r.chunks[0][0].Key[:r.shared], c.Key)
}

func (r *run) len() int {
	if len(r.chunks) == 0 {
		return 0
	}
	return (len(r.chunks)-1)*chunkRows + len(r.chunks[len(r.chunks)-1])
}

// at gives the row that k stands for.
func (r *run) at(k sortKey) *index.Change { return &r.chunks[k.row/chunkRows][k.row%chunkRows] }

// sharedPrefix is how many first bytes all keys of all runs have in common.
func sharedPrefix(runs []run) int {
	var first []byte
	for i := range runs {
		switch r := &runs[i]; {
		case r.len() == 0:
		case first == nil:
			first = r.chunks[0][0].Key[:r.shared]
		default:
			first = first[:commonPrefix(first, r.chunks[0][0].Key[:r.shared])]
		}
	}
	return len(first)
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// partOf gives the part of key that is compared first. It orders keys, but for ties.
func partOf(key []byte, skip int) uint64 {
	if len(key) >= skip+8 {
		return binary.BigEndian.Uint64(key[skip:])
	}
	var part [8]byte
	copy(part[:], key[skip:])
	return binary.BigEndian.Uint64(part[:])
}

// sort sets the order: by key, then by revision.
func (r *run) sort(skip int) {
	r.order = make([]sortKey, r.len())
	for i := range r.order {
		k := sortKey{row: int32(i)}
		k.part = partOf(r.at(k).Key, skip)
		r.order[i] = k
	}
	slices.SortFunc(r.order, func(a, b sortKey) int {
		if a.part != b.part {
			return cmp.Compare(a.part, b.part)
		}
		if c := bytes.Compare(r.at(a).Key[skip:], r.at(b).Key[skip:]); c != 0 {
			return c
		}
		return cmp.Compare(a.row, b.row)
	})
}

// search gives the place in the order of the first key that is not less than key.
func (r *run) search(key []byte, skip int) int {
	part := partOf(key, skip)
	return sort.Search(len(r.order), func(i int) bool {
		k := r.order[i]
		if k.part != part {
			return k.part > part
		}
		return bytes.Compare(r.at(k).Key, key) >= 0
	})
}

// merge builds the tree in n parts, and then calls onLive for the keys with a lease.
func merge(runs []run, skip, n int, onLive func(key []byte, lease int64)) *index.Tree {
	// The keys that divide the parts are taken from the longest run.
	long := slices.MaxFunc(runs, func(a, b run) int { return cmp.Compare(a.len(), b.len()) })
	merges := make([]*merger, n)
	from := make([]int, len(runs))
	for i := range merges {
		to := make([]int, len(runs))
		for j := range runs {
			if to[j] = len(runs[j].order); i < n-1 {
				to[j] = runs[j].search(long.at(long.order[(i+1)*long.len()/n]).Key, skip)
			}
		}
		merges[i] = &merger{runs: runs, at: from, end: to}
		from = slices.Clone(to)
	}
	parallel(n, func(i int) { merges[i].run(skip) })
	builders := make([]*index.Builder, n)
	for i, m := range merges {
		builders[i] = &m.build
		for _, c := range m.leased {
			if onLive != nil {
				onLive(c.Key, c.Lease)
			}
		}
	}
	return index.Build(builders...)
}

// merger merges one interval of keys of all runs.
type merger struct {
	runs    []run
	at, end []int // in the order of each run
	build   index.Builder
	leased  []*index.Change
}

func (m *merger) run(skip int) {
	var last *index.Change
	for c := m.next(skip); c != nil; c = m.next(skip) {
		if last != nil && last.Lease != 0 && !bytes.Equal(last.Key, c.Key) {
			m.leased = append(m.leased, last)
		}
		m.build.Add(*c)
		last = c
	}
	if last != nil && last.Lease != 0 {
		m.leased = append(m.leased, last)
	}
}

// next gives the next row, nil at the end.
func (m *merger) next(skip int) *index.Change {
	best := -1
	for i := range m.runs {
		if m.at[i] < m.end[i] && (best < 0 || m.before(i, best, skip)) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	m.at[best]++
	return m.runs[best].at(m.runs[best].order[m.at[best]-1])
}

// before says whether the next row of run i comes before that of run j.
func (m *merger) before(i, j, skip int) bool {
	a, b := m.runs[i].order[m.at[i]], m.runs[j].order[m.at[j]]
	if a.part != b.part {
		return a.part < b.part
	}
	x, y := m.runs[i].at(a), m.runs[j].at(b)
	c := bytes.Compare(x.Key[skip:], y.Key[skip:])
	return c < 0 || c == 0 && x.Compare(y.Revision) < 0
}
