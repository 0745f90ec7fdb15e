package lease

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/mvcc/backend"
)

func TestGrantErrors(t *testing.T) {
	table := openTable(t)
	if _, err := table.Grant(-5, 10); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		id   ID
		ttl  int64
		want error
	}{
		{-5, 10, errs.ErrLeaseExist},
		{0, 10, errs.ErrLeaseNotFound},
		{1, MaxTTL + 1, errs.ErrLeaseTTLTooLarge},
		{2, MaxTTL, nil},
		{3, -7, nil},
		{math.MinInt64, 0, nil},
	}
	for _, tc := range tests {
		c, err := table.Grant(tc.id, tc.ttl)
		if !errors.Is(err, tc.want) {
			t.Errorf("grant %d for %d s: %v, want %v", tc.id, tc.ttl, err, tc.want)
		}
		if err == nil && (c.Op != Granted || c.Lease != Lease{ID: tc.id, TTL: max(tc.ttl, 1)}) {
			t.Errorf("grant %d for %d s: %+v", tc.id, tc.ttl, c)
		}
	}
	if _, err := table.Revoke(99); !errors.Is(err, errs.ErrLeaseNotFound) {
		t.Errorf("revoking an unknown lease: %v", err)
	}
	if _, ok := table.Checkpoint(99, 1); ok {
		t.Error("an unknown lease was checkpointed")
	}
}

func TestOpenRefusesDamagedRows(t *testing.T) {
	for name, row := range map[string][2]string{
		"short key":    {"abc", ""},
		"not a lease":  {"\x00\x00\x00\x00\x00\x00\x00\x01", "\xff"},
		"other lease":  {"\x00\x00\x00\x00\x00\x00\x00\x01", "\x08\x02\x10\x05"},
		"lease zero":   {"\x00\x00\x00\x00\x00\x00\x00\x00", "\x10\x05"},
		"cut in pairs": {"\x00\x00\x00\x00\x00\x00\x00\x01", "\x08"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := backend.Open(filepath.Join(t.TempDir(), "db"), backend.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			b.Put(backend.BucketLease, []byte(row[0]), []byte(row[1]))
			if err := b.Commit(backend.Position{Index: 1, Term: 1}, true); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(b); err == nil {
				t.Error("opened")
			}
		})
	}
}

// TestTableAgainstModel compares the table with plain maps, also after restarts.
func TestTableAgainstModel(t *testing.T) {
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		path := filepath.Join(dir, fmt.Sprint(run))
		b, err := backend.Open(path, backend.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = b.Close() }()
		table, err := Open(b)
		if err != nil {
			t.Fatal(err)
		}
		leases := make(map[ID]Lease)
		keys := make(map[ID]map[string]bool)
		ids := rapid.SampledFrom([]ID{math.MinInt64, -5, -1, 1, 2, 64, 65, math.MaxInt64})
		key := rapid.SampledFrom([]string{"a", "b", "c\x00", "d"})
		index := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"grant": func(t *rapid.T) {
				id, ttl := ids.Draw(t, "id"), rapid.Int64Range(1, 100).Draw(t, "ttl")
				_, exists := leases[id]
				if _, err := table.Grant(id, ttl); (err == nil) == exists {
					t.Fatalf("grant %d: %v, exists %t", id, err, exists)
				}
				if !exists {
					leases[id], keys[id] = Lease{ID: id, TTL: ttl}, make(map[string]bool)
				}
			},
			"revoke": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				l, exists := leases[id]
				c, err := table.Revoke(id)
				if (err == nil) != exists || exists && c != (Change{Op: Revoked, Lease: l}) {
					t.Fatalf("revoke %d: %+v, %v", id, c, err)
				}
				delete(leases, id)
				delete(keys, id)
			},
			"attach": func(t *rapid.T) {
				id, k := ids.Draw(t, "id"), key.Draw(t, "key")
				table.Attach(id, []byte(k))
				if keys[id] != nil {
					keys[id][k] = true
				}
			},
			"detach": func(t *rapid.T) {
				id, k := ids.Draw(t, "id"), key.Draw(t, "key")
				table.Detach(id, []byte(k))
				delete(keys[id], k)
			},
			"checkpoint": func(t *rapid.T) {
				id, remaining := ids.Draw(t, "id"), rapid.Int64Range(-3, 110).Draw(t, "remaining")
				l, exists := leases[id]
				if _, ok := table.Checkpoint(id, remaining); ok != exists {
					t.Fatalf("checkpoint %d: %t", id, ok)
				}
				if exists {
					switch {
					case remaining >= l.TTL:
						l.Remaining = 0
					case remaining < 0:
						l.Remaining = min(1, l.TTL-1)
					default:
						l.Remaining = remaining
					}
					leases[id] = l
				}
			},
			"restart": func(t *rapid.T) {
				index++
				if err := b.Commit(backend.Position{Index: index, Term: 1}, true); err != nil {
					t.Fatal(err)
				}
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
				if b, err = backend.Open(path, backend.Options{}); err != nil {
					t.Fatal(err)
				}
				if table, err = Open(b); err != nil {
					t.Fatal(err)
				}
				for id, set := range keys { // the store tells which keys carry which lease
					for k := range set {
						table.Attach(id, []byte(k))
					}
				}
			},
			"": func(t *rapid.T) {
				got := make(map[ID]Lease)
				for _, l := range table.List() {
					got[l.ID] = l
				}
				if !maps.Equal(got, leases) || table.Len() != len(leases) {
					t.Fatalf("got %v, want %v", got, leases)
				}
				for id, set := range keys {
					if want := slices.Sorted(maps.Keys(set)); !slices.Equal(table.Keys(id), want) {
						t.Fatalf("keys of %d: %q, want %q", id, table.Keys(id), want)
					}
				}
			},
		})
	})
}

// TestReadersBesideWriter is for the race detector.
func TestReadersBesideWriter(t *testing.T) {
	table, e := openTable(t), NewExpirer()
	e.Promote(1, table, 0)
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for id := ID(1); ; id = id%100 + 1 {
				select {
				case <-stop:
					return
				default:
				}
				l, ok := table.Get(id)
				if keys := table.Keys(id); ok && l.TTL != 60 || len(keys) > 2 {
					t.Errorf("lease %d: %+v with keys %q", id, l, keys)
				}
				if _, err := e.Renew(id); err != nil && !errors.Is(err, errs.ErrLeaseNotFound) {
					t.Error(err)
				}
				table.List()
			}
		})
	}
	for round := range 50 {
		for id := ID(1); id <= 100; id++ {
			c, err := table.Grant(id, 60)
			if err != nil {
				t.Fatal(err)
			}
			e.Observe(c)
			table.Attach(id, []byte("a"))
			table.Attach(id, fmt.Append(nil, round))
			table.Checkpoint(id, 30)
		}
		for id := ID(1); id <= 100; id++ {
			c, err := table.Revoke(id)
			if err != nil {
				t.Fatal(err)
			}
			e.Observe(c)
		}
	}
	close(stop)
	readers.Wait()
}
