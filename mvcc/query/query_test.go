package query_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/mvcc"
	"github.com/coordd/coordd/mvcc/backend"
	"github.com/coordd/coordd/mvcc/query"
)

// openStore returns an empty store on a new file.
func openStore(t testing.TB) *mvcc.Store {
	t.Helper()
	b, err := backend.Open(filepath.Join(t.TempDir(), "db"), backend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	s, err := mvcc.Open(b, mvcc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// put puts pairs of key and value, each at a revision of its own.
func put(s *mvcc.Store, lease int64, keysAndValues ...string) {
	for i := 0; i < len(keysAndValues); i += 2 {
		t := s.Begin()
		t.Put([]byte(keysAndValues[i]), []byte(keysAndValues[i+1]), lease)
		t.End()
	}
	s.Publish()
}

func response(t *testing.T, src query.Source, r *rpcpb.RangeRequest) *rpcpb.RangeResponse {
	t.Helper()
	resp, err := query.Response(src, r)
	if err != nil {
		t.Fatalf("%v: %v", r, err)
	}
	return resp
}

func keysOf(resp *rpcpb.RangeResponse) string {
	var keys []byte
	for _, kv := range resp.Kvs {
		keys = append(keys, kv.Key...)
	}
	return string(keys)
}

// all reads the whole key space.
func all(r *rpcpb.RangeRequest) *rpcpb.RangeRequest {
	r.Key, r.RangeEnd = []byte{0}, []byte{0}
	return r
}

func TestOrders(t *testing.T) {
	s := openStore(t)
	// key: value, create, mod, version: a: 9,2,2,1  b: 5,3,7,2  c: 7,4,4,1  d: 5,5,5,1  e: 1,6,6,1
	put(s, 0, "a", "9", "b", "8", "c", "7", "d", "5", "e", "1", "b", "5")
	const (
		none, asc, desc          = rpcpb.RangeRequest_NONE, rpcpb.RangeRequest_ASCEND, rpcpb.RangeRequest_DESCEND
		key, version             = rpcpb.RangeRequest_KEY, rpcpb.RangeRequest_VERSION
		create, mod, value       = rpcpb.RangeRequest_CREATE, rpcpb.RangeRequest_MOD, rpcpb.RangeRequest_VALUE
		hugeLimit          int64 = math.MaxInt64
	)
	tests := []struct {
		name string
		r    *rpcpb.RangeRequest
		keys string
		more bool
	}{
		{"default", &rpcpb.RangeRequest{}, "abcde", false},
		{"limit cuts", &rpcpb.RangeRequest{Limit: 4}, "abcd", true},
		{"limit fits", &rpcpb.RangeRequest{Limit: 5}, "abcde", false},
		{"negative limit", &rpcpb.RangeRequest{Limit: -2}, "abcde", false},
		{"huge limit", &rpcpb.RangeRequest{Limit: hugeLimit}, "abcde", false},
		{"keys down", &rpcpb.RangeRequest{SortOrder: desc}, "edcba", false},
		{"keys down, limit", &rpcpb.RangeRequest{SortOrder: desc, Limit: 2}, "ed", true},
		{"keys down, huge limit", &rpcpb.RangeRequest{SortOrder: desc, Limit: hugeLimit}, "edcba", false},
		{"by mod", &rpcpb.RangeRequest{SortOrder: asc, SortTarget: mod}, "acdeb", false},
		{"latest", &rpcpb.RangeRequest{SortOrder: desc, SortTarget: mod, Limit: 1}, "b", true},
		{"oldest", &rpcpb.RangeRequest{SortOrder: asc, SortTarget: create, Limit: 1}, "a", true},
		{"by version down, ties by key", &rpcpb.RangeRequest{SortOrder: desc, SortTarget: version}, "bacde", false},
		{"by value, ties by key", &rpcpb.RangeRequest{SortOrder: asc, SortTarget: value}, "ebdca", false},
		{"no order but a target is ascending", &rpcpb.RangeRequest{SortOrder: none, SortTarget: value}, "ebdca", false},
		{"no order, target, limit: of the first limit+1 keys", &rpcpb.RangeRequest{SortOrder: none, SortTarget: value, Limit: 2}, "bc", true},
		{"no order, target, limit over all", &rpcpb.RangeRequest{SortOrder: none, SortTarget: value, Limit: hugeLimit}, "ebdca", false},
		{"no order, target, limit, filter: of all keys", &rpcpb.RangeRequest{SortTarget: value, Limit: 2, MinCreateRevision: 1}, "eb", true},
		{"filter mod", &rpcpb.RangeRequest{MinModRevision: 5, MaxModRevision: 6}, "de", false},
		{"filter create", &rpcpb.RangeRequest{MinCreateRevision: 3, MaxCreateRevision: 4}, "bc", false},
		{"filter before limit", &rpcpb.RangeRequest{MinModRevision: 5, Limit: 2}, "bd", true},
		{"filter fits limit", &rpcpb.RangeRequest{MinModRevision: 5, Limit: 3}, "bde", false},
		{"explicit ascending by key", &rpcpb.RangeRequest{SortOrder: asc, SortTarget: key, Limit: 1}, "a", true},
		{"past", &rpcpb.RangeRequest{Revision: 4, SortOrder: desc}, "cba", false},
		{"negative revision is now", &rpcpb.RangeRequest{Revision: -3}, "abcde", false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			resp := response(t, s, all(tc.r))
			count := int64(5)
			if tc.r.Revision == 4 {
				count = 3
			}
			if keysOf(resp) != tc.keys || resp.More != tc.more || resp.Count != count || resp.Header.Revision != 7 {
				t.Errorf("got %q, more %t, count %d, revision %d", keysOf(resp), resp.More, resp.Count, resp.Header.Revision)
			}
		})
	}
}

func TestCountOnlyAndKeysOnly(t *testing.T) {
	s := openStore(t)
	put(s, 77, "a", "long value", "b", "")
	resp := response(t, s, all(&rpcpb.RangeRequest{CountOnly: true, Limit: 1, MinModRevision: 3, SortOrder: rpcpb.RangeRequest_DESCEND}))
	if resp.Count != 2 || resp.More || resp.Kvs != nil {
		t.Errorf("got %v", resp)
	}
	for _, order := range []rpcpb.RangeRequest_SortOrder{0, 1, 2} {
		for _, target := range []rpcpb.RangeRequest_SortTarget{0, 1, 2, 3, 4} {
			for _, filter := range []int64{0, 1} {
				r := all(&rpcpb.RangeRequest{KeysOnly: true, SortOrder: order, SortTarget: target, MinModRevision: filter})
				resp := response(t, s, r)
				slices.SortFunc(resp.Kvs, func(a, b *kvpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
				want := &kvpb.KeyValue{Key: []byte("a"), CreateRevision: 2, ModRevision: 2, Version: 1, Lease: 77}
				if len(resp.Kvs) != 2 || !proto.Equal(resp.Kvs[0], want) {
					t.Errorf("%v: got %v", r, resp.Kvs)
				}
			}
		}
	}
}

func TestErrors(t *testing.T) {
	s := openStore(t)
	put(s, 0, "a", "1", "a", "2", "a", "3")
	if err := s.Compact(3); err != nil {
		t.Fatal(err)
	}
	s.Publish()
	for _, order := range []rpcpb.RangeRequest_SortOrder{0, 2} {
		for rev, want := range map[int64]error{2: errs.ErrCompacted, 3: nil, 4: nil, 5: errs.ErrFutureRev} {
			if _, err := query.Response(s, all(&rpcpb.RangeRequest{Revision: rev, SortOrder: order})); !errors.Is(err, want) {
				t.Errorf("revision %d: %v, want %v", rev, err, want)
			}
		}
		stop := errors.New("stop")
		_, err := query.Range(s, all(&rpcpb.RangeRequest{SortOrder: order}), func([]byte) error { return stop })
		if !errors.Is(err, stop) {
			t.Errorf("error of the visitor: %v", err)
		}
	}
}

func TestWithContext(t *testing.T) {
	s := openStore(t)
	for i := range 2000 {
		put(s, 0, fmt.Sprint(i), "v")
	}
	ctx, cancel := context.WithCancel(t.Context())
	visited := 0
	_, err := query.Range(query.WithContext(ctx, s), all(&rpcpb.RangeRequest{}), func([]byte) error {
		visited++
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || visited > 300 {
		t.Errorf("%v after %d rows", err, visited)
	}
	if _, err := query.Response(query.WithContext(ctx, s), all(&rpcpb.RangeRequest{CountOnly: true})); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestTransactionIsASource(t *testing.T) {
	s := openStore(t)
	put(s, 0, "a", "1", "b", "2")
	txn := s.Begin()
	defer txn.End()
	txn.Put([]byte("c"), []byte("0"), 0)
	txn.DeleteRange([]byte("a"), nil)
	resp := response(t, txn, all(&rpcpb.RangeRequest{SortOrder: rpcpb.RangeRequest_ASCEND, SortTarget: rpcpb.RangeRequest_VALUE}))
	if keysOf(resp) != "cb" || resp.Header.Revision != 4 {
		t.Errorf("got %v", resp)
	}
	if resp := response(t, s, all(&rpcpb.RangeRequest{})); keysOf(resp) != "ab" || resp.Header.Revision != 3 {
		t.Errorf("others see %v", resp)
	}
}

// TestSortedAgainstSorting draws stores large enough for rows to be thrown out early, and compares with
// sorting everything.
func TestSortedAgainstSorting(t *testing.T) {
	s := openStore(t)
	var pairs []*kvpb.KeyValue
	for i := range 700 {
		k, v := fmt.Sprintf("%04d", i*7919%1000), fmt.Sprint(i%13)
		put(s, 0, k, v)
		if i%3 == 0 {
			put(s, 0, k, v)
		}
	}
	pairs = response(t, s, all(&rpcpb.RangeRequest{})).Kvs
	if len(pairs) != 700 {
		t.Fatalf("%d pairs", len(pairs))
	}
	rapid.Check(t, func(t *rapid.T) {
		r := all(&rpcpb.RangeRequest{
			SortOrder:  rpcpb.RangeRequest_SortOrder(rapid.Int32Range(1, 2).Draw(t, "order")),
			SortTarget: rpcpb.RangeRequest_SortTarget(rapid.Int32Range(0, 4).Draw(t, "target")),
			Limit:      rapid.Int64Range(1, 800).Draw(t, "limit"),
		})
		want := slices.Clone(pairs)
		slices.SortStableFunc(want, func(a, b *kvpb.KeyValue) int {
			c := [...]int{
				bytes.Compare(a.Key, b.Key), cmp.Compare(a.Version, b.Version), cmp.Compare(a.CreateRevision, b.CreateRevision),
				cmp.Compare(a.ModRevision, b.ModRevision), bytes.Compare(a.Value, b.Value),
			}[r.SortTarget]
			if r.SortOrder == rpcpb.RangeRequest_DESCEND {
				c = -c
			}
			return c
		})
		more := int64(len(want)) > r.Limit
		want = want[:min(int64(len(want)), r.Limit)]
		got, err := query.Response(s, r)
		if err != nil || got.More != more || got.Count != 700 || !slices.EqualFunc(got.Kvs, want, func(a, b *kvpb.KeyValue) bool { return proto.Equal(a, b) }) {
			t.Fatalf("%v: got %d rows, more %t, count %d, %v", r, len(got.GetKvs()), got.GetMore(), got.GetCount(), err)
		}
	})
}
