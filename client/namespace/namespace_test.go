package namespace_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/lockpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/concurrency"
	"github.com/coordd/coordd/client/namespace"
	"github.com/coordd/coordd/internal/testnode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// both gives a client in a namespace, made in each of the two ways, and runs a test with it and one without.
func both(t *testing.T, prefix string, test func(t *testing.T, ctx context.Context, in, all *client.Client)) {
	for _, way := range []string{"conn", "option"} {
		t.Run(way, func(t *testing.T) {
			n := testnode.Start(t)
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			var in *client.Client
			var err error
			if way == "conn" {
				in, err = client.NewFromConn(namespace.Conn(n.Conn(), prefix))
			} else {
				dial := n.Dialer()
				in, err = client.New([]string{"node:1"}, namespace.Option(prefix), client.WithGRPC(grpc.WithContextDialer(dial)))
			}
			must(t, err)
			defer in.Close()
			test(t, ctx, in, n.Client())
		})
	}
}

func keys(t testing.TB, ctx context.Context, c *client.Client, key string, opts ...client.GetOption) string {
	t.Helper()
	r, err := c.Get(ctx, key, opts...)
	must(t, err)
	var list []string
	for _, kv := range r.Kvs {
		list = append(list, string(kv.Key)+"="+string(kv.Value))
	}
	return strings.Join(list, " ")
}

func want(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestNamespace(t *testing.T) {
	both(t, "app/", func(t *testing.T, ctx context.Context, in, all *client.Client) {
		for _, k := range []string{"app", "app.", "app0", "zoo", "k"} { // around it
			_, err := all.Put(ctx, k, "out")
			must(t, err)
		}
		w := in.Watch(ctx, "", client.WithPrefix(), client.WithPrevKV(), client.WithRev(1))
		defer w.Close()
		for _, k := range []string{"a", "b", "c"} {
			_, err := in.Put(ctx, k, k+k)
			must(t, err)
		}
		want(t, "stored", keys(t, ctx, all, "app/", client.WithPrefix()), "app/a=aa app/b=bb app/c=cc")
		want(t, "one", keys(t, ctx, in, "b"), "b=bb")
		want(t, "outside", keys(t, ctx, in, "zoo"), "")
		want(t, "all", keys(t, ctx, in, "", client.WithPrefix()), "a=aa b=bb c=cc")
		want(t, "from", keys(t, ctx, in, "b", client.WithFromKey()), "b=bb c=cc")
		want(t, "from the first", keys(t, ctx, in, "", client.WithFromKey()), "a=aa b=bb c=cc")
		want(t, "range", keys(t, ctx, in, "a", client.WithRange("c")), "a=aa b=bb")
		scan, err := in.Scan(ctx, "", client.WithPrefix())
		must(t, err)
		scanned := ""
		for kv, err := range scan.All() {
			must(t, err)
			scanned += string(kv.Key)
		}
		want(t, "scan", scanned, "abc")

		put, err := in.Put(ctx, "a", "2", client.WithPrevKV())
		must(t, err)
		want(t, "before put", string(put.PrevKv.Key), "a")
		del, err := in.Delete(ctx, "b", client.WithFromKey(), client.WithPrevKV())
		must(t, err)
		want(t, "deleted", fmt.Sprint(del.Deleted, string(del.PrevKvs[1].Key)), "2c")
		want(t, "rest", keys(t, ctx, all, "", client.WithPrefix()), "app=out app.=out app/a=2 app0=out k=out zoo=out")

		var seen []string
		for len(seen) < 6 {
			r, err := w.Next(ctx)
			must(t, err)
			for _, e := range r.Events {
				seen = append(seen, string(e.Kv.Key)+string(e.PrevKv.GetKey()))
			}
		}
		want(t, "watch", fmt.Sprint(seen), "[a b c aa bb cc]")
		_, err = in.Put(ctx, "", "x")
		if !errors.Is(err, errs.ErrEmptyKey) {
			t.Errorf("empty key: %v", err)
		}
	})
}

func TestTransactions(t *testing.T) {
	both(t, "app/", func(t *testing.T, ctx context.Context, in, all *client.Client) {
		_, err := all.Put(ctx, "a", "out")
		must(t, err)
		_, err = in.Put(ctx, "z", "0")
		must(t, err)
		r, err := in.Txn(ctx).If(client.KeyMissing("a"), client.CreateRevision("a", client.WithRange("y")).Equal(0),
			client.Value("b", client.WithFromKey()).Equal("0")).Then(
			client.OpPut("a", "1"), client.OpGet("", client.WithPrefix()),
			client.OpTxn([]client.Cmp{client.KeyMissing("a")}, []client.Op{client.OpPut("b", "2"), client.OpGet("b"),
				client.OpDelete("y", client.WithFromKey(), client.WithPrevKV())}, nil),
		).Commit()
		must(t, err)
		if !r.Succeeded || !r.Responses[2].GetResponseTxn().GetSucceeded() {
			t.Fatalf("conditions saw keys outside: %v", r)
		}
		inner := r.Responses[2].GetResponseTxn().Responses
		want(t, "get", string(r.Responses[1].GetResponseRange().Kvs[1].Key), "z")
		want(t, "inner get", string(inner[1].GetResponseRange().Kvs[0].Key), "b")
		want(t, "inner delete", string(inner[2].GetResponseDeleteRange().PrevKvs[0].Key), "z")
		want(t, "rest", keys(t, ctx, all, "", client.WithPrefix()), "a=out app/a=1 app/b=2")
	})
}

func TestLeases(t *testing.T) {
	both(t, "app/", func(t *testing.T, ctx context.Context, in, all *client.Client) {
		l, err := in.Grant(ctx, 60)
		must(t, err)
		id := client.LeaseID(l.ID)
		for _, c := range []*client.Client{in, all} {
			_, err := c.Put(ctx, "k", "v", client.WithLease(id))
			must(t, err)
		}
		r, err := in.TimeToLive(ctx, id, client.WithAttachedKeys())
		must(t, err)
		want(t, "keys of the lease", fmt.Sprintf("%s", r.Keys), "[k]")

		// What is built on a client stays inside, too.
		s, err := concurrency.NewSession(ctx, in)
		must(t, err)
		defer s.Close()
		m := concurrency.NewMutex(s, "m")
		must(t, m.Lock(ctx))
		want(t, "lock", keys(t, ctx, all, "app/m", client.WithPrefix()), "app/"+m.Key()+"=")
		must(t, m.Unlock(ctx))
	})
}

func TestRefused(t *testing.T) {
	n := testnode.Start(t)
	_, err := services.NewLockClient(namespace.Conn(n.Conn(), "app/")).Lock(context.Background(), &lockpb.LockRequest{Name: []byte("m")})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("lock outside of the namespace: %v", err)
	}
}

