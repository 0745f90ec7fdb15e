package lock

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/lockpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/server"
)

// patience bounds waiting for something that must come.
const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// member is a real node with the service on it.
type member struct {
	*Service
	t    testing.TB
	node *server.Node
	net  *network
}

// cluster runs n members in this process.
func cluster(t testing.TB, n int) []*member {
	t.Helper()
	return clusterWith(t, n, func(*server.Config) {})
}

// clusterWith is cluster with changed settings.
func clusterWith(t testing.TB, n int, tune func(*server.Config)) []*member {
	t.Helper()
	w := &network{away: map[uint64]bool{}, installed: map[uint64]int{}}
	dir := t.TempDir()
	var cfgs []server.Config
	var initial []string
	for i := range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("m%d", i+1)
		url := "http://" + ln.Addr().String()
		initial = append(initial, name+"="+url)
		cfgs = append(cfgs, server.Config{
			Name: name, DataDir: filepath.Join(dir, name), ClusterToken: "test", NewCluster: true,
			PeerURLs: []string{url}, ClientURLs: []string{"http://127.0.0.1:1"},
			Tick: 20 * time.Millisecond, PreVote: true, InitialTickAdvance: true,
			PeerListeners: []net.Listener{ln}, Logger: zap.NewNop(), NewTransport: w.transport,
		})
		tune(&cfgs[i])
	}
	var members []*member
	for _, cfg := range cfgs {
		cfg.InitialCluster = strings.Join(initial, ",")
		node, err := server.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		m := &member{New(Options{Store: node, Hub: node.Hub()}), t, node, w}
		members = append(members, m)
		t.Cleanup(m.close)
	}
	for _, m := range members {
		select {
		case <-m.node.Ready():
		case <-time.After(patience):
			t.Fatal("a member is not ready")
		}
	}
	return members
}

// leading splits members into the one that leads and the others, when all agree on it.
func leading(t testing.TB, ms []*member) (leader *member, rest []*member) {
	t.Helper()
	until(t, "a leader", func() bool {
		leader, rest = nil, nil
		for _, m := range ms {
			if id := m.node.Leader(); id != ms[0].node.Leader() {
				return false
			} else if id == m.node.ID() {
				leader = m
			} else {
				rest = append(rest, m)
			}
		}
		return leader != nil
	})
	return leader, rest
}

func one(t testing.TB) *member { return cluster(t, 1)[0] }

func (m *member) close() {
	if err := m.node.Close(); err != nil {
		m.t.Error(err)
	}
	m.Close()
}

// bg is a context for calls that must not fail.
func bg(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func (m *member) lease(ttl int64) int64 {
	m.t.Helper()
	r, err := m.node.LeaseGrant(bg(m.t), &rpcpb.LeaseGrantRequest{TTL: ttl})
	if err != nil {
		m.t.Fatal(err)
	}
	return r.GetID()
}

func (m *member) revoke(id int64) {
	m.t.Helper()
	if _, err := m.node.LeaseRevoke(bg(m.t), &rpcpb.LeaseRevokeRequest{ID: id}); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) mustLock(r *lockpb.LockRequest) *lockpb.LockResponse {
	m.t.Helper()
	resp, err := m.Lock(bg(m.t), Connection{Alive: context.Background()}, r)
	if err != nil {
		m.t.Fatalf("lock %s: %v", r.GetName(), err)
	}
	return resp
}

func (m *member) mustUnlock(r *lockpb.LockResponse) {
	m.t.Helper()
	if _, err := m.Unlock(bg(m.t), &lockpb.UnlockRequest{Key: r.GetKey(), FencingToken: r.GetFencingToken(), Lease: r.GetLease()}); err != nil {
		m.t.Fatal(err)
	}
}

// outcome of a call in the background.
type outcome struct {
	resp *lockpb.LockResponse
	err  error
}

// later locks in the background.
func (m *member) later(ctx context.Context, r *lockpb.LockRequest) <-chan outcome {
	c := make(chan outcome, 1)
	go func() {
		resp, err := m.Lock(ctx, Connection{Alive: context.Background()}, r)
		c <- outcome{resp, err}
	}()
	return c
}

func await[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// silent checks that nothing has come, nor comes while the member does something that everything before it precedes.
func silent[T any](t testing.TB, m *member, c <-chan T) {
	t.Helper()
	m.settle()
	select {
	case v := <-c:
		t.Fatalf("unexpected: %+v", v)
	default:
	}
}

// settle returns when the lines of a member have been given everything that was written before.
func (m *member) settle() {
	m.t.Helper()
	if err := m.node.LinearizableWait(bg(m.t)); err != nil {
		m.t.Fatal(err)
	}
	rev := m.node.Revision()
	until(m.t, "the lines to catch up", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		for name, l := range m.lines {
			kvs, at, err := m.readQueue(context.Background(), []byte(name), true)
			if err != nil || at < rev || len(kvs) != len(l.queue.entries) {
				return false
			}
		}
		return true
	})
}

// until waits for a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// throughout checks a condition again and again for a time.
func throughout(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
		if !ok() {
			t.Fatalf("not throughout: %s", what)
		}
	}
}

// keys reads a queue, oldest first.
func (m *member) keys(name string) []*kvpb.KeyValue {
	m.t.Helper()
	kvs, _, err := m.readQueue(bg(m.t), []byte(name), false)
	if err != nil {
		m.t.Fatal(err)
	}
	var out []*kvpb.KeyValue
	for _, e := range newQueue(kvs).entries {
		out = append(out, e.kv)
	}
	return out
}

func (m *member) untilQueue(name string, n int) {
	m.t.Helper()
	until(m.t, fmt.Sprintf("%d keys of %s", n, name), func() bool { return len(m.keys(name)) == n })
}

func (m *member) put(key, value string) {
	m.t.Helper()
	if _, err := m.node.Put(bg(m.t), &rpcpb.PutRequest{Key: []byte(key), Value: []byte(value)}); err != nil {
		m.t.Fatal(err)
	}
}

// applied is the index of the last log entry that the member has applied.
func (m *member) applied() uint64 { return m.node.Status().GetRaftAppliedIndex() }
