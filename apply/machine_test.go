package apply_test

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/coordd/coordd/api/requestpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/apply"
	"github.com/coordd/coordd/apply/check"
	"github.com/coordd/coordd/lease"
	"github.com/coordd/coordd/mvcc/query"
)

// tb is what the helpers need of *testing.T and *rapid.T.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// replica is a machine with the log it applies, and what came of each entry.
type replica struct {
	t    tb
	path string
	m    *apply.Machine
	log  []*raftpb.Entry
	out  []apply.Result // by entry
}

func openReplica(t tb, path string) *replica {
	t.Helper()
	r := &replica{t: t, path: path}
	r.open()
	return r
}

func (r *replica) open() {
	r.t.Helper()
	m, err := apply.Open(r.path, apply.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.m = m
}

func (r *replica) close() {
	r.t.Helper()
	if err := r.m.Close(); err != nil {
		r.t.Fatal(err)
	}
}

func entryOf(t tb, index, term uint64, req *requestpb.InternalRaftRequest) *raftpb.Entry {
	t.Helper()
	e := &raftpb.Entry{Index: &index, Term: &term, Type: raftpb.EntryNormal.Enum()}
	if req != nil {
		data, err := req.MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		e.Data = data
	}
	return e
}

func always(uint64) bool { return true }

// append adds an entry to the log and applies it.
func (r *replica) append(term uint64, req *requestpb.InternalRaftRequest) apply.Result {
	r.t.Helper()
	e := entryOf(r.t, uint64(len(r.log))+1, term, req)
	r.log = append(r.log, e)
	_, res := r.m.Apply(e, always)
	if res.Err != nil && (len(res.Events) != 0 || len(res.Leases) != 0) {
		r.t.Fatalf("%v: failed (%v) and changed %v, %v", req, res.Err, res.Events, res.Leases)
	}
	r.out = append(r.out, res)
	return res
}

// do applies a request and returns its response, which must not be an error.
func (r *replica) do(req *requestpb.InternalRaftRequest) any {
	r.t.Helper()
	res := r.append(1, req)
	if res.Err != nil {
		r.t.Fatalf("%v: %v", req, res.Err)
	}
	return res.Response
}

// crash loses what is not in the file, opens it again and applies the rest of the log, which must
// have the same results as the first time.
func (r *replica) crash() {
	r.t.Helper()
	r.close()
	r.open()
	for _, e := range r.log[r.m.Position().Index:] {
		_, res := r.m.Apply(e, always)
		sameResult(r.t, e.GetIndex(), res, r.out[e.GetIndex()-1])
	}
}

func sameResult(t tb, index uint64, got, want apply.Result) {
	t.Helper()
	if !sameError(got.Err, want.Err) || !sameMessage(got.Response, want.Response) {
		t.Fatalf("entry %d: got %v (%v), before %v (%v)", index, got.Response, got.Err, want.Response, want.Err)
	}
	if !slices.EqualFunc(got.Events, want.Events, sameEvent) {
		t.Fatalf("entry %d: got events %v, before %v", index, got.Events, want.Events)
	}
	if !slices.Equal(got.Leases, want.Leases) {
		t.Fatalf("entry %d: got lease changes %v, before %v", index, got.Leases, want.Leases)
	}
}

func sameError(a, b error) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error())
}

func sameMessage(a, b any) bool {
	am, aok := a.(proto.Message)
	bm, bok := b.(proto.Message)
	return aok == bok && (!aok || proto.Equal(am, bm))
}

func (r *replica) hash(rev int64) uint32 {
	r.t.Helper()
	h, _, _, err := r.m.KV.HashKV(rev)
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

// TestMachineAgainstModel applies random requests to a machine and to the model, and compares the
// outcome of each, with publishing, commits, compaction steps and crashes at random.
func TestMachineAgainstModel(t *testing.T) {
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		r := openReplica(t, filepath.Join(dir, fmt.Sprint(run)))
		defer func() { _ = r.m.Close() }()
		m, term := newModel(), uint64(1)
		for range rapid.IntRange(1, 80).Draw(t, "length") {
			switch rapid.SampledFrom([]string{"entry", "entry", "entry", "entry", "entry", "publish", "commit", "step", "crash", "term"}).Draw(t, "action") {
			case "entry":
				req := drawRequest(t, m, term)
				res := r.append(term, req)
				want, err := m.apply(req, term)
				compareOutcome(t, req, res, m, want, err)
			case "publish":
				compareState(t, r, m)
			case "commit":
				if err := r.m.Commit(rapid.Bool().Draw(t, "wait")); err != nil {
					t.Fatal(err)
				}
			case "step":
				r.m.CompactStep(rapid.IntRange(1, 3).Draw(t, "rows"))
			case "crash":
				r.m.Publish()
				before := r.hash(0)
				r.crash()
				r.m.Publish()
				if after := r.hash(0); after != before {
					t.Fatalf("hash %x after the crash, %x before", after, before)
				}
			case "term":
				term++
				r.append(term, nil)
			}
		}
		compareState(t, r, m)
	})
}

func compareOutcome(t *rapid.T, req *requestpb.InternalRaftRequest, res apply.Result, m *model, want proto.Message, err error) {
	t.Helper()
	if !errors.Is(res.Err, err) || (err == nil) != (res.Err == nil) {
		t.Fatalf("%v: got error %v, want %v", req, res.Err, err)
	}
	if err == nil && !sameMessage(res.Response, want) {
		t.Fatalf("%v:\n got %v\nwant %v", req, res.Response, want)
	}
	var events []modelEvent
	for _, e := range res.Events {
		events = append(events, modelEvent{main: e.Rev.Main, sub: e.Rev.Sub, key: string(e.Key), tombstone: e.Tombstone, lease: e.Lease})
	}
	if !slices.Equal(events, m.events) {
		t.Fatalf("%v: got events %v, want %v", req, events, m.events)
	}
}

