package leasing_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/leasing"
)

var (
	seedFlag = flag.Uint64("leasing.seed", 0, "seed of the random tests; 0 draws one")
	runsFlag = flag.Int("leasing.runs", 3, "how many histories are checked for linearizability")
)

// seed gives the seed of a random test, and prints it.
func seed(t *testing.T) uint64 {
	s := *seedFlag
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-leasing.seed %d (the order of goroutines is not in it)", s)
	return s
}

// names are the keys of the histories.
var names = [...]string{"a", "b", "c"}

// state is the values of the keys, "" for none.
type state [len(names)]string

// request is an operation on the state.
type request struct {
	what   string // get, all, put, delete, clear or txn
	k, k2  int
	expect string // txn: if k is this, then k2 becomes value, and else both are read
	value  string
}

// answer is what came of it: the values read or replaced, separated by commas; unknown tells that the outcome is not known.
type answer struct {
	text    string
	unknown bool
}

// step gives the answer that a request has in a state, and the state after it.
func step(s state, r request) (string, state) {
	before := s
	switch r.what {
	case "get":
		return s[r.k], s
	case "all":
		return strings.Join(s[:], ","), s
	case "put":
		s[r.k] = r.value
		return before[r.k], s
	case "delete":
		s[r.k] = ""
		return before[r.k], s
	case "clear":
		return strings.Join(before[:], ","), state{}
	}
	if s[r.k] == r.expect {
		s[r.k2] = r.value
		return "yes", s
	}
	return "no," + s[r.k] + "," + s[r.k2], s
}

// model is the keys as one party alone would see them.
func model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(s, in, out any) (bool, any) {
			want, next := step(s.(state), in.(request))
			got := out.(answer)
			return got.unknown || got.text == want, next
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v → %+v", in, out) },
	}
}

// store is what a client and a KV have in common.
type store struct {
	get func(ctx context.Context, key string, opts ...client.GetOption) (*rpcpb.RangeResponse, error)
	put func(ctx context.Context, key, value string, opts ...client.PutOption) (*rpcpb.PutResponse, error)
	del func(ctx context.Context, key string, opts ...client.DeleteOption) (*rpcpb.DeleteRangeResponse, error)
	txn func(ctx context.Context, conditions []client.Cmp, then, otherwise []client.Op) (*rpcpb.TxnResponse, error)
}

// of gives the store of a KV.
func of(kv *leasing.KV) store {
	return store{kv.Get, kv.Put, kv.Delete, func(ctx context.Context, conditions []client.Cmp, then, otherwise []client.Op) (*rpcpb.TxnResponse, error) {
		return kv.Txn(ctx).If(conditions...).Then(then...).Else(otherwise...).Commit()
	}}
}

// values gives the values of the keys among pairs.
func values(keys []string, kvs ...*kvpb.KeyValue) string {
	list := make([]string, len(keys))
	for _, kv := range kvs {
		if i := slices.Index(keys, string(kv.GetKey())); i >= 0 {
			list[i] = string(kv.Value)
		}
	}
	return strings.Join(list, ",")
}

// do does a request.
func (s store) do(ctx context.Context, r request) (string, error) {
	all := client.WithRange("d")
	switch r.what {
	case "get":
		resp, err := s.get(ctx, names[r.k])
		return values(names[r.k:r.k+1], resp.GetKvs()...), err
	case "all":
		resp, err := s.get(ctx, "a", all)
		return values(names[:], resp.GetKvs()...), err
	case "put":
		resp, err := s.put(ctx, names[r.k], r.value, client.WithPrevKV())
		return values(names[r.k:r.k+1], resp.GetPrevKv()), err
	case "delete":
		resp, err := s.del(ctx, names[r.k], client.WithPrevKV())
		return values(names[r.k:r.k+1], resp.GetPrevKvs()...), err
	case "clear":
		resp, err := s.del(ctx, "a", all, client.WithPrevKV())
		return values(names[:], resp.GetPrevKvs()...), err
	}
	condition := client.Value(names[r.k]).Equal(r.expect)
	if r.expect == "" {
		condition = client.KeyMissing(names[r.k])
	}
	resp, err := s.txn(ctx, []client.Cmp{condition}, []client.Op{client.OpPut(names[r.k2], r.value)},
		[]client.Op{client.OpGet(names[r.k]), client.OpGet(names[r.k2])})
	if err != nil || resp.Succeeded {
		return "yes", err
	}
	return "no," + values(names[r.k:r.k+1], resp.Responses[0].GetResponseRange().Kvs...) +
		"," + values(names[r.k2:r.k2+1], resp.Responses[1].GetResponseRange().Kvs...), nil
}

// history is what was done, in the order of a clock of its own, since virtual time stands still.
type history struct {
	clock atomic.Int64
	mu    sync.Mutex
	list  []porcupine.Operation
}

// do does a request and writes it down. One that certainly had no effect is left out.
func (h *history) do(t *testing.T, ctx context.Context, id int, s store, r request) string {
	op := porcupine.Operation{ClientId: id, Input: r, Call: h.clock.Add(1)}
	text, err := s.do(ctx, r)
	op.Output, op.Return = answer{text: text}, h.clock.Add(1)
	switch {
	case errors.Is(err, client.ErrUnknownOutcome):
		op.Output, op.Return = answer{unknown: true}, math.MaxInt64
	case errors.Is(err, leasing.ErrClosed), errors.Is(err, leasing.ErrHeld), errors.Is(err, context.DeadlineExceeded):
		return ""
	case err != nil:
		t.Errorf("%+v: %v", r, err)
		return ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, op)
	return text
}

