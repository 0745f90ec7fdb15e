package server

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
)

// testWait bounds waiting for something that must come.
const testWait = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is some nodes of one test, on loopback.
type cluster struct {
	t     *testing.T
	cfgs  []Config
	nodes []*Node
}

// newCluster prepares n members; start runs them.
func newCluster(t *testing.T, n int) *cluster {
	t.Helper()
	c := &cluster{t: t, nodes: make([]*Node, n)}
	dir := t.TempDir()
	var initial []string
	for i := range n {
		name := fmt.Sprintf("m%d", i+1)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		url := "http://" + ln.Addr().String()
		initial = append(initial, name+"="+url)
		c.cfgs = append(c.cfgs, Config{
			Name: name, DataDir: filepath.Join(dir, name), ClusterToken: "test", NewCluster: true,
			PeerURLs: []string{url}, ClientURLs: []string{"http://127.0.0.1:1"},
			Tick: 10 * time.Millisecond, PreVote: true, InitialTickAdvance: true,
			PeerListeners: []net.Listener{ln}, Logger: zaptest.NewLogger(t).Named(name),
		})
	}
	for i := range c.cfgs {
		c.cfgs[i].InitialCluster = strings.Join(initial, ",")
	}
	t.Cleanup(func() {
		for i := range c.nodes {
			c.stop(i)
		}
		for _, cfg := range c.cfgs {
			for _, ln := range cfg.PeerListeners {
				ln.Close()
			}
		}
	})
	return c
}

// start runs member i, on its old address if it ran before.
func (c *cluster) start(i int) *Node {
	c.t.Helper()
	if c.cfgs[i].PeerListeners == nil {
		ln, err := net.Listen("tcp", strings.TrimPrefix(c.cfgs[i].PeerURLs[0], "http://"))
		if err != nil {
			c.t.Fatal(err)
		}
		c.cfgs[i].PeerListeners = []net.Listener{ln}
	}
	n, err := Open(c.t.Context(), c.cfgs[i])
	if err != nil {
		c.t.Fatal(err)
	}
	c.nodes[i] = n
	return n
}

// run starts all members and waits until they serve.
func (c *cluster) run() *cluster {
	c.t.Helper()
	for i := range c.cfgs {
		c.start(i)
	}
	for _, n := range c.nodes {
		c.ready(n)
	}
	return c
}

func (c *cluster) ready(n *Node) {
	c.t.Helper()
	select {
	case <-n.Ready():
	case <-n.Done():
		c.t.Fatalf("the node ended: %v", n.Err())
	case <-time.After(testWait):
		c.t.Fatal("not ready")
	}
}

func (c *cluster) stop(i int) {
	if c.nodes[i] == nil {
		return
	}
	if err := c.nodes[i].Close(); err != nil {
		c.t.Errorf("close: %v", err)
	}
	c.nodes[i], c.cfgs[i].PeerListeners = nil, nil
}

func (c *cluster) leader() *Node {
	c.t.Helper()
	for end := time.Now().Add(testWait); time.Now().Before(end); {
		for _, n := range c.nodes {
			if n != nil && n.Leader() == n.ID() {
				return n
			}
		}
		<-c.nodes[0].leadership.changed()
	}
	c.t.Fatal("no leader")
	return nil
}

func put(t *testing.T, n *Node, key, value string) int64 {
	t.Helper()
	r, err := n.Put(t.Context(), &rpcpb.PutRequest{Key: []byte(key), Value: []byte(value)})
	if err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
	return r.Header.Revision
}

func get(t *testing.T, n *Node, key string, serializable bool) string {
	t.Helper()
	var value string
	_, err := n.Range(t.Context(), &rpcpb.RangeRequest{Key: []byte(key), Serializable: serializable}, func(row []byte) error {
		value = string(decodeRow(t, row).Value)
		return nil
	})
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	return value
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestSingleNodeKeepsWhatItAcknowledged(t *testing.T) {
	c := newCluster(t, 1).run()
	for i := range 50 {
		put(t, c.nodes[0], fmt.Sprint("k", i), fmt.Sprint(i))
	}
	c.stop(0)
	n := c.start(0)
	c.ready(n)
	for i := range 50 {
		if got := get(t, n, fmt.Sprint("k", i), false); got != fmt.Sprint(i) {
			t.Fatalf("k%d = %q after a restart", i, got)
		}
	}
	if rev := put(t, n, "k", "v"); rev != 52 {
		t.Errorf("revision %d after 51 puts, want 52", rev)
	}
}

func TestThreeNodesAgree(t *testing.T) {
	c := newCluster(t, 3).run()
	for i := range 30 {
		put(t, c.nodes[i%3], fmt.Sprint("k", i), fmt.Sprint(i))
		if got := get(t, c.nodes[(i+1)%3], fmt.Sprint("k", i), false); got != fmt.Sprint(i) {
			t.Fatalf("k%d = %q at another member", i, got)
		}
	}
	leader := c.leader()
	for i, n := range c.nodes {
		if n == leader {
			c.stop(i)
			rest := c.nodes[(i+1)%3]
			put(t, rest, "after", "1")
			back := c.start(i)
			c.ready(back)
			if got := get(t, back, "after", false); got != "1" {
				t.Errorf("the member that was away reads %q", got)
			}
		}
	}
}
func decodeRow(t *testing.T, row []byte) *kvpb.KeyValue {
	t.Helper()
	kv := new(kvpb.KeyValue)
	if err := kv.UnmarshalVT(row); err != nil {
		t.Fatalf("a row that is no KeyValue: %v", err)
	}
	return kv
}
