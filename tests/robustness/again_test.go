package robustness

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coordd/api/lockpb"
	"github.com/coordd/coordd/api/services"
	"github.com/coordd/coordd/tests/cluster"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// One who gives up waiting and asks again with the same lease keeps what the second call gets: the first call, which takes its key out of the
// queue, must not take the second's.
func TestLockAgain(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, 1)
	etcd := c.Etcd(t)
	conn, err := grpc.NewClient("passthrough:///"+c.Members[0].ClientURL[len("http://"):], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	locks := services.NewLockClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	lock := func(ctx context.Context, lease clientv3.LeaseID) (*lockpb.LockResponse, error) {
		return locks.Lock(ctx, &lockpb.LockRequest{Name: []byte("l"), Lease: int64(lease)})
	}
	unlock := func(l *lockpb.LockResponse) {
		if _, err := locks.Unlock(ctx, &lockpb.UnlockRequest{Key: l.Key, FencingToken: l.FencingToken}); err != nil {
			t.Error(err)
		}
	}
	holder, err := etcd.Grant(ctx, 600)
	if err != nil {
		t.Fatal(err)
	}
	asker, err := etcd.Grant(ctx, 600)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 150 {
		held, err := lock(ctx, holder.ID)
		if err != nil {
			t.Fatal(err)
		}
		var freed sync.WaitGroup
		freed.Go(func() {
			time.Sleep(time.Duration(i%12) * time.Millisecond)
			unlock(held)
		})
		short, stop := context.WithTimeout(ctx, time.Duration(5+i%5)*time.Millisecond)
		_, _ = lock(short, asker.ID) // gives up or not
		stop()
		got, err := lock(ctx, asker.ID)
		freed.Wait()
		if err != nil {
			continue // it may learn that its place is gone; it is not told that it holds the lock
		}
		time.Sleep(5 * time.Millisecond) // time for what comes late
		kept, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(string(got.Key)), "=", got.FencingToken)).Commit()
		if err != nil {
			t.Fatal(err)
		}
		if !kept.Succeeded {
			t.Fatalf("round %d: the lock with token %d is lost, and nobody gave it back", i, got.FencingToken)
		}
		unlock(got)
	}
}
