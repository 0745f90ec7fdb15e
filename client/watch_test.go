package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"
	"pgregory.net/rapid"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/errs/grpcerr"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
	"google.golang.org/grpc"
)

// watched makes a network whose members share a history.
func watched(t testing.TB, names ...string) (*network, *history) {
	n, h := newNetwork(t, names...), newHistory()
	for _, name := range names {
		n.at(name).onWatch = h.watch
	}
	return n, h
}

// next takes a response, which must come.
func next(t testing.TB, w *client.Watcher) *client.WatchResponse {
	t.Helper()
	r, err := w.Next(deadline(t, 30*time.Second))
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	return r
}

// began waits until the server has the watch.
func began(t testing.TB, w *client.Watcher) {
	t.Helper()
	if r := next(t, w); !r.Created {
		t.Fatalf("got %+v, want the created notice", r)
	}
}

func TestWatchBasics(t *testing.T) {
	n, h := watched(t, "a")
	c := n.client([]string{"a"})
	ctx := deadline(t, 10*time.Second)
	h.put("0", "k")
	one := c.Watch(ctx, "k", client.WithCreatedNotify())
	all := c.Watch(ctx, "", client.WithPrefix(), client.WithRev(2))
	began(t, one)
	h.put("1", "k", "l")
	h.put("2", "m")
	h.put("3", "k")
	var got []string
	for len(got) < 2 {
		for _, e := range next(t, one).Events {
			got = append(got, string(e.Kv.Key)+string(e.Kv.Value))
		}
	}
	for len(got) < 7 {
		for _, e := range next(t, all).Events {
			got = append(got, string(e.Kv.Key)+string(e.Kv.Value))
		}
	}
	if s := strings.Join(got, " "); s != "k1 k3 k0 k1 l1 m2 k3" {
		t.Fatalf("saw %s", s)
	}
	if h.streams != 1 {
		t.Fatalf("%d streams for two watchers", h.streams)
	}
	one.Close()
	if _, err := one.Next(ctx); !errors.Is(err, client.ErrClosed) {
		t.Fatalf("after Close: %v", err)
	}
}

// Whatever breaks, every watcher sees every event once and in order, and the events of a revision together.
func TestWatchResumes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n, h := watched(t, "a", "b", "c")
		defer func() {
			for _, name := range []string{"a", "b", "c"} {
				n.at(name).cut()
			}
		}()
		h.batch = rapid.IntRange(0, 3).Draw(rt, "batch")
		buffer := rapid.Int64Range(1, 400).Draw(rt, "buffer")
		c := n.client([]string{"a", "b", "c"}, client.WithWatchBufferBytes(buffer))
		defer c.Close()
		watchers := rapid.IntRange(1, 5).Draw(rt, "watchers")
		steps := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 60).Draw(rt, "steps")
		ctx := deadline(t, 30*time.Second)
		var wg sync.WaitGroup
		last := atomic.Int64{}
		finish := make(chan struct{})
		failures := make(chan error, watchers)
		for range watchers {
			w := c.Watch(ctx, "k", client.WithPrefix(), client.WithRev(2))
			wg.Go(func() { failures <- follow(ctx, w, &last, finish) })
		}
		for i, step := range steps {
			switch step {
			case 0:
				n.at("a").cut()
			case 1:
				n.at("b").cut()
			case 2:
				n.at("c").cut()
			default:
				keys := make([]string, step-2)
				for j := range keys {
					keys[j] = fmt.Sprintf("k%d", j)
				}
				last.Store(h.put(fmt.Sprint(i), keys...))
			}
		}
		last.Store(h.put("end", "k"))
		close(finish)
		wg.Wait()
		close(failures)
		for err := range failures {
			if err != nil {
				rt.Fatal(err)
			}
		}
	})
}

// follow reads a watcher until it has seen the last revision, and checks what it sees: the history has events k0, k1, ...
// at each revision, so that a part missing or twice shows.
func follow(ctx context.Context, w *client.Watcher, last *atomic.Int64, finish <-chan struct{}) error {
	rev, part := int64(1), 0
	for {
		select {
		case <-finish:
			if rev == last.Load() {
				return nil
			}
		default:
		}
		r, err := w.Next(ctx)
		if err != nil {
			return err
		}
		for i, e := range r.Events {
			key := string(e.Kv.Key)
			switch {
			case e.Kv.ModRevision == rev+1 && (key == "k0" || key == "k"):
				rev, part = rev+1, 1
			case e.Kv.ModRevision == rev && i > 0 && key == fmt.Sprintf("k%d", part):
				part++
			default:
				return fmt.Errorf("after revision %d part %d came %s at %d (place %d)", rev, part, key, e.Kv.ModRevision, i)
			}
		}
		if r.Revision != rev {
			return fmt.Errorf("revision %d of a response that ends at %d", r.Revision, rev)
		}
		if string(r.Events[len(r.Events)-1].Kv.Value) == "end" {
			return nil
		}
	}
}

