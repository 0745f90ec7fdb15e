package leasing

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/internal/testnode"
)

// A read that finds itself later than the lease is sure to live answers nothing from memory, whether or not anything else has noticed.
func TestTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		kv, err := New(ctx, testnode.Start(t).Client(), "leases/", WithTTL(8*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer kv.Close()
		if _, err := kv.Get(ctx, "k"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		kv.mu.RLock()
		defer kv.mu.RUnlock()
		for after, want := range map[time.Duration]bool{0: true, 6999 * time.Millisecond: true, 7 * time.Second: false, time.Hour: false} {
			got := memory{kv, time.Now().Add(after)}.read(&rpcpb.RangeRequest{Key: []byte("k")}) != nil
			if got != want {
				t.Errorf("%v after a renewal: answered %v, want %v", after, got, want)
			}
		}
	})
}

// A time is before a limit if it is so by every clock that both have.
func TestBefore(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		now, limit time.Time
		want       bool
	}{
		{now, now.Add(time.Second), true},
		{now, now, false},
		{now.Add(2 * time.Second), now.Add(time.Second), false},
		{now.Round(0), now.Round(0).Add(time.Second), true},
		{now.Round(0).Add(time.Hour), now.Add(time.Second), false},
	} {
		if got := before(c.now, c.limit); got != c.want {
			t.Errorf("%v before %v: %v", c.now, c.limit, got)
		}
	}
}
