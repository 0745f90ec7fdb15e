package scenarios

import (
	"context"
	"testing"
	"time"

	"github.com/coordd/coordd/tests/cluster"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestMain(m *testing.M) { cluster.Main(m) }

// limited is the test's context with a limit that is meant to be reached only by what hangs.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// must gives the value, and fails the test on an error.
func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// single starts a cluster of one process, which must run until the end of the test, and gives a client.
func single(t *testing.T, args ...string) (*cluster.Member, *clientv3.Client) {
	t.Helper()
	c := cluster.New(t, 1, args...)
	t.Cleanup(func() {
		if !c.Members[0].Running() {
			t.Error("the process has ended")
		}
	})
	return c.Members[0], c.Etcd(t)
}

// load puts keys, made by name, with one value, many at once.
func load(t *testing.T, c *clientv3.Client, n int, name func(i int) string, value string) {
	t.Helper()
	const batch = 100 // in one transaction
	for i := 0; i < n; i += batch {
		var ops []clientv3.Op
		for j := i; j < min(i+batch, n); j++ {
			ops = append(ops, clientv3.OpPut(name(j), value))
		}
		must(c.Txn(limited(t)).Then(ops...).Commit())(t)
	}
}