// A reader who does not read holds no more than its buffer, delays nobody, and misses nothing.
func TestSlowWatcher(t *testing.T) {
	n, h := watched(t, "a")
	c := n.client([]string{"a"}, client.WithWatchBufferBytes(1000))
	ctx := deadline(t, 20*time.Second)
	slow := c.Watch(ctx, "k", client.WithCreatedNotify())
	quick := c.Watch(ctx, "k", client.WithCreatedNotify())
	began(t, slow)
	began(t, quick)
	given := func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.cancelled) > 0
	}
	count := 0
	for count < 200 || !given() { // until the slow watch was given back to the server
		count++
		h.put(strings.Repeat("x", 100), "k")
		if r := next(t, quick); r.Revision != int64(count+1) {
			t.Fatalf("quick watcher at %d, want %d", r.Revision, count+1)
		}
		if ctx.Err() != nil {
			t.Fatal("the slow watch was not given back to the server")
		}
	}
	seen := 0
	for seen < count {
		r := next(t, slow)
		for _, e := range r.Events {
			seen++
			if e.Kv.ModRevision != int64(seen+1) {
				t.Fatalf("slow watcher got revision %d as event %d", e.Kv.ModRevision, seen)
			}
		}
	}
}

func TestWatchCompacted(t *testing.T) {
	n, h := watched(t, "a")
	for range 10 {
		h.put("v", "k")
	}
	h.compact(7)
	c := n.client([]string{"a"})
	ctx := deadline(t, 10*time.Second)
	_, err := c.Watch(ctx, "k", client.WithRev(3)).Next(ctx)
	var ce *client.CompactedError
	if !errors.Is(err, errs.ErrCompacted) || !errors.As(err, &ce) || ce.CompactRevision != 7 || ce.NextRevision != 3 {
		t.Fatalf("got %v", err)
	}
	if r := next(t, c.Watch(ctx, "k", client.WithRev(7))); r.Events[0].Kv.ModRevision != 7 {
		t.Fatalf("from the compact revision: %+v", r)
	}
}

// A refused watch ends alone and with the reason; the answers to creates before and after it are not mixed up.
func TestWatchRefused(t *testing.T) {
	n, h := watched(t, "a")
	h.refuse = func(r *rpcpb.WatchCreateRequest) string {
		switch string(r.Key) {
		case "secret":
			return "rpc error: code = PermissionDenied desc = etcdserver: permission denied"
		case "odd":
			return "mvcc: watcher range is empty"
		}
		return ""
	}
	c := n.client([]string{"a"})
	ctx := deadline(t, 10*time.Second)
	var good []*client.Watcher
	var bad, odd []*client.Watcher
	for i := range 20 {
		good = append(good, c.Watch(ctx, fmt.Sprintf("k%d", i), client.WithCreatedNotify()))
		bad = append(bad, c.Watch(ctx, "secret"))
		odd = append(odd, c.Watch(ctx, "odd"))
	}
	for i, w := range good {
		began(t, w)
		h.put("v", fmt.Sprintf("k%d", i))
		if r := next(t, w); string(r.Events[0].Kv.Key) != fmt.Sprintf("k%d", i) {
			t.Fatalf("watcher %d got %s", i, r.Events[0].Kv.Key)
		}
		if _, err := bad[i].Next(ctx); !errors.Is(err, errs.ErrPermissionDenied) {
			t.Fatalf("refused watch: %v", err)
		}
		if _, err := odd[i].Next(ctx); err == nil || !strings.Contains(err.Error(), "watcher range is empty") {
			t.Fatalf("refused watch: %v", err)
		}
	}
}

// A watcher of quiet keys learns how far the store has come, and so outlives compaction.
func TestQuietWatchOutlivesCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, h := watched(t, "a")
		c := n.client([]string{"a"})
		w := c.Watch(context.Background(), "quiet", client.WithCreatedNotify())
		began(t, w)
		for range 100 {
			h.put("v", "busy")
		}
		<-time.After(2 * time.Minute)
		if got := w.Revision(); got != 101 {
			t.Fatalf("watcher has come to %d, the store to 101", got)
		}
		h.compact(101)
		n.at("a").cut()
		synctest.Wait()
		rev := h.put("v", "quiet")
		if r := next(t, w); r.Revision != rev {
			t.Fatalf("got %+v", r)
		}
		w.RequestProgress()
		if r := next(t, w); !r.IsProgress() || r.Revision != rev {
			t.Fatalf("progress: %+v", r)
		}
	})
}

