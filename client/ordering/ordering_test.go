package ordering_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/ordering"
	"github.com/coordd/coordd/embed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func node() (*embed.Node, func()) {
	dir, err := os.MkdirTemp("", "ordering")
	if err != nil {
		log.Fatal(err)
	}
	n, err := embed.Start(context.Background(), embed.NewTestConfig(dir))
	if err != nil {
		log.Fatal(err)
	}
	if err := n.WaitReady(context.Background()); err != nil {
		log.Fatal(err)
	}
	return n, func() { _, _ = n.Close(), os.RemoveAll(dir) }
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pair is two stores of their own behind one client: to it they are members of which one lags.
type pair struct {
	ahead, behind *embed.Node
	ctx           context.Context
}

func newPair(t *testing.T) *pair {
	p := new(pair)
	for _, n := range []**embed.Node{&p.ahead, &p.behind} {
		var stop func()
		*n, stop = node()
		t.Cleanup(stop)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	p.ctx = ctx
	p.put(t, p.ahead, 10)
	p.put(t, p.behind, 3)
	return p
}

// put writes to a member n times.
func (p *pair) put(t testing.TB, to *embed.Node, n int) {
	for i := range n {
		_, err := to.Client().Put(p.ctx, "k", fmt.Sprint(i))
		must(t, err)
	}
}

// client makes a client of the two.
func (p *pair) client(t testing.TB, endpoints []string, opts ...client.Option) *client.Client {
	c, err := client.New(endpoints, append(opts, client.WithDialer(func(ctx context.Context, _, address string) (net.Conn, error) {
		if strings.HasPrefix(address, "ahead") {
			return p.ahead.Dialer()(ctx, address)
		}
		return p.behind.Dialer()(ctx, address)
	}))...)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// attempts bounds how often a call is sent.
func attempts(n int) client.Option {
	policy := client.DefaultRetryPolicy()
	policy.MaxAttempts = n
	return client.WithRetry(policy)
}

// kinds are the reads; each gives the revision of its answer.
var kinds = map[string]func(context.Context, *client.Client) (int64, error){
	"get": func(ctx context.Context, c *client.Client) (int64, error) {
		r, err := c.Get(ctx, "k", client.WithSerializable())
		return r.GetHeader().GetRevision(), err
	},
	"txn": func(ctx context.Context, c *client.Client) (int64, error) {
		r, err := c.Txn(ctx).Then(client.OpTxn(nil, []client.Op{client.OpGet("k", client.WithSerializable())}, nil)).Commit()
		return r.GetHeader().GetRevision(), err
	},
	"scan": func(ctx context.Context, c *client.Client) (int64, error) {
		s, err := c.Scan(ctx, "", client.WithPrefix(), client.WithSerializable())
		if err != nil {
			return 0, err
		}
		return s.Revision(), nil
	},
}

func TestOrder(t *testing.T) {
	p := newPair(t)
	for name, read := range kinds {
		t.Run(name, func(t *testing.T) {
			// Without the option reads go back, so that this test shows something.
			plain, ordered := p.client(t, []string{"ahead", "behind"}), p.client(t, []string{"ahead", "behind"}, ordering.Option())
			back := func(c *client.Client) bool {
				last, went := int64(0), false
				for range 20 {
					rev, err := read(p.ctx, c)
					must(t, err)
					went, last = went || rev < last, rev
				}
				return went
			}
			if !back(plain) {
				t.Error("the members never differ")
			}
			if back(ordered) {
				t.Error("a read went back")
			}
		})
	}
}

func TestStale(t *testing.T) {
	p := newPair(t)
	for name, read := range kinds {
		c := p.client(t, []string{"ahead"}, ordering.Option(), attempts(3))
		put, err := c.Put(p.ctx, "k", "mine") // writes count as seen
		must(t, err)
		must(t, c.SetEndpoints("behind"))
		if _, err := read(p.ctx, c); !errors.Is(err, ordering.ErrStale) {
			t.Errorf("%s: %v, want ErrStale", name, err)
		}
		now, err := p.behind.Client().Get(p.ctx, "k")
		must(t, err)
		p.put(t, p.behind, int(put.Header.Revision-now.Header.Revision))
		if rev, err := read(p.ctx, c); err != nil || rev != put.Header.Revision {
			t.Errorf("%s: after the member caught up: %d %v, want %d", name, rev, err, put.Header.Revision)
		}
		p.put(t, p.ahead, 2)
	}
}

// Reads that run beside writes are not refused: one attempt is enough.
func TestBesideWrites(t *testing.T) {
	p := newPair(t)
	c := p.client(t, []string{"ahead"}, ordering.Option(), attempts(1))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if _, err := c.Put(p.ctx, "k", ""); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			last := int64(0)
			for range 50 {
				r, err := c.Get(p.ctx, "k", client.WithSerializable())
				if err != nil || r.Header.Revision < last {
					t.Errorf("%v after %d: %v", r, last, err)
					return
				}
				last = r.Header.Revision
			}
		})
	}
	wg.Wait()
}

// Reads that may be outdated, but never go back.
func Example() {
	n, stop := node()
	defer stop()
	c, err := client.New([]string{"node"}, ordering.Option(), client.WithDialer(func(ctx context.Context, _, address string) (net.Conn, error) {
		return n.Dialer()(ctx, address)
	}))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()
	put, err := c.Put(ctx, "k", "v")
	if err != nil {
		log.Fatal(err)
	}
	get, err := c.Get(ctx, "k", client.WithSerializable()) // at whichever member
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(get.Header.Revision >= put.Header.Revision)
	// Output: true
}
