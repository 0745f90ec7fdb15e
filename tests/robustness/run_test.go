package robustness

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/tests/cluster"
	"github.com/coordd/coordd/tests/faults"
	"github.com/coordd/coordd/tests/history"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

var (
	durationFlag = flag.Duration("duration", 0, "how long each test makes faults; default 20s, or COORDD_TEST_DURATION, or 8s with -short")
	seedFlag     = flag.Uint64("seed", 0, "seed of the run; default random, or COORDD_TEST_SEED")
)

func TestMain(m *testing.M) {
	faults.Become()
	cluster.Main(m)
}

// settings are the duration and the seed of a run.
func settings(t *testing.T) (time.Duration, uint64) {
	t.Helper()
	duration, seed := *durationFlag, *seedFlag
	var err error
	if text := os.Getenv("COORDD_TEST_DURATION"); text != "" && duration == 0 {
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	if text := os.Getenv("COORDD_TEST_SEED"); text != "" && seed == 0 {
		if seed, err = strconv.ParseUint(text, 0, 64); err != nil {
			t.Fatal(err)
		}
	}
	switch {
	case duration > 0:
	case testing.Short():
		duration = 8 * time.Second
	default:
		duration = 20 * time.Second
	}
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("go test ./robustness -run '^%s$' -duration %v -seed %d -timeout %v", t.Name(), duration, seed, 2*duration+10*time.Minute)
	return duration, seed
}

const (
	maxTTL    = 3 * time.Second // of the leases
	leaseLate = 8 * time.Second // how late one may end after its time to live undisturbed, as scribes on a busy machine see it
	epoch     = time.Minute     // after which clients go on with other keys, so that histories stay short
	settle    = 60 * time.Second
)

// run is a cluster under faults.
type run struct {
	t        *testing.T
	seed     uint64
	duration time.Duration
	site     *faults.Site
	plan     faults.Plan
	ledger   *history.Ledger
	contents *contents

	ctx  context.Context // of the clients
	stop context.CancelFunc
	busy sync.WaitGroup

	watchCtx   context.Context // of the watches, which go on when the clients have ended
	endWatches context.CancelFunc
	watches    sync.WaitGroup

	mu       sync.Mutex // guards all below
	broken   []string   // what is wrong
	counts   map[string]int
	sessions []*history.Session // that have ended and are to be checked
	compacts []compaction
}

// newRun starts a cluster. groups are the clients that are cut off together.
func newRun(t *testing.T, groups [][]string, args ...string) *run {
	t.Helper()
	duration, seed := settings(t)
	full := rand.New(rand.NewPCG(seed, 3)).IntN(3)
	args = append([]string{"--snapshot-count", "300", "--snapshot-catchup-entries", "100", "--heartbeat-interval", "50", "--election-timeout", "500"}, args...)
	site := faults.NewSite(t, 3, full, args...)
	site.Groups = groups
	r := &run{t: t, seed: seed, duration: duration, site: site, ledger: history.NewLedger(), counts: map[string]int{}}
	r.plan = faults.Draw(seed, site.Shape(duration, maxTTL))
	r.ctx, r.stop = context.WithCancel(t.Context())
	r.watchCtx, r.endWatches = context.WithCancel(t.Context())
	r.contents = newContents(site.Cluster.Members, r.violate)
	t.Cleanup(r.report)
	t.Cleanup(func() { r.stop(); r.endWatches(); r.busy.Wait(); r.watches.Wait() })
	return r
}

// rand gives the random numbers of one client.
func (r *run) rand(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(r.seed, 100+stream)) }

// violate notes that something is broken, and ends the run.
func (r *run) violate(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.broken) < 20 {
		r.broken = append(r.broken, fmt.Sprintf("%.3fs: ", r.site.Now().Seconds())+fmt.Sprintf(format, args...))
	}
	r.stop()
	r.endWatches()
}

// check is violate for an error, if there is one.
func (r *run) check(err error, what string) {
	if err != nil {
		r.violate("%s: %v", what, err)
	}
}

// failed tells whether anything is broken.
func (r *run) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.broken) > 0
}

func (r *run) count(what string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what] += n
}

