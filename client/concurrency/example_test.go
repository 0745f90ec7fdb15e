package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"
	"time"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/concurrency"
	"github.com/coordd/coordd/internal/testnode"
)

// A lock, and a write that happens only under it.
func ExampleMutex() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client()
	ctx := context.Background()

	s, err := concurrency.NewSession(ctx, c, concurrency.WithTTL(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	m := concurrency.NewMutex(s, "jobs/nightly")
	if err := m.Lock(ctx); err != nil {
		log.Fatal(err)
	}
	r, err := c.Txn(ctx).If(m.IsOwner()).Then(client.OpPut("report", "done")).Commit()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("written under the lock:", r.Succeeded)
	if err := m.Unlock(ctx); errors.Is(err, concurrency.ErrNotHeld) {
		fmt.Println("it was lost meanwhile")
	} else if err != nil {
		log.Fatal(err)
	}
	// Output: written under the lock: true
}

// A lock that somebody else has.
func ExampleMutex_TryLock() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client()
	ctx := context.Background()
	for range 2 {
		s, err := concurrency.NewSession(ctx, c)
		if err != nil {
			log.Fatal(err)
		}
		defer s.Close()
		err = concurrency.NewMutex(s, "leader").TryLock(ctx)
		fmt.Println(errors.Is(err, concurrency.ErrLocked))
	}
	// Output:
	// false
	// true
}

// A counter that goroutines share under a lock of the cluster.
func ExampleNewLocker() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client()
	s, err := concurrency.NewSession(context.Background(), c)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	l := concurrency.NewLocker(s, "counter")
	l.Lock()
	defer l.Unlock()
	fmt.Println("locked")
	// Output: locked
}

// Two read at the same time; who wants to write has to wait.
func ExampleRWMutex() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client()
	ctx := context.Background()
	var locks []*concurrency.RWMutex
	for range 3 {
		s, err := concurrency.NewSession(ctx, c)
		if err != nil {
			log.Fatal(err)
		}
		defer s.Close()
		locks = append(locks, concurrency.NewRWMutex(s, "table"))
	}
	fmt.Println(locks[0].RLock(ctx), locks[1].RLock(ctx))
	fmt.Println(errors.Is(locks[2].TryLock(ctx), concurrency.ErrLocked))
	// Output:
	// <nil> <nil>
	// true
}

// One candidate, and one who watches.
func ExampleElection() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client()
	ctx := context.Background()
	o := concurrency.Observe(ctx, c, "scheduler")
	show := func() {
		l, err := o.Next()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%v %q\n", l.Change, l.Leader.Value)
	}
	show()

	s, err := concurrency.NewSession(ctx, c)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	e := concurrency.NewElection(s, "scheduler")
	if err := e.Campaign(ctx, "10.0.0.1"); err != nil {
		log.Fatal(err)
	}
	show()
	if err := e.Proclaim(ctx, "10.0.0.1:8080"); err != nil {
		log.Fatal(err)
	}
	show()
	if err := e.Resign(ctx); err != nil {
		log.Fatal(err)
	}
	show()
	// Output:
	// vacant ""
	// elected "10.0.0.1"
	// proclaimed "10.0.0.1:8080"
	// vacant ""
}

// A process that goes on leading after its restart.
func ExampleResumeElection() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client()
	ctx := context.Background()
	s, err := concurrency.NewSession(ctx, c)
	if err != nil {
		log.Fatal(err)
	}
	if err := concurrency.NewElection(s, "e").Campaign(ctx, "me"); err != nil {
		log.Fatal(err)
	}
	lease := s.Lease() // kept on disk, say
	s.Orphan()         // the process ends

	s, err = concurrency.NewSession(ctx, c, concurrency.WithLease(lease))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	e, err := concurrency.ResumeElection(ctx, s, "e", 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(e.Proclaim(ctx, "me again"))
	// Output: <nil>
}

// Two keys change together.
func ExampleTransact() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client()
	ctx := context.Background()
	if _, err := c.Txn(ctx).Then(client.OpPut("ann", "10"), client.OpPut("bob", "0")).Commit(); err != nil {
		log.Fatal(err)
	}
	_, err := concurrency.Transact(ctx, c, func(tx *concurrency.Tx) error {
		ann, err := strconv.Atoi(tx.Get("ann"))
		if err != nil {
			return err
		}
		bob, err := strconv.Atoi(tx.Get("bob"))
		if err != nil {
			return err
		}
		tx.Put("ann", strconv.Itoa(ann-3))
		tx.Put("bob", strconv.Itoa(bob+3))
		return nil
	}, concurrency.WithPrefetch("ann", "bob"))
	if err != nil {
		log.Fatal(err)
	}
	r, err := c.Get(ctx, "bob")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("bob has %s\n", r.Kvs[0].Value)
	// Output: bob has 3
}
