package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/internal/testnode"
)

func ExampleNew() {
	c, err := client.New(
		[]string{"10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"},
		client.WithCredentials("app", "secret"),
		client.WithAutoSync(time.Minute),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = c.Put(ctx, "greeting", "hello")
	if errors.Is(err, client.ErrUnknownOutcome) {
		log.Print("it may have been written; read it to find out")
	} else if err != nil {
		log.Print("it was not written: ", err)
	}
}

func ExampleClient_Get() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client()
	ctx := context.Background()
	for _, name := range []string{"ann", "bob", "eve"} {
		if _, err := c.Put(ctx, "/users/"+name, "here"); err != nil {
			log.Fatal(err)
		}
	}
	resp, err := c.Get(ctx, "/users/", client.WithPrefix(), client.WithLimit(2))
	if err != nil {
		log.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		fmt.Printf("%s = %s\n", kv.Key, kv.Value)
	}
	fmt.Println(resp.Count, "in all, more to come:", resp.More)
	// Output:
	// /users/ann = here
	// /users/bob = here
	// 3 in all, more to come: true
}

func ExampleClient_Txn() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client()
	ctx := context.Background()
	for _, who := range []string{"ann", "bob"} {
		resp, err := c.Txn(ctx).
			If(client.KeyMissing("leader")).
			Then(client.OpPut("leader", who)).
			Else(client.OpGet("leader")).
			Commit()
		if err != nil {
			log.Fatal(err)
		}
		if resp.Succeeded {
			fmt.Println(who, "leads")
		} else {
			fmt.Printf("%s follows %s\n", who, resp.Responses[0].GetResponseRange().Kvs[0].Value)
		}
	}
	// Output:
	// ann leads
	// bob follows ann
}

// Read the present state, and then follow its changes without a gap.
func ExampleClient_Watch() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client()
	ctx := context.Background()
	if _, err := c.Put(ctx, "/config/color", "red"); err != nil {
		log.Fatal(err)
	}
	now, err := c.Get(ctx, "/config/", client.WithPrefix())
	if err != nil {
		log.Fatal(err)
	}
	w := c.Watch(ctx, "/config/", client.WithPrefix(), client.WithRev(now.Header.Revision+1))
	defer w.Close()
	if _, err := c.Put(ctx, "/config/color", "blue"); err != nil {
		log.Fatal(err)
	}
	if _, err := c.Delete(ctx, "/config/color"); err != nil {
		log.Fatal(err)
	}
	left := 2
	for resp, err := range w.All() {
		if errors.Is(err, errs.ErrCompacted) {
			log.Fatal("too far behind: read the state anew")
		} else if err != nil {
			log.Fatal(err)
		}
		for _, e := range resp.Events {
			fmt.Printf("%s %s %q\n", e.Type, e.Kv.Key, e.Kv.Value)
			left--
		}
		if left == 0 {
			break
		}
	}
	// Output:
	// PUT /config/color "blue"
	// DELETE /config/color ""
}

// A key that lives as long as this process does.
func ExampleClient_KeepAlive() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client()
	ctx := context.Background()
	lease, err := c.Grant(ctx, 10)
	if err != nil {
		log.Fatal(err)
	}
	id := client.LeaseID(lease.ID)
	keeper := c.KeepAlive(ctx, id, client.EndWhenUnconfirmed(time.Duration(lease.TTL)*time.Second))
	if _, err := c.Put(ctx, "/workers/7", "ready", client.WithLease(id)); err != nil {
		log.Fatal(err)
	}
	if _, err := c.Revoke(ctx, id); err != nil { // as if it had expired
		log.Fatal(err)
	}
	<-keeper.Done()
	fmt.Println(errors.Is(keeper.Err(), errs.ErrLeaseNotFound))
	gone, err := c.Get(ctx, "/workers/7")
	fmt.Println(gone.GetCount(), err)
	// Output:
	// true
	// 0 <nil>
}

func ExampleClient_Scan() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client()
	ctx := context.Background()
	for i := range 3 {
		if _, err := c.Put(ctx, fmt.Sprint("k", i), "v"); err != nil {
			log.Fatal(err)
		}
	}
	scan, err := c.Scan(ctx, "k", client.WithPrefix())
	if err != nil {
		log.Fatal(err)
	}
	for kv, err := range scan.All() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s ", kv.Key)
	}
	fmt.Println("at revision", scan.Revision())
	// Output: k0 k1 k2 at revision 4
}
