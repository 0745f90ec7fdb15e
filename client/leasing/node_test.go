package leasing_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/leasing"
	"github.com/coordd/coordd/embed"
	"github.com/coordd/coordd/internal/testnode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	prefix = "leases/"
	txn    = "/etcdserverpb.KV/Txn"
	get    = "/etcdserverpb.KV/Range"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a member and those who use it, in virtual time.
type world struct {
	*testing.T
	ctx   context.Context
	node  *embed.Node
	plain *client.Client // one without leasing
}

// run runs a test in virtual time, so that it does not depend on how quick the machine is.
func run(t *testing.T, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		n := testnode.Start(t)
		test(&world{t, ctx, n, n.Client()})
	})
}

// elapse lets virtual time pass.
func elapse(d time.Duration) { time.Sleep(d) }

// party makes a KV over a connection of its own.
func (w *world) party(opts ...leasing.Option) (*leasing.KV, *conn) {
	w.Helper()
	cc := &conn{ClientConnInterface: w.node.Conn(), calls: map[string]int{}, open: make(chan struct{})}
	close(cc.open)
	c, err := client.NewFromConn(cc)
	must(w, err)
	w.Cleanup(func() { _ = c.Close() })
	kv, err := leasing.New(w.ctx, c, prefix, opts...)
	must(w, err)
	w.Cleanup(func() { cc.heal(); kv.Close() })
	return kv, cc
}

// value reads a key, "" if it does not exist.
func (w *world) value(kv *leasing.KV, key string) string {
	w.Helper()
	r, err := kv.Get(w.ctx, key)
	must(w, err)
	if len(r.Kvs) == 0 {
		return ""
	}
	return string(r.Kvs[0].Value)
}

// want reads a key and compares it.
func (w *world) want(kv *leasing.KV, key, value string) {
	w.Helper()
	if got := w.value(kv, key); got != value {
		w.Errorf("%s is %q, want %q", key, got, value)
	}
}

// hold has a KV take a key.
func (w *world) hold(kv *leasing.KV, key string) {
	w.Helper()
	for !kv.Holds(key) {
		_ = w.value(kv, key)
		time.Sleep(10 * time.Millisecond)
	}
}

// leasingKeys counts the leasing keys.
func (w *world) leasingKeys() int64 {
	w.Helper()
	r, err := w.plain.Get(w.ctx, prefix, client.WithPrefix(), client.WithCountOnly())
	must(w, err)
	return r.Count
}

// fate is what becomes of a call.
type fate int

const (
	done fate = iota
	lost      // it is done, and the reply is lost
	late      // it is done long after its caller was told that the connection broke
)

// conn is a connection that a test can cut off, and whose calls it can count and lose.
type conn struct {
	grpc.ClientConnInterface

	mu    sync.Mutex // guards the rest
	calls map[string]int
	fate  func(method string, req any) fate
	late  []func()
	lag   func() time.Duration // how long a message is on its way; nil for no time
	open  chan struct{}        // closed but while it is cut off
}

// cut has nothing come through from now on, in either direction.
func (c *conn) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = make(chan struct{})
}

// heal takes cut back.
func (c *conn) heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.open:
	default:
		close(c.open)
	}
}

// pass waits for a message to get through, which it does not while the connection is cut off.
func (c *conn) pass(ctx context.Context) error {
	c.mu.Lock()
	open := c.open
	var lag time.Duration
	if c.lag != nil {
		lag = c.lag()
	}
	c.mu.Unlock()
	if lag > 0 {
		select {
		case <-time.After(lag):
		case <-ctx.Done():
		}
	}
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// fates sets what becomes of calls.
func (c *conn) fates(f func(method string, req any) fate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fate = f
}

// bad makes the connection a bad one: messages are on their way for up to 100 ms, and some transactions are lost or late.
func (c *conn) bad(rnd *rand.Rand) {
	c.fates(func(method string, _ any) fate {
		if n := rnd.IntN(50); method == txn && n < 2 {
			return []fate{lost, late}[n]
		}
		return done
	})
	c.delays(func() time.Duration { return time.Duration(rnd.IntN(100)) * time.Millisecond })
}

// delays sets how long messages are on their way.
func (c *conn) delays(f func() time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lag = f
}

// arrive has the calls that are late arrive.
func (c *conn) arrive() {
	c.mu.Lock()
	calls := c.late
	c.late = nil
	c.mu.Unlock()
	for _, f := range calls {
		f()
	}
}

// counted gives how often a method was called, and begins to count anew.
func (c *conn) counted(method string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.calls[method]
	clear(c.calls)
	return n
}

func (c *conn) Invoke(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
	if err := c.pass(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	c.calls[method]++
	f := done
	if c.fate != nil {
		f = c.fate(method, req)
	}
	call := func() {
		_ = c.ClientConnInterface.Invoke(context.WithoutCancel(ctx), method, req, reply.(proto.Message).ProtoReflect().New().Interface())
	}
	if f == late {
		c.late = append(c.late, call)
	}
	c.mu.Unlock()
	if f == lost {
		call()
	}
	if f != done {
		return status.Error(codes.Unavailable, "the connection broke")
	}
	if err := c.ClientConnInterface.Invoke(ctx, method, req, reply, opts...); err != nil {
		return err
	}
	return c.pass(ctx)
}

func (c *conn) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := c.pass(ctx); err != nil {
		return nil, err
	}
	s, err := c.ClientConnInterface.NewStream(ctx, d, method, opts...)
	if err != nil {
		return nil, err
	}
	return &stream{s, c}, nil
}

// stream is one on a conn.
type stream struct {
	grpc.ClientStream
	conn *conn
}

func (s *stream) SendMsg(m any) error {
	if err := s.conn.pass(s.Context()); err != nil {
		return err
	}
	return s.ClientStream.SendMsg(m)
}

func (s *stream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	return s.conn.pass(s.Context())
}
