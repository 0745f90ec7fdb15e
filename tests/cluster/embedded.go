package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/embed"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// Embedded is a cluster of nodes in the test's process. No socket is used.
type Embedded struct{ Nodes []*embed.Node }

// Embed starts embedded nodes and waits until all are ready. They end with the test.
func Embed(t testing.TB, size int) *Embedded {
	t.Helper()
	e, network := &Embedded{}, embed.NewNetwork()
	var initial []string
	for i := range size {
		initial = append(initial, fmt.Sprintf("m%d=http://m%d:2380", i+1, i+1))
	}
	for i := range size {
		cfg := embed.NewTestConfig(t.TempDir())
		cfg.Heartbeat, cfg.ElectionTimeout = 10*cfg.Heartbeat, 10*cfg.ElectionTimeout // on a busy machine the quick ones are too quick
		cfg.Name = fmt.Sprintf("m%d", i+1)
		cfg.AdvertisePeerURLs = []string{"http://" + cfg.Name + ":2380"}
		cfg.InitialCluster, cfg.PeerDialer = strings.Join(initial, ","), network.Dial
		ln, err := network.Listen(cfg.Name + ":2380")
		if err != nil {
			t.Fatal(err)
		}
		cfg.PeerListeners = []net.Listener{ln}
		node, err := embed.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := node.Close(); err != nil {
				t.Errorf("closing %s: %v", cfg.Name, err)
			}
		})
		e.Nodes = append(e.Nodes, node)
	}
	ctx, cancel := context.WithTimeout(t.Context(), StartLimit)
	defer cancel()
	for _, n := range e.Nodes {
		if err := n.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// Size is the number of nodes.
func (e *Embedded) Size() int { return len(e.Nodes) }

// Etcd is etcd's client, connected through node.Dialer to the nodes with these numbers, to all without any.
func (e *Embedded) Etcd(t testing.TB, nodes ...int) *clientv3.Client {
	t.Helper()
	return etcdClient(t, clientv3.Config{Endpoints: e.Endpoints(nodes...), DialOptions: []grpc.DialOption{grpc.WithContextDialer(e.dial)}})
}

// Native is the client of package client, connected likewise; to one node it is in-process, without gRPC.
func (e *Embedded) Native(t testing.TB, nodes ...int) *client.Client {
	t.Helper()
	if len(nodes) == 1 {
		return e.Nodes[nodes[0]].Client()
	}
	return nativeClient(t, e.Endpoints(nodes...), client.WithDialer(func(ctx context.Context, _, address string) (net.Conn, error) {
		return e.dial(ctx, address)
	}))
}

// Endpoints are the names by which the dialer knows the nodes.
func (e *Embedded) Endpoints(nodes ...int) []string {
	var all []string
	for i := range e.Nodes {
		if len(nodes) == 0 || slices.Contains(nodes, i) {
			all = append(all, fmt.Sprintf("http://m%d:2379", i+1))
		}
	}
	return all
}

func (e *Embedded) dial(ctx context.Context, address string) (net.Conn, error) {
	for i, n := range e.Nodes {
		if address == fmt.Sprintf("m%d:2379", i+1) {
			return n.Dialer()(ctx, address)
		}
	}
	return nil, fmt.Errorf("no node has the address %s", address)
}
