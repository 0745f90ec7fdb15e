package ordering_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/ordering"
	"github.com/coordd/coordd/internal/testnode"
)

// Reads that may be outdated, but never go back.
func Example() {
	n, stop := testnode.Run()
	defer stop()
	dial := client.WithDialer(func(ctx context.Context, _, address string) (net.Conn, error) { return n.Dialer()(ctx, address) })
	c, err := client.New([]string{"node"}, dial, ordering.Option())
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

// A program that would rather know than wait.
func ExampleOnViolation() {
	n, stop := testnode.Run()
	defer stop()
	dial := client.WithDialer(func(ctx context.Context, _, address string) (net.Conn, error) { return n.Dialer()(ctx, address) })
	c, err := client.New([]string{"node"}, dial, ordering.Option(ordering.OnViolation(func(_ context.Context, v *ordering.Violation) bool {
		log.Printf("%s is %d revisions behind", v.Endpoint, v.Seen-v.Got)
		return false // the read ends with ErrStale
	})))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	r, err := c.Get(context.Background(), "k", client.WithSerializable())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Count)
	// Output: 0
}
