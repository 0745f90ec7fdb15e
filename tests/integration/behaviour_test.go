package integration

import (
	"context"
	"testing"
	"time"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/tests/cluster"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestMain(m *testing.M) { cluster.Main(m) }

// served is a cluster of three, of processes or of embedded nodes.
type served interface {
	Etcd(t testing.TB, members ...int) *clientv3.Client
	Native(t testing.TB, members ...int) *client.Client
	Endpoints(members ...int) []string
	Size() int
}

var (
	_ served = (*cluster.Cluster)(nil)
	_ served = (*cluster.Embedded)(nil)
)

// TestBehaviour runs cases on both kinds of clusters. The cases of one cluster share it, so each uses keys that begin with its name (see key).
func TestBehaviour(t *testing.T) {
	for _, kind := range []struct {
		name  string
		start func(t *testing.T) served
	}{
		{"processes", func(t *testing.T) served { return cluster.New(t, 3) }},
		{"embedded", func(t *testing.T) served { return cluster.Embed(t, 3) }},
	} {
		t.Run(kind.name, func(t *testing.T) {
			s := kind.start(t)
			for _, c := range []struct {
				name string
				test func(t *testing.T, s served)
			}{
				{"PutGetDelete", putGetDelete}, {"Ranges", ranges}, {"CountIgnoresFilters", countIgnoresFilters}, {"Pages", pages},
				{"Txn", txn}, {"TxnOverlap", txnOverlap}, {"CreateOnce", createOnce}, {"CancelledReads", cancelledReads},
				{"Streams", streams}, {"MemberCalls", memberCalls},
				{"Watch", watchChanges}, {"WatchHistory", watchHistory}, {"WatchOddities", watchOddities}, {"WatchProgress", watchProgress}, {"ManyWatchers", manyWatchers},
				{"Lease", leases}, {"LeaseEverywhere", leaseEverywhere}, {"NegativeLease", negativeLease}, {"LeaseAge", leaseAge},
				{"BothClients", bothClients}, {"BothKeepAlive", bothKeepAlive}, {"Locks", locks}, {"Elections", elections}, {"STM", stm},
				{"Compaction", compaction}, // the last, since it takes history away from the others
			} {
				t.Run(c.name, func(t *testing.T) { c.test(t, s) })
			}
		})
	}
}

// key is a name that no other case uses.
func key(t *testing.T, name string) string { return t.Name() + "/" + name }

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
