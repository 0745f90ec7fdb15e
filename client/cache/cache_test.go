package cache_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/cache"
	"github.com/coordd/coordd/embed"
	"github.com/coordd/coordd/internal/testnode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) (context.Context, *embed.Node) {
	t.Helper()
	n := testnode.Start(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx, n
}

func open(t *testing.T, c *client.Client, prefix string, opts ...cache.Option) *cache.Cache {
	k := cache.New(c, prefix, opts...)
	t.Cleanup(k.Close)
	return k
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t testing.TB, ctx context.Context, c *client.Client, key, value string) int64 {
	t.Helper()
	r, err := c.Put(ctx, key, value)
	must(t, err)
	return r.Header.Revision
}

func text(kvs []*kvpb.KeyValue) string {
	var list []string
	for _, kv := range kvs {
		list = append(list, fmt.Sprintf("%s=%s@%d/%d/%d", kv.Key, kv.Value, kv.CreateRevision, kv.ModRevision, kv.Version))
	}
	return strings.Join(list, " ")
}

// Reads of the cache give what those of the cluster give, while keys change in every way.
func TestReadsLikeTheCluster(t *testing.T) {
	ctx, n := start(t)
	c := n.Client()
	put(t, ctx, c, "p/before", "1")
	k := open(t, c, "p/")
	r := rand.New(rand.NewPCG(1, 2))
	name := func() string { return fmt.Sprintf("p/%d", r.IntN(12)) }
	for range 150 {
		switch r.IntN(5) {
		case 0:
			_, err := c.Delete(ctx, name(), client.WithRange(name()))
			must(t, err)
		case 1:
			_, err := c.Txn(ctx).Then(client.OpPut("p/a", "x"), client.OpPut(name(), "y"), client.OpDelete("p/b")).Commit()
			must(t, err)
		case 2:
			put(t, ctx, c, "q", "beside")
		default:
			put(t, ctx, c, name(), fmt.Sprint(r.IntN(100)))
		}
		key := name()
		for _, keys := range [][]client.KeysOption{nil, {client.WithPrefix()}, {client.WithRange(name())}, {client.WithRange("p0")}} {
			opts := []client.GetOption{}
			for _, o := range keys {
				opts = append(opts, o)
			}
			got, err := k.Get(ctx, key, keys...)
			must(t, err)
			want, err := c.Get(ctx, key, opts...)
			must(t, err)
			if text(got.Pairs) != text(want.Kvs) || got.Revision != want.Header.Revision {
				t.Fatalf("%q: %s at %d, want %s at %d", key, text(got.Pairs), got.Revision, text(want.Kvs), want.Header.Revision)
			}
		}
	}
}

func TestPresent(t *testing.T) {
	ctx, n := start(t)
	k := open(t, n.Client(), "p/")
	must(t, k.WaitReady(ctx))
	rev := put(t, ctx, n.Client(), "p/a", "1")
	must(t, k.WaitForRevision(ctx, rev))
	r, err := k.Present(ctx, "p/", client.WithPrefix())
	if err != nil || len(r.Pairs) != 1 || r.Revision < rev {
		t.Errorf("%+v %v", r, err)
	}
	// A revision at which nothing below the prefix changed is reached, too.
	must(t, k.WaitForRevision(ctx, put(t, ctx, n.Client(), "elsewhere", "")))
	short, cancel := context.WithCancelCause(ctx)
	cancel(errs.ErrStopped)
	if err := k.WaitForRevision(short, 1<<40); !errors.Is(err, errs.ErrStopped) {
		t.Errorf("a revision in the future: %v", err)
	}
}

func TestOutside(t *testing.T) {
	ctx, n := start(t)
	k := open(t, n.Client(), "p/")
	for _, s := range []struct {
		key  string
		keys []client.KeysOption
	}{
		{"q", nil}, {"p", nil}, {"p", []client.KeysOption{client.WithPrefix()}}, {"p/", []client.KeysOption{client.WithFromKey()}},
		{"p/a", []client.KeysOption{client.WithRange("q")}}, {"a", []client.KeysOption{client.WithRange("p/b")}}, {"", []client.KeysOption{client.WithPrefix()}},
	} {
		if _, err := k.Get(ctx, s.key, s.keys...); !errors.Is(err, cache.ErrOutside) {
			t.Errorf("get %q: %v", s.key, err)
		}
		if _, err := k.Present(ctx, s.key, s.keys...); !errors.Is(err, cache.ErrOutside) {
			t.Errorf("present %q: %v", s.key, err)
		}
		if _, err := k.Watch(0, s.key, s.keys...); !errors.Is(err, cache.ErrOutside) {
			t.Errorf("watch %q: %v", s.key, err)
		}
	}
	all := open(t, n.Client(), "")
	put(t, ctx, n.Client(), "\xff", "")
	if r, err := all.Get(ctx, "", client.WithPrefix()); err != nil || len(r.Pairs) != 1 {
		t.Errorf("all: %+v %v", r, err)
	}
	if r, err := all.Get(ctx, "a", client.WithFromKey()); err != nil || len(r.Pairs) != 1 {
		t.Errorf("from: %+v %v", r, err)
	}
}