// Whatever is done in a namespace, it is as if it were done in a store of its own; and what is around it does not change. The
// prefixes include ones that end with the greatest byte and one in another.
func TestLikeOwnStore(t *testing.T) {
	n := testnode.Start(t)
	own := testnode.Start(t)
	ctx := context.Background()
	all := n.Client()
	around := map[string]string{}
	for _, k := range []string{"a", "a\xff", "b", "p", "p.", "p0", "o\xff\xff", "q", "\xfe", "\x00"} {
		_, err := all.Put(ctx, k, "out")
		must(t, err)
		around[k] = "out"
	}
	rapid.Check(t, func(rt *rapid.T) {
		prefix := rapid.SampledFrom([]string{"p/", "p\xff", "\xff\xff", "p/q/"}).Draw(rt, "prefix")
		conn := namespace.Conn(n.Conn(), prefix)
		if prefix == "p/q/" {
			conn = namespace.Conn(namespace.Conn(n.Conn(), "p/"), "q/")
		}
		in, err := client.NewFromConn(conn)
		must(t, err)
		defer in.Close()
		defer func() {
			_, err := in.Delete(ctx, "", client.WithPrefix())
			must(t, err)
			_, err = own.Client().Delete(ctx, "", client.WithPrefix())
			must(t, err)
			r, err := all.Get(ctx, "", client.WithPrefix())
			must(t, err)
			rest := map[string]string{}
			for _, kv := range r.Kvs {
				rest[string(kv.Key)] = string(kv.Value)
			}
			if !maps.Equal(rest, around) {
				rt.Fatalf("left outside: %q", slices.Sorted(maps.Keys(rest)))
			}
		}()
		key := rapid.SampledFrom([]string{"a", "b", "b\xff", "\x00", "\xff", "\xff\xff", "p/"})
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			k, e := key.Draw(rt, "key"), key.Draw(rt, "end")
			span := rapid.SampledFrom([]client.KeysOption{client.WithPrefix(), client.WithFromKey(), client.WithRange(e)}).Draw(rt, "span")
			which := rapid.IntRange(0, 2).Draw(rt, "what to do")
			got := make([]string, 2)
			for i, c := range []*client.Client{in, own.Client()} {
				switch which {
				case 0:
					_, err := c.Put(ctx, k, e)
					must(t, err)
				case 1:
					r, err := c.Delete(ctx, k, span)
					must(t, err)
					got[i] = fmt.Sprint(r.Deleted)
				}
				got[i] += keys(t, ctx, c, k, span) + "|" + keys(t, ctx, c, "", client.WithPrefix())
			}
			if got[0] != got[1] {
				rt.Fatalf("in the namespace %q, in a store of its own %q", got[0], got[1])
			}
		}
	})
}

// Two programs use the same key in one cluster.
func Example() {
	n, stop := testnode.Run()
	defer stop()
	ctx := context.Background()
	for _, app := range []string{"red/", "blue/"} {
		c, err := client.NewFromConn(namespace.Conn(n.Conn(), app)) // or client.New(endpoints, namespace.Option(app))
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Put(ctx, "color", app); err != nil {
			log.Fatal(err)
		}
	}
	r, err := n.Client().Get(ctx, "", client.WithPrefix())
	if err != nil {
		log.Fatal(err)
	}
	for _, kv := range r.Kvs {
		fmt.Printf("%s = %s\n", kv.Key, kv.Value)
	}
	// Output:
	// blue/color = blue/
	// red/color = red/
}
