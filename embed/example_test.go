package embed_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"

	"github.com/coordd/coordd/embed"
)

// A store inside of a program, without a socket.
func Example() {
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()

	cfg := embed.NewTestConfig(dir) // or NewConfig, if what is written should outlive a power cut
	node, err := embed.Start(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	if err := node.WaitReady(ctx); err != nil {
		log.Fatal(err)
	}

	c := node.Client()
	if _, err := c.Put(ctx, "greeting", "hello"); err != nil {
		log.Fatal(err)
	}
	r, err := c.Get(ctx, "greeting")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", r.Kvs[0].Value)
	// Output: hello
}

// Three members in one program, connected in memory.
func ExampleNetwork() {
	ctx := context.Background()
	network := embed.NewNetwork()
	var nodes []*embed.Node
	for _, name := range []string{"a", "b", "c"} {
		dir, err := os.MkdirTemp("", name)
		if err != nil {
			log.Fatal(err)
		}
		defer os.RemoveAll(dir)
		ln, err := network.Listen(name + ":2380")
		if err != nil {
			log.Fatal(err)
		}
		cfg := embed.NewConfig()
		cfg.Name, cfg.Dir, cfg.UnsafeNoFsync = name, dir, true
		cfg.PeerListeners, cfg.PeerDialer = []net.Listener{ln}, network.Dial
		cfg.AdvertisePeerURLs = []string{"http://" + name + ":2380"}
		cfg.InitialCluster = "a=http://a:2380,b=http://b:2380,c=http://c:2380"
		node, err := embed.Start(ctx, cfg)
		if err != nil {
			log.Fatal(err)
		}
		defer node.Close()
		nodes = append(nodes, node)
	}
	for _, n := range nodes {
		if err := n.WaitReady(ctx); err != nil {
			log.Fatal(err)
		}
	}
	members, err := nodes[0].Client().MemberList(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(members.Members), "members")
	// Output: 3 members
}
