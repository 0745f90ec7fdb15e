package robustness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coordd/tests/cluster"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// comparing is a cluster without faults whose contents are compared.
type comparing struct {
	t        *testing.T
	cluster  *cluster.Cluster
	at       int              // the member that
	kv       *clientv3.Client // is connected to
	contents *contents
	rev      int64 // of the last write

	mu    sync.Mutex // guards found
	found []string   // what the comparison has found wrong
}

// compareThree starts three members and the comparison of their contents.
func compareThree(t *testing.T) *comparing {
	c := &comparing{t: t, cluster: cluster.New(t, 3)}
	c.contents = newContents(c.cluster.Members, func(format string, args ...any) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.found = append(c.found, fmt.Sprintf(format, args...))
	})
	c.at = slices.Index(c.cluster.Members, c.cluster.Leader(t))
	c.kv = c.cluster.Etcd(t, c.at) // requests do not get stuck at others that are held
	var busy sync.WaitGroup
	ctx, end := context.WithCancel(t.Context())
	t.Cleanup(func() { end(); busy.Wait() })
	for i := range c.cluster.Members {
		client := c.cluster.Etcd(t, i)
		busy.Go(func() { c.contents.follow(ctx, i, client) })
	}
	return c
}

// other is a member that the client is not connected to.
func (c *comparing) other() *cluster.Member {
	return c.cluster.Members[(c.at+1)%len(c.cluster.Members)]
}

// compact writes five keys and compacts in the middle.
func (c *comparing) compact() {
	c.t.Helper()
	for i := range 5 {
		cluster.Eventually(c.t, settle, func() error { // there is no leader for a moment if the one that is held was it
			ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
			defer cancel()
			r, err := c.kv.Put(ctx, fmt.Sprintf("key%d", i), "before")
			if err == nil {
				c.rev = r.Header.Revision
			}
			return err
		})
	}
	cluster.Eventually(c.t, settle, func() error {
		ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
		defer cancel()
		_, err := c.kv.Compact(ctx, c.rev-2)
		if errors.Is(err, rpctypes.ErrCompacted) { // by the call before this one, which got no answer
			return nil
		}
		return err
	})
	c.contents.compacted(c.rev - 2)
}

// compared waits until answers were held against each other so often.
func (c *comparing) compared(n int) {
	c.t.Helper()
	cluster.Eventually(c.t, settle, func() error {
		if got := c.contents.count(); got != n {
			return fmt.Errorf("%d comparisons, want %d; %v", got, n, c.contents.lacking())
		}
		return nil
	})
}

// differences are what was found wrong so far.
func (c *comparing) differences() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.found)
}

// A member that is held or down when there is a compaction is compared once it is back, if no other compaction came.
func TestContentsOfLateMembers(t *testing.T) {
	t.Parallel()
	c := compareThree(t)
	c.compact()
	c.compared(3) // the second answer with one, the third with two
	late := c.other()
	late.Pause()
	c.compact()
	c.compared(4)
	late.Resume()
	c.compared(6)
	late.Kill()
	c.compact()
	c.compared(7)
	c.compact() // the member is not asked for the one before any more
	c.compared(8)
	late.Restart(t)
	c.compared(10)
	if found := c.differences(); len(found) > 0 {
		t.Errorf("members have the same contents, but: %q", found)
	}
}

// One value that was changed in the data file of one member is found at the next compaction, and told with the members' names and hashes.
func TestContentsDiffer(t *testing.T) {
	t.Parallel()
	c := compareThree(t)
	c.compact()
	c.compared(3)
	changed := c.other()
	changed.Stop()
	changeRow(t, changed, "key4")
	changed.Restart(t)
	if found := c.differences(); len(found) > 0 {
		t.Fatalf("there is no difference yet, but: %q", found)
	}
	r, err := c.kv.Put(t.Context(), "other", "value") // key4 stays as it is
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.kv.Compact(t.Context(), r.Header.Revision); err != nil {
		t.Fatal(err)
	}
	c.contents.compacted(r.Header.Revision)
	c.compared(6)
	found := c.differences()
	if len(found) == 0 {
		t.Fatal("the row that was changed was not found")
	}
	want := []string{fmt.Sprintf("at revision %d,", r.Header.Revision), changed.Name + " has hash"}
	for _, w := range want {
		if last := found[len(found)-1]; !strings.Contains(last, w) {
			t.Errorf("the report %q does not say %q", last, w)
		}
	}
}

// changeRow changes the value of a key in the data file of a member that does not run.
func changeRow(t *testing.T, m *cluster.Member, key string) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(m.Dir, "member", "snap", "db"), 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(func(tx *bbolt.Tx) error {
		rows := tx.Bucket([]byte("key"))
		cur := rows.Cursor()
		for k, row := cur.Last(); k != nil; k, row = cur.Prev() { // the newest is the one that compactions leave
			if bytes.Contains(row, []byte(key)) {
				return rows.Put(bytes.Clone(k), bytes.ReplaceAll(row, []byte("before"), []byte("behind")))
			}
		}
		return fmt.Errorf("no row of %s is in the file", key)
	}); err != nil {
		t.Fatal(err)
	}
}