// report tells what was done and, after a failure, all that is known of it.
func (r *run) report() {
	all, kinds, ended := r.site.Count()
	r.t.Logf("seed %d, %v: %d faults %v, %d members ended by themselves on failing and full disks; contents compared %d times; %v",
		r.seed, r.site.Now().Round(time.Second), all, kinds, ended, r.contents.count(), r.counts)
	for i, d := range r.site.Disks {
		if d.Flushes() == 0 {
			r.t.Errorf("no flush of %s came by the filter", r.site.Cluster.Members[i].Name)
		}
	}
	for _, b := range r.broken {
		r.t.Error(b)
	}
	if !r.t.Failed() {
		return
	}
	var done strings.Builder
	for _, d := range r.site.Done() {
		fmt.Fprintf(&done, "%9.3fs to %9.3fs %v of %v\n", d.From.Seconds(), d.To.Seconds(), d.Fault, d.Names)
	}
	dir := cluster.Artifacts(r.t)
	for name, text := range map[string]string{"plan.txt": r.plan.String(), "faults.txt": done.String(), "broken.txt": strings.Join(r.broken, "\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			r.t.Error(err)
		}
	}
	lines := strings.SplitAfter(done.String(), "\n")
	r.t.Logf("seed %d; the plan, the faults made and the histories are in %s; the last faults:\n%s", r.seed, dir, strings.Join(lines[max(0, len(lines)-20):], ""))
}

// faults makes the planned faults until the duration is over, and then ends the clients; members and links are whole afterwards.
func (r *run) faults() {
	ctx, cancel := context.WithTimeout(r.ctx, r.duration)
	defer cancel()
	if err := r.site.Run(ctx, r.plan); err != nil {
		r.violate("%v", err)
	}
	<-ctx.Done()
}

// end ends the clients.
func (r *run) end() {
	r.stop()
	r.busy.Wait()
}

// revive lets clients do something again after end.
func (r *run) revive() { r.ctx, r.stop = context.WithCancel(r.watchCtx) }

// awaitEmpty waits until no key with one of these prefixes is left, and gives the revision of the store.
func (r *run) awaitEmpty(prefixes ...string) (rev int64) {
	c := r.etcd("reader")
	for _, prefix := range prefixes {
		err := cluster.Poll(r.t.Context(), settle, func() error {
			ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
			defer cancel()
			got, err := c.Get(ctx, prefix, clientv3.WithPrefix())
			if err != nil {
				return err
			}
			if rev = got.Header.Revision; len(got.Kvs) > 0 {
				return fmt.Errorf("%d keys are left, the first %v", len(got.Kvs), got.Kvs[0])
			}
			return nil
		})
		r.check(err, "all sessions are given up, and of "+prefix)
	}
	return rev
}

// annotations are the faults for the pages of histories.
func (r *run) annotations() []porcupine.Annotation {
	var all []porcupine.Annotation
	for _, d := range r.site.Done() {
		all = append(all, porcupine.Annotation{Tag: "faults", Start: int64(d.From), End: int64(max(d.To, d.From)), Description: fmt.Sprint(d.Kind, d.Names), BackgroundColor: "#ffcccc"})
	}
	return all
}

// endpoints are the client URLs of members, of all without any.
func (r *run) endpoints(members ...int) []string { return r.site.Cluster.Endpoints(members...) }

// etcd is etcd's client behind the network, under a name, for some members. The test closes it.
func (r *run) etcd(name string, members ...int) *clientv3.Client {
	r.t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: r.endpoints(members...), Logger: zap.NewNop(), DialTimeout: 5 * time.Second,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(r.site.Network.Dialer(name))},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// native is our client, likewise.
func (r *run) native(name string, members ...int) *client.Client {
	r.t.Helper()
	dial := r.site.Network.Dialer(name)
	c, err := client.New(r.endpoints(members...), client.WithDialer(dialer(dial)))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// pause waits for a random time up to most. False: the run has ended.
func (r *run) pause(rng *rand.Rand, most time.Duration) bool {
	select {
	case <-r.ctx.Done():
		return false
	case <-time.After(time.Duration(rng.Int64N(int64(most)))):
		return true
	}
}

// epoch is which of the epochs it is.
func (r *run) epoch() int { return int(r.site.Now() / epoch) }

// dialer gives a dialer the form our client wants.
func dialer(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, address) }
}
