package leasing_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/leasing"
	"github.com/coordd/coordd/internal/testnode"
)

// Two programs on the same keys: one reads from memory until the other writes.
func Example() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client() // client.New(endpoints), in each program
	ctx := context.Background()
	reader, err := leasing.New(ctx, c, "leases/")
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()
	writer, err := leasing.New(ctx, c, "leases/")
	if err != nil {
		log.Fatal(err)
	}
	defer writer.Close()

	show := func() {
		r, err := reader.Get(ctx, "config")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Count, r.Kvs, reader.Holds("config"))
	}
	show()
	if _, err := writer.Put(ctx, "config", "new"); err != nil {
		log.Fatal(err)
	}
	r, err := reader.Get(ctx, "config")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s %v\n", r.Kvs[0].Value, reader.Holds("config"))
	// Output:
	// 0 [] true
	// new false
}

// A transaction whose condition is on a key held is answered from memory if it does not hold.
func ExampleKV_Txn() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client()
	ctx := context.Background()
	kv, err := leasing.New(ctx, c, "leases/", leasing.WithTTL(5*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer kv.Close()
	for range 2 {
		r, err := kv.Txn(ctx).If(client.KeyMissing("leader")).
			Then(client.OpPut("leader", "me")).Else(client.OpGet("leader")).Commit()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Succeeded)
	}
	// Output:
	// true
	// false
}

// A write that does not wait for long.
func ExampleKV_Put() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client()
	kv, err := leasing.New(context.Background(), c, "leases/")
	if err != nil {
		log.Fatal(err)
	}
	defer kv.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = kv.Put(ctx, "k", "v")
	switch {
	case errors.Is(err, leasing.ErrHeld):
		fmt.Println("its holder is dead or cut off; nothing was written")
	case errors.Is(err, client.ErrUnknownOutcome):
		fmt.Println("perhaps it was written")
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println("written")
	}
	// Output: written
}
