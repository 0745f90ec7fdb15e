package member

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/mvcc/backend"
)

// file is a Set with its file.
type file struct {
	path  string
	b     *backend.Backend
	s     *Set
	index uint64
}

func (f *file) open() error {
	var err error
	if f.b, err = backend.Open(f.path, backend.Options{}); err != nil {
		return err
	}
	f.s, err = Open(f.b)
	return err
}

// reopen makes all durable and reads it again.
func (f *file) reopen() error {
	f.index++
	if err := f.b.Commit(backend.Position{Index: f.index, Term: 1}, true); err != nil {
		return err
	}
	if err := f.b.Close(); err != nil {
		return err
	}
	return f.open()
}

func newFile(t *testing.T) *file {
	t.Helper()
	f := &file{path: filepath.Join(t.TempDir(), "db")}
	if err := f.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.b.Close() })
	return f
}

func (f *file) must(t *testing.T, cc raftpb.ConfChangeI) *Member {
	t.Helper()
	m, err := f.s.ApplyChange(cc)
	if err != nil {
		t.Fatalf("%v: %v", cc, err)
	}
	return m
}

func voter(id ID, url string) Member { return Member{ID: id, PeerURLs: []string{url}} }
func learner(id ID, url string) Member {
	return Member{ID: id, PeerURLs: []string{url}, IsLearner: true}
}

func TestChangeRules(t *testing.T) {
	f := newFile(t)
	f.must(t, NewAdd(1, voter(1, "http://a:1"), 0))
	f.must(t, NewAdd(2, voter(2, "http://b:1"), 0))
	f.must(t, NewAdd(3, learner(3, "http://c:1"), 1))
	f.must(t, NewAdd(4, voter(4, "http://d:1"), 0))
	f.must(t, NewRemove(5, 4))
	badContext := NewAdd(1, voter(9, "http://x:1"), 0)
	badContext.Context = []byte("{")
	otherMember := NewAdd(1, voter(9, "http://x:1"), 0)
	otherMember.Context = NewAdd(1, voter(8, "http://x:1"), 0).Context
	unknown := NewRemove(1, 1)
	unknown.Type = raftpb.ConfChangeType(77).Enum()
	unknown.Context = mustJSON(Change{Member: Member{ID: 1}})
	demoting := NewPromote(1, 3)
	demoting.Type = raftpb.ConfChangeAddLearnerNode.Enum()
	tests := []struct {
		name string
		cc   raftpb.ConfChangeI
		want error
	}{
		{"id in use", NewAdd(1, voter(1, "http://x:1"), 0), errs.ErrMemberExist},
		{"voter to learner", NewAdd(1, learner(1, "http://x:1"), 0), errs.ErrMemberExist},
		{"id removed before", NewAdd(1, voter(4, "http://x:1"), 0), errs.ErrMemberNotFound},
		{"URL in use", NewAdd(1, voter(9, "http://b:1"), 0), errs.ErrPeerURLExist},
		{"URL of a removed member", NewAdd(1, voter(9, "http://d:1"), 0), nil},
		{"one learner too many", NewAdd(1, learner(9, "http://x:1"), 1), errs.ErrTooManyLearners},
		{"two learners allowed", NewAdd(1, learner(9, "http://x:1"), 2), nil},
		{"promote a voter", NewPromote(1, 1), errs.ErrMemberNotLearner},
		{"promote nobody", NewPromote(1, 9), errs.ErrMemberNotFound},
		{"promote", NewPromote(1, 3), nil},
		{"promote with the wrong type", demoting, ErrMalformedChange},
		{"update nobody", NewUpdate(1, 9, []string{"http://x:1"}), errs.ErrMemberNotFound},
		{"update to a URL of another", NewUpdate(1, 1, []string{"http://b:1"}), errs.ErrPeerURLExist},
		{"update keeping its own", NewUpdate(1, 1, []string{"http://a:1", "http://a:2"}), nil},
		{"remove nobody", NewRemove(1, 9), errs.ErrMemberNotFound},
		{"remove twice", NewRemove(1, 4), errs.ErrMemberNotFound},
		{"remove", NewRemove(1, 1), nil},
		{"nothing", NewNothing(), ErrMalformedChange},
		{"bad context", badContext, ErrMalformedChange},
		{"context of another member", otherMember, ErrMalformedChange},
		{"unknown type", unknown, ErrMalformedChange},
		{"two in one", &raftpb.ConfChangeV2{Changes: make([]*raftpb.ConfChangeSingle, 2)}, ErrMalformedChange},
		{"leaving a joint configuration", &raftpb.ConfChangeV2{}, ErrMalformedChange},
		{"second form", NewAdd(1, voter(9, "http://x:1"), 0).AsV2(), nil},
	}
	for _, tc := range tests {
		if err := f.s.CheckChange(tc.cc); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
			t.Errorf("%s: got %v, want %v", tc.name, err, tc.want)
		}
	}
	f.must(t, NewRemove(1, 1))
	if _, err := f.s.ApplyChange(NewRemove(1, 2)); !errors.Is(err, errs.ErrMemberNotEnoughStarted) {
		t.Errorf("removing the last voter: %v", err)
	}
	if f.s.Get(2) == nil || f.s.Removed(2) {
		t.Error("a refused change left a trace")
	}
}