// Watchers, early and late, of all and of some, see what a watch of the cluster sees.
func TestWatchersLikeTheCluster(t *testing.T) {
	ctx, n := start(t)
	c := n.Client()
	first := put(t, ctx, c, "p/0", "before")
	k := open(t, c, "p/")
	must(t, k.WaitReady(ctx))
	spans := []struct {
		key  string
		keys []client.KeysOption
	}{{"p/", []client.KeysOption{client.WithPrefix()}}, {"p/3", nil}, {"p/2", []client.KeysOption{client.WithRange("p/5")}}}
	var wg sync.WaitGroup
	const writes = 200
	watch := func(rev int64) {
		for _, s := range spans {
			w, err := k.Watch(rev, s.key, s.keys...)
			must(t, err)
			opts := []client.WatchOption{client.WithRev(rev)}
			for _, o := range s.keys {
				opts = append(opts, o)
			}
			want := c.Watch(ctx, s.key, opts...)
			wg.Go(func() {
				defer want.Close()
				var got, right []string
				for done := false; !done; {
					ch, err := w.Next(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					for _, e := range ch.Events {
						got = append(got, fmt.Sprint(e.Type, text([]*kvpb.KeyValue{e.Kv}), ch.Revision))
						done = done || string(e.Kv.Value) == "last"
					}
				}
				for done := false; !done; {
					r, err := want.Next(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					for _, e := range r.Events {
						right = append(right, fmt.Sprint(e.Type, text([]*kvpb.KeyValue{e.Kv}), e.Kv.ModRevision))
						done = done || string(e.Kv.Value) == "last"
					}
				}
				if fmt.Sprint(got) != fmt.Sprint(right) {
					t.Errorf("%q from %d: %v\nwant %v", s.key, rev, got, right)
				}
			})
		}
	}
	watch(first + 1)
	for i := range writes {
		key := fmt.Sprintf("p/%d", i%7)
		if i%5 == 4 {
			_, err := c.Delete(ctx, key)
			must(t, err)
		} else {
			put(t, ctx, c, key, fmt.Sprint(i))
		}
		if i == writes/2 {
			watch(first + 20)
		}
	}
	_, err := c.Txn(ctx).Then(client.OpPut("p/3", "last"), client.OpPut("p/2", "last"), client.OpPut("p/6", "last")).Commit()
	must(t, err)
	wg.Wait()
}

func compacted(t *testing.T, what string, err error) {
	t.Helper()
	var c *client.CompactedError
	if !errors.Is(err, errs.ErrCompacted) || !errors.As(err, &c) {
		t.Errorf("%s: %v, want a CompactedError", what, err)
	}
}

// A watcher that asks for more than the history has, or that falls behind it, is told so; one that has nothing to see is not.
func TestHistory(t *testing.T) {
	ctx, n := start(t)
	c := n.Client()
	old := put(t, ctx, c, "p/a", "0")
	k := open(t, c, "p/", cache.History(3))
	must(t, k.WaitReady(ctx))
	w, err := k.Watch(old, "p/a")
	must(t, err)
	_, err = w.Next(ctx)
	compacted(t, "before the cache", err)
	slow, err := k.Watch(0, "p/a")
	must(t, err)
	idle, err := k.Watch(0, "p/z")
	must(t, err)
	var last int64
	for i := range 5 {
		last = put(t, ctx, c, "p/a", fmt.Sprint(i))
		must(t, k.WaitForRevision(ctx, last))
		short, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := idle.Next(short); !errors.Is(err, context.Canceled) {
			t.Errorf("idle: %v", err)
		}
	}
	_, err = slow.Next(ctx)
	compacted(t, "slow", err)
	w, err = k.Watch(last-2, "p/a")
	must(t, err)
	for i := range 3 {
		ch, err := w.Next(ctx)
		if err != nil || ch.Revision != last-2+int64(i) {
			t.Errorf("%+v %v", ch, err)
		}
	}
	put(t, ctx, c, "p/z", "now")
	if ch, err := idle.Next(ctx); err != nil || string(ch.Events[0].Kv.Value) != "now" {
		t.Errorf("%+v %v", ch, err)
	}
}

// cutter is a connection on which watches can be cut off.
type cutter struct {
	grpc.ClientConnInterface
	mu    sync.Mutex
	off   bool
	alive map[context.Context]context.CancelFunc
}

func (c *cutter) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if !strings.HasSuffix(method, "/Watch") {
		return c.ClientConnInterface.NewStream(ctx, d, method, opts...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off {
		return nil, status.Error(codes.Unavailable, "cut off")
	}
	ctx, cancel := context.WithCancel(ctx)
	c.alive[ctx] = cancel
	return c.ClientConnInterface.NewStream(ctx, d, method, opts...)
}

func (c *cutter) cut(off bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = off
	for ctx, cancel := range c.alive {
		cancel()
		delete(c.alive, ctx)
	}
}

// History that the cache had no chance to see is compacted: it reads anew, and watchers are told of the gap.
func TestGap(t *testing.T) {
	ctx, n := start(t)
	line := &cutter{ClientConnInterface: n.Conn(), alive: map[context.Context]context.CancelFunc{}}
	c, err := client.NewFromConn(line)
	must(t, err)
	defer c.Close()
	defer line.cut(true)
	k := open(t, c, "p/")
	must(t, k.WaitReady(ctx))
	w, err := k.Watch(0, "p/", client.WithPrefix())
	must(t, err)
	put(t, ctx, n.Client(), "p/a", "1")
	put(t, ctx, n.Client(), "p/b", "1")
	if _, err := w.Next(ctx); err != nil {
		t.Fatal(err)
	}
	_, err = w.Next(ctx)
	must(t, err)
	line.cut(true)
	_, err = n.Client().Delete(ctx, "p/a")
	must(t, err)
	last := put(t, ctx, n.Client(), "p/c", "1")
	_, err = n.Client().Compact(ctx, last)
	must(t, err)
	line.cut(false)
	r, err := k.Get(ctx, "p/", client.WithPrefix())
	must(t, err)
	if len(r.Pairs) != 2 || string(r.Pairs[1].Key) != "p/c" {
		t.Errorf("after the gap: %s", text(r.Pairs))
	}
	_, err = w.Next(ctx)
	compacted(t, "watcher across the gap", err)
	w, err = k.Watch(r.Revision+1, "p/", client.WithPrefix())
	must(t, err)
	put(t, ctx, n.Client(), "p/d", "1")
	if ch, err := w.Next(ctx); err != nil || string(ch.Events[0].Kv.Key) != "p/d" {
		t.Errorf("%+v %v", ch, err)
	}
}

func TestClose(t *testing.T) {
	ctx, n := start(t)
	k := cache.New(n.Client(), "p/")
	must(t, k.WaitReady(ctx))
	w, err := k.Watch(0, "p/a")
	must(t, err)
	done := make(chan error)
	go func() { _, err := w.Next(ctx); done <- err }()
	k.Close()
	k.Close()
	_, gone := k.Get(ctx, "p/a")
	for _, err := range []error{<-done, k.Err(), gone, k.WaitReady(ctx)} {
		if !errors.Is(err, cache.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	c, err := client.NewFromConn(n.Conn())
	must(t, err)
	k = cache.New(c, "p/")
	must(t, k.WaitReady(ctx))
	must(t, c.Close())
	if err := k.WaitForRevision(ctx, 1<<40); !errors.Is(err, client.ErrClosed) {
		t.Errorf("the client was closed: %v", err)
	}
	k.Close()
}

// Many read the configuration; the cluster sees one watch.
func Example() {
	n, stop := testnode.Run()
	defer stop()
	ctx := context.Background()
	k := cache.New(n.Client(), "config/")
	defer k.Close()
	if _, err := n.Client().Put(ctx, "config/color", "red"); err != nil {
		log.Fatal(err)
	}
	r, err := k.Get(ctx, "config/color")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", r.Pairs[0].Value)

	w, err := k.Watch(r.Revision+1, "config/", client.WithPrefix())
	if err != nil {
		log.Fatal(err)
	}
	if _, err := n.Client().Put(ctx, "config/color", "blue"); err != nil {
		log.Fatal(err)
	}
	c, err := w.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", c.Events[0].Kv.Value)
	// Output:
	// red
	// blue
}