// player is one of those whose operations make the history.
type player struct {
	id  int
	rnd *rand.Rand
	s   func() store
	// writes: it is not the plain client, which may write only what nobody holds.
	writes bool
	seen   [len(names)]string
}

// next draws a request.
func (p *player) next(n int) request {
	r := request{what: "get", k: p.rnd.IntN(len(names)), k2: p.rnd.IntN(len(names)), value: fmt.Sprintf("%d.%d", p.id, n)}
	r.expect = p.seen[r.k]
	draw := p.rnd.IntN(100)
	switch {
	case draw < 60:
	case draw < 68:
		r.what = "all"
	case !p.writes:
	case draw < 80:
		r.what = "put"
	case draw < 85:
		r.what = "delete"
	case draw < 87:
		r.what = "clear"
	default:
		r.what = "txn"
	}
	return r
}

// play does so many operations, with pauses.
func (p *player) play(t *testing.T, ctx context.Context, h *history, n int) {
	for i := range n {
		r := p.next(i)
		within, cancel := context.WithTimeout(ctx, time.Duration(1+p.rnd.IntN(20))*time.Second)
		text := h.do(t, within, p.id, p.s(), r)
		cancel()
		if r.what == "get" {
			p.seen[r.k] = text
		}
		if p.rnd.IntN(3) == 0 {
			elapse(time.Duration(p.rnd.IntN(800)) * time.Millisecond)
		}
	}
}

// Parties, of which some lose replies, are cut off, closed and made anew, and a plain client that reads: there is one order of all they
// have done that explains what each has seen.
func TestLinearizable(t *testing.T) {
	s := seed(t)
	for i := range *runsFlag {
		t.Run(fmt.Sprint(i), func(t *testing.T) { linearizable(t, s+uint64(i)) })
	}
}

func linearizable(t *testing.T, seed uint64) {
	h, asked := new(history), 0
	run(t, func(w *world) {
		var players []*player
		var conns []*conn
		var kvs []*atomic.Pointer[leasing.KV]
		for i := range 3 {
			kv, cc := w.party(leasing.WithTTL(4*time.Second), leasing.WithRest(200*time.Millisecond), leasing.WithMaxKeys(2+i))
			current := new(atomic.Pointer[leasing.KV])
			current.Store(kv)
			conns, kvs = append(conns, cc), append(kvs, current)
			cc.bad(rand.New(rand.NewPCG(seed, uint64(100+i))))
			for range 2 {
				players = append(players, &player{s: func() store { return of(current.Load()) }, writes: true})
			}
		}
		plain := store{get: w.plain.Get}
		players = append(players, &player{s: func() store { return plain }})
		var wg sync.WaitGroup
		for i, p := range players {
			p.id, p.rnd = i, rand.New(rand.NewPCG(seed, uint64(i)))
			wg.Go(func() { p.play(t, w.ctx, h, 60) })
		}
		over, stop := context.WithCancel(w.ctx)
		var faults sync.WaitGroup
		faults.Go(func() { w.trouble(over, rand.New(rand.NewPCG(seed, 200)), conns, kvs) })
		wg.Wait()
		stop()
		faults.Wait()
		for i := range names { // what is true at the end
			h.do(t, w.ctx, 99, plain, request{what: "get", k: i})
		}
		for _, cc := range conns {
			asked += cc.counted(get)
		}
	})
	reads := 0
	for _, op := range h.list {
		if what := op.Input.(request).what; what == "get" && op.ClientId < 6 {
			reads++
		}
	}
	result, info := porcupine.CheckOperationsVerbose(model(), h.list, time.Minute)
	switch result {
	case porcupine.Illegal:
		path := filepath.Join(os.TempDir(), fmt.Sprintf("leasing-%d.html", seed))
		if err := porcupine.VisualizePath(model(), info, path); err != nil {
			path = err.Error()
		}
		t.Fatalf("no order explains the %d operations; see %s", len(h.list), path)
	case porcupine.Unknown:
		t.Logf("porcupine did not come to an end over %d operations in a minute", len(h.list))
	case porcupine.Ok:
		t.Logf("%d operations, of which %d have an unknown outcome; %d reads of one key asked the server at most %d times",
			len(h.list), unknown(h.list), reads, asked)
	}
}

// unknown counts the operations with an unknown outcome.
func unknown(list []porcupine.Operation) (n int) {
	for _, op := range list {
		if op.Output.(answer).unknown {
			n++
		}
	}
	return n
}

// trouble cuts parties off, ends them and makes them anew, and has late requests arrive, until ctx ends.
func (w *world) trouble(ctx context.Context, rnd *rand.Rand, conns []*conn, kvs []*atomic.Pointer[leasing.KV]) {
	pause := func(d time.Duration) {
		select {
		case <-time.After(time.Duration(rnd.Int64N(int64(d)))):
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		pause(time.Second)
		i := rnd.IntN(len(conns))
		switch rnd.IntN(4) {
		case 0, 1:
			conns[i].arrive()
		case 2:
			conns[i].cut()
			pause(10 * time.Second)
			conns[i].heal()
		case 3:
			old := kvs[i].Load()
			c, err := client.NewFromConn(conns[i])
			must(w, err)
			kv, err := leasing.New(w.ctx, c, prefix, leasing.WithTTL(4*time.Second), leasing.WithRest(200*time.Millisecond))
			must(w, err)
			kvs[i].Store(kv)
			old.Close()
			w.Cleanup(func() { kv.Close(); _ = c.Close() })
		}
	}
	for _, c := range conns {
		c.heal()
		c.arrive()
	}
}
