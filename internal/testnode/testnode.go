// Package testnode starts real nodes inside the program of a test, for packages whose tests need one to talk to: [Start] one, [Cluster] several
// that reach each other in memory, and [Run] one for an example, where a program of one's own has client.New. Nodes are in a hurry and
// do not sync their files; no port is used. They work in the virtual time of testing/synctest too, if started inside of it.
//
// A node's goroutines end before the test does, so goleak finds none. The package has none of its own.
package testnode

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/embed"
)

// startLimit is how long nodes may take to be ready on a busy machine.
const startLimit = time.Minute

// Start starts a node that is a cluster by itself and waits until it is ready. It ends with the test.
func Start(t testing.TB) *embed.Node {
	t.Helper()
	n := start(t, embed.NewTestConfig(t.TempDir()))
	await(t, n)
	return n
}

// Run is Start for an example, which has no test to end with: the caller stops the node. It panics if there is no node to be had.
func Run() (n *embed.Node, stop func()) {
	dir, err := os.MkdirTemp("", "coordd-example-")
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	n, err = embed.Start(ctx, embed.NewTestConfig(dir))
	if err == nil {
		err = n.WaitReady(ctx)
	}
	if err != nil {
		panic(err)
	}
	return n, func() { _, _ = n.Close(), os.RemoveAll(dir) }
}

// Dial opens a connection to a node.
type Dial func(ctx context.Context, address string) (net.Conn, error)

// Cluster starts a cluster of nodes and waits until all are ready. They end with the test. [Name] names them, and they listen for each other at
// the port 2380 of their name. Each reaches the others by what links makes of dial, the way that the network in memory has for it.
func Cluster(t testing.TB, size int, links func(name string, dial Dial) Dial) []*embed.Node {
	t.Helper()
	network := embed.NewNetwork()
	var initial []string
	for i := range size {
		initial = append(initial, fmt.Sprintf("%s=http://%[1]s:2380", Name(i)))
	}
	var nodes []*embed.Node
	for i := range size {
		ln, err := network.Listen(Name(i) + ":2380")
		if err != nil {
			t.Fatal(err)
		}
		cfg := embed.NewTestConfig(t.TempDir())
		// On a busy machine the quick ones have too many elections, and virtual time costs by the heartbeat.
		cfg.Heartbeat, cfg.ElectionTimeout = 10*cfg.Heartbeat, 10*cfg.ElectionTimeout
		cfg.Name, cfg.PeerListeners, cfg.PeerDialer = Name(i), []net.Listener{ln}, links(Name(i), network.Dial)
		cfg.AdvertisePeerURLs, cfg.InitialCluster = []string{"http://" + Name(i) + ":2380"}, strings.Join(initial, ",")
		nodes = append(nodes, start(t, cfg))
	}
	for _, n := range nodes {
		await(t, n)
	}
	return nodes
}

// Name is that of a node of a cluster by its number: m0, m1, and so on.
func Name(i int) string { return fmt.Sprintf("m%d", i) }

// start starts a node that ends with the test.
func start(t testing.TB, cfg *embed.Config) *embed.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	n, err := embed.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("closing a node: %v", err)
		}
	})
	return n
}

// await waits until a node is ready.
func await(t testing.TB, n *embed.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := n.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}
