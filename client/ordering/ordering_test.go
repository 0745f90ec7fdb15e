package ordering_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/ordering"
	"github.com/coordd/coordd/embed"
	"github.com/coordd/coordd/internal/testnode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pair is two stores of their own behind one client: to it they are members of which one lags, for as long as the test wants.
type pair struct {
	ahead, behind *embed.Node
	ctx           context.Context
}

func newPair(t *testing.T) *pair {
	p := &pair{ahead: testnode.Start(t), behind: testnode.Start(t)}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
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

// client makes a client of the two, which asks the one ahead.
func (p *pair) client(t testing.TB, opts ...client.Option) *client.Client {
	c, err := client.New([]string{"ahead"}, append(opts, client.WithDialer(func(ctx context.Context, _, address string) (net.Conn, error) {
		if strings.HasPrefix(address, "ahead") {
			return p.ahead.Dialer()(ctx, address)
		}
		return p.behind.Dialer()(ctx, address)
	}))...)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// record is the violations that were told of, which end the read.
type record struct {
	mu   sync.Mutex
	list []*ordering.Violation
}

func (r *record) end(_ context.Context, v *ordering.Violation) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, v)
	return false
}

// kind is a kind of read; it gives the revision of its answer.
type kind struct {
	method string
	read   func(context.Context, *client.Client) (int64, error)
}

var kinds = map[string]kind{
	"get": {"/etcdserverpb.KV/Range", func(ctx context.Context, c *client.Client) (int64, error) {
		r, err := c.Get(ctx, "k", client.WithSerializable())
		return r.GetHeader().GetRevision(), err
	}},
	"txn": {"/etcdserverpb.KV/Txn", func(ctx context.Context, c *client.Client) (int64, error) {
		r, err := c.Txn(ctx).Then(client.OpTxn(nil, []client.Op{client.OpGet("k", client.WithSerializable())}, nil)).Commit()
		return r.GetHeader().GetRevision(), err
	}},
	"scan": {"/etcdserverpb.KV/Range", func(ctx context.Context, c *client.Client) (int64, error) {
		s, err := c.Scan(ctx, "", client.WithPrefix(), client.WithSerializable())
		if err != nil {
			return 0, err
		}
		return s.Revision(), nil
	}},
}

// Without the option reads go back when the client moves to a member that lags, so that the other tests show something.
func TestWithout(t *testing.T) {
	p := newPair(t)
	for name, k := range kinds {
		c := p.client(t)
		before, err := k.read(p.ctx, c)
		must(t, err)
		must(t, c.SetEndpoints("behind"))
		after, err := k.read(p.ctx, c)
		must(t, err)
		if after >= before {
			t.Errorf("%s: revision %d after %d", name, after, before)
		}
	}
}

// A client that moves to a member that lags hears of it, moves on, and its reads do not go back.
func TestMove(t *testing.T) {
	p := newPair(t)
	for name, k := range kinds {
		var c *client.Client
		var told []*ordering.Violation
		c = p.client(t, ordering.Option(ordering.OnViolation(func(_ context.Context, v *ordering.Violation) bool {
			told = append(told, v)
			must(t, c.SetEndpoints("ahead"))
			return true
		})))
		before, err := k.read(p.ctx, c)
		must(t, err)
		behind, err := p.behind.Client().Get(p.ctx, "k")
		must(t, err)
		must(t, c.SetEndpoints("behind"))
		after, err := k.read(p.ctx, c)
		must(t, err)
		if after < before {
			t.Errorf("%s: revision %d after %d", name, after, before)
		}
		want := ordering.Violation{Method: k.method, Endpoint: "behind:2379", Got: behind.Header.Revision, Seen: before}
		if len(told) != 1 || *told[0] != want {
			t.Errorf("%s: told of %v, want %+v", name, told, want)
		}
	}
}