// compareState publishes and compares what readers see.
func compareState(t *rapid.T, r *replica, m *model) {
	t.Helper()
	if rev, _ := r.m.Publish(); rev != m.rev || r.m.KV.CompactedRevision() != m.compacted {
		t.Fatalf("revision %d, compacted %d, want %d, %d", rev, r.m.KV.CompactedRevision(), m.rev, m.compacted)
	}
	if got, want := r.m.Position().Index, uint64(len(r.log)); got != want {
		t.Fatalf("position %d after %d entries", got, want)
	}
	for range 3 {
		req := drawRange(t, m)
		got, err := query.Response(r.m.KV, req)
		want, wantErr := m.read(req)
		if !errors.Is(err, wantErr) || err == nil && !proto.Equal(got, want) {
			t.Fatalf("%v:\n got %v (%v)\nwant %v (%v)", req, got, err, want, wantErr)
		}
	}
	compareReadTxn(t, r, m)
	leases := map[int64]int64{}
	for _, l := range r.m.Leases.List() {
		leases[int64(l.ID)] = l.TTL
		if l.Remaining != m.remaining[int64(l.ID)] {
			t.Fatalf("lease %d has %d s left, want %d", l.ID, l.Remaining, m.remaining[int64(l.ID)])
		}
		if got, want := r.m.Leases.Keys(l.ID), m.keysOf(int64(l.ID)); !slices.Equal(got, want) {
			t.Fatalf("keys of lease %d: %q, want %q", l.ID, got, want)
		}
	}
	if !maps.Equal(leases, m.leases) {
		t.Fatalf("leases %v, want %v", leases, m.leases)
	}
	alarms := map[[2]int64]bool{}
	for _, a := range r.m.Alarms.List() {
		alarms[[2]int64{int64(a.Member), int64(a.Type)}] = true
	}
	if !maps.Equal(alarms, m.alarms) {
		t.Fatalf("alarms %v, want %v", alarms, m.alarms)
	}
}

// compareReadTxn runs a transaction that only reads beside the log.
func compareReadTxn(t *rapid.T, r *replica, m *model) {
	t.Helper()
	req := &rpcpb.TxnRequest{Compare: []*rpcpb.Compare{drawCompare(t, m)}}
	for range 2 {
		op := &rpcpb.RequestOp{Request: &rpcpb.RequestOp_RequestRange{RequestRange: drawRange(t, m)}}
		req.Success, req.Failure = append(req.Success, op), append([]*rpcpb.RequestOp{op}, req.Failure...)
	}
	if !check.ReadOnly(req) {
		t.Fatalf("not read-only: %v", req)
	}
	got, err := apply.ReadTxn(contextOf(t), r.m.KV, req)
	want, wantErr := m.txn(req)
	if !errors.Is(err, wantErr) || (err == nil) != (wantErr == nil) || err == nil && !proto.Equal(got, want) {
		t.Fatalf("%v:\n got %v (%v)\nwant %v (%v)", req, got, err, want, wantErr)
	}
}

// TestReplicasAgree applies the same entries to two machines that publish, commit, compact and are
// waited for at different moments, and that crash at different places.
func TestReplicasAgree(t *testing.T) {
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		a := openReplica(t, filepath.Join(dir, fmt.Sprint(run, "a")))
		b := openReplica(t, filepath.Join(dir, fmt.Sprint(run, "b")))
		defer func() { _, _ = a.m.Close(), b.m.Close() }()
		m := newModel()
		for range rapid.IntRange(1, 60).Draw(t, "length") {
			req := drawRequest(t, m, 1)
			_, _ = m.apply(req, 1) // so that the draws go on meaningfully
			res := a.append(1, req)
			e := a.log[len(a.log)-1]
			b.log = a.log
			wanted := rapid.Bool().Draw(t, "wanted")
			_, resB := b.m.Apply(e, func(uint64) bool { return wanted })
			if wanted {
				sameResult(t, e.GetIndex(), resB, res)
			} else if !sameError(resB.Err, res.Err) || !slices.EqualFunc(resB.Events, res.Events, sameEvent) {
				t.Fatalf("entry %d: %v and %v, %v and %v", e.GetIndex(), res.Err, resB.Err, res.Events, resB.Events)
			}
			b.out = a.out
			disturb(t, a)
			disturb(t, b)
		}
		a.m.Publish()
		b.m.Publish()
		for rev := max(a.m.KV.CompactedRevision(), 1); rev <= a.m.KV.Revision(); rev++ {
			if ha, hb := a.hash(rev), b.hash(rev); ha != hb {
				t.Fatalf("hashes at revision %d: %x and %x", rev, ha, hb)
			}
		}
		la, lb := a.m.Leases.List(), b.m.Leases.List()
		byID := func(x, y lease.Lease) int { return int(min(1, max(-1, x.ID-y.ID))) }
		slices.SortFunc(la, byID)
		slices.SortFunc(lb, byID)
		if !slices.Equal(la, lb) {
			t.Fatalf("leases %v and %v", la, lb)
		}
	})
}

// disturb does to a replica what must make no difference.
func disturb(t *rapid.T, r *replica) {
	switch rapid.SampledFrom([]string{"", "", "", "publish", "commit", "step", "steps", "crash"}).Draw(t, "disturbance") {
	case "publish":
		r.m.Publish()
	case "commit":
		r.m.Publish()
		if err := r.m.Commit(true); err != nil {
			t.Fatal(err)
		}
	case "step":
		r.m.CompactStep(1)
	case "steps":
		for r.m.CompactStep(100) {
		}
	case "crash":
		r.crash()
	}
}