// A watch leaves a member that hangs: one that never answers the create, and one that freezes later and is found out by
// the pings.
func TestWatchLeavesFrozenMember(t *testing.T) {
	for _, answered := range []bool{false, true} {
		t.Run(fmt.Sprint("answered=", answered), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, h := watched(t, "a", "b")
				c := n.client([]string{"a", "b"})
				synctest.Wait()
				if !answered {
					n.at("a").freeze()
				}
				w := c.Watch(context.Background(), "k", client.WithCreatedNotify())
				if answered {
					began(t, w)
					n.at("a").freeze()
				} else {
					began(t, w)
				}
				<-time.After(15 * time.Second)
				h.put("v", "k")
				start := time.Now()
				if r := next(t, w); len(r.Events) != 1 {
					t.Fatalf("got %+v", r)
				}
				if took := time.Since(start); took > 0 {
					t.Fatalf("the event took %v after the member was 15 s frozen", took)
				}
			})
		})
	}
}

// A watch leaves a member without leader, and carries the mark that makes the member say so.
func TestWatchLeavesMemberWithoutLeader(t *testing.T) {
	n, h := watched(t, "a", "b")
	var asked atomic.Int64
	n.at("a").onStatus = func(context.Context, *rpcpb.StatusRequest) (*rpcpb.StatusResponse, error) {
		return new(rpcpb.StatusResponse), nil
	}
	n.at("a").onWatch = func(g grpc.BidiStreamingServer[rpcpb.WatchRequest, rpcpb.WatchResponse]) error {
		if md, _ := metadata.FromIncomingContext(g.Context()); len(md.Get("hasleader")) == 1 {
			asked.Add(1)
		}
		return grpcerr.ToStatus(errs.ErrNoLeader)
	}
	c := n.client([]string{"a", "b"})
	for range 3 {
		w := c.Watch(deadline(t, 10*time.Second), "k", client.WithCreatedNotify())
		began(t, w)
		h.put("v", "k")
		next(t, w)
		w.Close()
	}
	if asked.Load() > 1 {
		t.Fatalf("the member without leader was asked %d times", asked.Load())
	}
}

// The end of the watcher's context ends it and gives the watch back; that of Next leaves it.
func TestWatchContexts(t *testing.T) {
	n, h := watched(t, "a")
	c := n.client([]string{"a"})
	ctx, cancel := context.WithCancel(context.Background())
	w := c.Watch(ctx, "k", client.WithCreatedNotify())
	other := c.Watch(deadline(t, 10*time.Second), "k", client.WithCreatedNotify())
	began(t, w)
	began(t, other)
	gone, stop := context.WithCancel(context.Background())
	stop()
	if _, err := w.Next(gone); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	h.put("v", "k")
	next(t, w)
	next(t, other)
	cancel()
	if _, err := w.Next(context.Background()); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	h.put("w", "k")
	next(t, other) // the server handles requests in order, but the cancel may still be on its way
	h.put("x", "k")
	next(t, other)
}

// An expired token is renewed for the watch too.
func TestWatchRenewsToken(t *testing.T) {
	n, h := watched(t, "a")
	var logins atomic.Int64
	n.at("a").onAuthenticate = func(context.Context, *rpcpb.AuthenticateRequest) (*rpcpb.AuthenticateResponse, error) {
		return &rpcpb.AuthenticateResponse{Token: fmt.Sprint("t", logins.Add(1))}, nil
	}
	h.refuse = func(*rpcpb.WatchCreateRequest) string {
		if logins.Load() < 2 {
			return "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token"
		}
		return ""
	}
	c := n.client([]string{"a"}, client.WithCredentials("u", "p"))
	began(t, c.Watch(deadline(t, 10*time.Second), "k", client.WithCreatedNotify()))
	if logins.Load() != 2 {
		t.Fatalf("logged in %d times", logins.Load())
	}
}

// A server without the service ends the watch instead of being asked for ever.
func TestWatchUnimplemented(t *testing.T) {
	n := newNetwork(t, "a")
	ctx := deadline(t, 10*time.Second)
	if _, err := n.client([]string{"a"}).Watch(ctx, "k").Next(ctx); err == nil || ctx.Err() != nil {
		t.Fatalf("got %v", err)
	}
}
