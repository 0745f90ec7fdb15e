package concurrency_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/concurrency"
	"github.com/coordd/coordd/embed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// within gives a context for the test, which ends long after everything should be done.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// session makes a session of a client, which ends with the test.
func session(t testing.TB, c *client.Client, opts ...concurrency.SessionOption) *concurrency.Session {
	t.Helper()
	s, err := concurrency.NewSession(within(t), c, opts...)
	must(t, err)
	t.Cleanup(s.Orphan)
	return s
}

// count waits until there are n keys below a prefix.
func count(t testing.TB, c *client.Client, prefix string, n int64) {
	t.Helper()
	ctx := within(t)
	for {
		r, err := c.Get(ctx, prefix, client.WithPrefix(), client.WithCountOnly())
		must(t, err)
		if r.Count == n {
			return
		}
		w := c.Watch(ctx, prefix, client.WithPrefix(), client.WithRev(r.Header.Revision+1))
		_, err = w.Next(ctx)
		w.Close()
		if err != nil {
			t.Fatalf("%d keys below %q, want %d: %v", r.Count, prefix, n, err)
		}
	}
}

// flaky is a connection that breaks as a test wants.
type flaky struct {
	grpc.ClientConnInterface
	// after runs after a call was done, and before its reply is lost if the name of the method is in lose.
	mu    sync.Mutex
	lose  []string
	after func()
	mute  atomic.Bool // keepalives go nowhere
}

func (f *flaky) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	err := f.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	f.mu.Lock()
	i := slices.Index(f.lose, method)
	var after func()
	if i >= 0 {
		f.lose, after = slices.Delete(f.lose, i, i+1), f.after
	}
	f.mu.Unlock()
	if i < 0 {
		return err
	}
	if after != nil {
		after()
	}
	return status.Error(codes.Unavailable, "the reply was lost")
}

func (f *flaky) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if f.mute.Load() && method == "/etcdserverpb.Lease/LeaseKeepAlive" {
		return nil, status.Error(codes.Unavailable, "cut off")
	}
	return f.ClientConnInterface.NewStream(ctx, d, method, opts...)
}

// over makes a client over a flaky connection.
func over(t testing.TB, n *embed.Node) (*flaky, *client.Client) {
	t.Helper()
	f := &flaky{ClientConnInterface: n.Conn()}
	return f, fresh(t, f)
}

func fresh(t testing.TB, conn grpc.ClientConnInterface) *client.Client {
	t.Helper()
	c, err := client.NewFromConn(conn)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