// Members among which some lag are asked until one does not, with no help.
func TestNext(t *testing.T) {
	p := newPair(t)
	for name, k := range kinds {
		c := p.client(t, ordering.Option())
		last, err := k.read(p.ctx, c)
		must(t, err)
		must(t, c.SetEndpoints("behind", "ahead"))
		for range 10 {
			rev, err := k.read(p.ctx, c)
			must(t, err)
			if rev < last {
				t.Errorf("%s: revision %d after %d", name, rev, last)
			}
			last = rev
		}
	}
}

// What was seen in any way counts, and a member that has caught up is good.
func TestSeen(t *testing.T) {
	p := newPair(t)
	ways := map[string]func(c *client.Client) (int64, error){
		"put": func(c *client.Client) (int64, error) {
			r, err := c.Put(p.ctx, "k", "mine")
			return r.GetHeader().GetRevision(), err
		},
		"delete": func(c *client.Client) (int64, error) {
			r, err := c.Delete(p.ctx, "k")
			return r.GetHeader().GetRevision(), err
		},
		"txn": func(c *client.Client) (int64, error) {
			r, err := c.Txn(p.ctx).Then(client.OpPut("k", "")).Commit()
			return r.GetHeader().GetRevision(), err
		},
		"get of the past": func(c *client.Client) (int64, error) {
			r, err := c.Get(p.ctx, "k", client.WithRev(2))
			return r.GetHeader().GetRevision(), err
		},
		"watch": func(c *client.Client) (int64, error) {
			put, err := p.ahead.Client().Put(p.ctx, "k", "others'")
			if err != nil {
				return 0, err
			}
			w := c.Watch(p.ctx, "k", client.WithRev(put.Header.Revision))
			defer w.Close()
			r, err := w.Next(p.ctx)
			if err != nil {
				return 0, err
			}
			return r.Revision, nil
		},
	}
	for name, see := range ways {
		for kind, k := range kinds {
			told := new(record)
			c := p.client(t, ordering.Option(ordering.OnViolation(told.end)))
			seen, err := see(c)
			must(t, err)
			must(t, c.SetEndpoints("behind"))
			_, err = k.read(p.ctx, c)
			var v *ordering.Violation
			if !errors.Is(err, ordering.ErrStale) || !errors.As(err, &v) || v.Seen != seen || len(told.list) != 1 || told.list[0] != v {
				t.Errorf("%s after %s: %v, told of %v; want ErrStale after %d", kind, name, err, told.list, seen)
			}
			if r, err := c.Get(p.ctx, "k", client.WithRev(3)); err != nil || r.Kvs[0].ModRevision != 3 {
				t.Errorf("a read of the past after %s: %v %v", name, r, err)
			}
			now, err := p.behind.Client().Get(p.ctx, "k")
			must(t, err)
			p.put(t, p.behind, int(seen-now.Header.Revision))
			if rev, err := k.read(p.ctx, c); err != nil || rev != seen {
				t.Errorf("%s after %s, the member having caught up: %d %v, want %d", kind, name, rev, err, seen)
			}
			p.put(t, p.ahead, 2)
		}
	}
}

// A read that nobody can answer ends with the policy of the client.
func TestAttempts(t *testing.T) {
	p := newPair(t)
	policy := client.DefaultRetryPolicy()
	policy.MaxAttempts = 3
	told := 0
	c := p.client(t, client.WithRetry(policy), ordering.Option(ordering.OnViolation(func(context.Context, *ordering.Violation) bool {
		told++
		return true
	})))
	_, err := c.Get(p.ctx, "k")
	must(t, err)
	must(t, c.SetEndpoints("behind"))
	_, err = c.Get(p.ctx, "k")
	var v *ordering.Violation
	if !errors.Is(err, ordering.ErrStale) || !errors.As(err, &v) || told != 3 {
		t.Errorf("after %d attempts: %v, want ErrStale after 3", told, err)
	}
}

// Reads that run beside writes are not refused.
func TestBesideWrites(t *testing.T) {
	p := newPair(t)
	told := new(record)
	c := p.client(t, ordering.Option(ordering.OnViolation(told.end)))
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
	if len(told.list) > 0 {
		t.Errorf("told of %v", told.list)
	}
}