func TestPromotionKeepsAttributes(t *testing.T) {
	f := newFile(t)
	f.must(t, NewAdd(1, voter(1, "http://a:1"), 0))
	f.must(t, NewAdd(2, learner(2, "http://b:1"), 1))
	if err := f.s.SetAttributes(2, "two", []string{"http://b:2"}); err != nil {
		t.Fatal(err)
	}
	before := f.s.Get(2)
	got := f.must(t, NewPromote(3, 2))
	want := Member{ID: 2, PeerURLs: []string{"http://b:1"}, Name: "two", ClientURLs: []string{"http://b:2"}}
	if string(mustJSON(got)) != string(mustJSON(want)) {
		t.Errorf("got %+v", got)
	}
	if !before.IsLearner {
		t.Error("a member that a reader holds has changed")
	}
	if err := f.s.SetAttributes(9, "x", nil); !errors.Is(err, errs.ErrMemberNotFound) {
		t.Errorf("attributes of nobody: %v", err)
	}
}

func TestRowsInTheFile(t *testing.T) {
	f := newFile(t)
	f.must(t, NewAdd(1, voter(0xabc, "http://a:1"), 0))
	f.must(t, NewAdd(2, voter(2, "http://b:1"), 0))
	f.must(t, NewRemove(3, 2))
	f.s.SetVersion("3.7.0")
	f.s.SetDowngrade(Downgrade{TargetVersion: "3.6.0", Enabled: true})
	if err := f.reopen(); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"members/abc":            `{"id":2748,"peerURLs":["http://a:1"]}`,
		"members_removed/2":      "removed",
		"cluster/clusterVersion": "3.7.0",
		"cluster/downgrade":      `{"target-version":"3.6.0","enabled":true}`,
	}
	got := make(map[string]string)
	for _, bucket := range []backend.Bucket{backend.BucketMembers, backend.BucketMembersRemoved, backend.BucketCluster} {
		err := f.b.ForEach(bucket, func(k, v []byte) error {
			got[fmt.Sprintf("%s/%s", bucket, k)] = string(v)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestOpenRefusesDamagedRows(t *testing.T) {
	rows := []struct {
		bucket     backend.Bucket
		key, value string
	}{
		{backend.BucketMembers, "xyz", `{"id":1}`},
		{backend.BucketMembers, "1", `{"id":2}`},
		{backend.BucketMembers, "1", `{`},
		{backend.BucketMembersRemoved, "", "removed"},
		{backend.BucketCluster, "downgrade", "{"},
	}
	for _, row := range rows {
		f := newFile(t)
		f.b.Put(row.bucket, []byte(row.key + "\x00")[:max(len(row.key), 1)], []byte(row.value))
		if err := f.reopen(); err == nil {
			t.Errorf("opened with %+v", row)
		}
	}
}

func TestReplace(t *testing.T) {
	f := newFile(t)
	f.must(t, NewAdd(1, voter(1, "http://a:1"), 0))
	f.must(t, NewAdd(2, voter(2, "http://b:1"), 0))
	f.must(t, NewRemove(3, 2))
	f.s.Replace([]Member{voter(7, "http://z:1"), voter(2, "http://b:1")})
	for range 2 {
		if ids := idsOf(f.s); !slices.Equal(ids, []ID{2, 7}) || len(f.s.RemovedIDs()) != 0 {
			t.Errorf("members %v, removed %v", ids, f.s.RemovedIDs())
		}
		if err := f.reopen(); err != nil {
			t.Fatal(err)
		}
	}
}

func idsOf(s *Set) []ID {
	var ids []ID
	for _, m := range s.Members() {
		ids = append(ids, m.ID)
	}
	return ids
}

// TestFollowsRaft draws changes, gives raft what the Set makes of each, and compares the
// configurations; the Set is reopened at random.
func TestFollowsRaft(t *testing.T) {
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		f := &file{path: filepath.Join(dir, fmt.Sprint(run))}
		if err := f.open(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.b.Close() }()
		f.s.Replace([]Member{voter(1, "http://u1:1")})
		storage := raft.NewMemoryStorage()
		if err := storage.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			ConfState: f.s.ConfState(), Index: new(uint64(1)), Term: new(uint64(1)),
		}}); err != nil {
			t.Fatal(err)
		}
		node, err := raft.NewRawNode(&raft.Config{
			ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: storage, MaxSizePerMsg: 1, MaxInflightMsgs: 1,
			Logger: &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
		})
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 40).Draw(t, "changes") {
			var cc raftpb.ConfChangeI = drawChange(t)
			before := string(mustState(f.s))
			check := f.s.CheckChange(cc)
			_, err := f.s.ApplyChange(cc)
			if (err == nil) != (check == nil) {
				t.Fatalf("%v: check says %v, apply %v", cc, check, err)
			}
			if err != nil {
				cc = NewNothing()
				if after := string(mustState(f.s)); after != before {
					t.Fatalf("refused (%v) and changed: %s to %s", err, before, after)
				}
			}
			if got := node.ApplyConfChange(cc); got.Equivalent(f.s.ConfState()) != nil {
				t.Fatalf("raft has %v, the set %v", got, f.s.ConfState())
			}
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				before := string(mustState(f.s))
				if err := f.reopen(); err != nil {
					t.Fatal(err)
				}
				if after := string(mustState(f.s)); after != before {
					t.Fatalf("reopened with %s, was %s", after, before)
				}
			}
		}
	})
}

func drawChange(t *rapid.T) *raftpb.ConfChange {
	id := ID(rapid.Uint64Range(0, 6).Draw(t, "id"))
	url := fmt.Sprintf("http://u%d:1", rapid.IntRange(1, 6).Draw(t, "url"))
	switch rapid.SampledFrom([]string{"add", "add", "learner", "promote", "update", "remove"}).Draw(t, "kind") {
	case "add":
		return NewAdd(1, voter(id, url), 0)
	case "learner":
		return NewAdd(1, learner(id, url), rapid.IntRange(0, 2).Draw(t, "max"))
	case "promote":
		return NewPromote(1, id)
	case "update":
		return NewUpdate(1, id, []string{url})
	default:
		return NewRemove(1, id)
	}
}

// mustState shows all of a Set.
func mustState(s *Set) []byte {
	b, err := json.Marshal([]any{s.Members(), s.RemovedIDs(), s.Version(), s.Downgrade()})
	if err != nil {
		panic(err)
	}
	return b
}
