package scenarios

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/coordd/coordd/tests/cluster"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Report 58: a transaction that compares the lease of a key that does not exist runs its other branch.
func TestTxnComparesLeaseOfMissingKey(t *testing.T) {
	t.Parallel()
	m, c := single(t)
	script := "lease(\"foo1\") > \"0\"\n\nput branch success\n\nput branch failure\n\n"
	for _, x := range []struct{ want, branch string }{{"FAILURE", "failure"}, {"SUCCESS", "success"}} {
		got := cluster.RunCommand(t, cluster.StartLimit, "sh", "-c", `printf "%s" "$1" | "$0" txn --endpoints "$2"`, cluster.Program(t), script, m.ClientURL)
		if got.Code != 0 || !strings.HasPrefix(got.Stdout, x.want+"\n") || got.Stderr != "" {
			t.Errorf("%+v, want %s", got, x.want)
		}
		if r := must(c.Get(limited(t), "branch"))(t); len(r.Kvs) != 1 || string(r.Kvs[0].Value) != x.branch {
			t.Errorf("%v, want %s", r.Kvs, x.branch)
		}
		lease := must(c.Grant(limited(t), 600))(t)
		must(c.Put(limited(t), "foo1", "v", clientv3.WithLease(lease.ID)))(t)
	}
}

// Report 59: make-mirror that begins at a revision writes keys under the names they have, with their prefix; keys with a lease are
// copied without it, and deleted when it ends.
func TestMirrorFromRevisionKeepsPrefix(t *testing.T) {
	t.Parallel()
	from, c := single(t)
	to, copied := single(t)
	must(c.Put(limited(t), "app/old", "v"))(t)
	must(c.Put(limited(t), "foreign", "v"))(t)
	lease := must(c.Grant(limited(t), 600))(t)
	begin := must(c.Put(limited(t), "app/key", "v", clientv3.WithLease(lease.ID)))(t).Header.Revision
	must(c.Put(limited(t), "app/last", "v"))(t)

	mirror := exec.Command(cluster.Program(t), "make-mirror", to.ClientURL, "--endpoints", from.ClientURL, "--prefix", "app/", "--rev", fmt.Sprint(begin))
	mirror.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var output strings.Builder
	mirror.Stdout, mirror.Stderr = &output, &output
	if err := mirror.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mirror.Wait() }()
	defer func() {
		_ = mirror.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("make-mirror says: %s", &output)
		}
	}()
	has := func(want string) {
		t.Helper()
		cluster.Eventually(t, cluster.StartLimit, func() error {
			select {
			case err := <-ended:
				ended <- err
				t.Fatalf("make-mirror has ended: %v: %s", err, &output)
			default:
			}
			var got []string
			for _, kv := range must(copied.Get(limited(t), "\x00", clientv3.WithFromKey()))(t).Kvs {
				got = append(got, string(kv.Key))
				if kv.Lease != 0 {
					t.Fatalf("%s has a lease", kv.Key)
				}
			}
			if text := strings.Join(got, " "); text != want {
				return errors.New("the copy has " + text)
			}
			return nil
		})
	}
	has("app/key app/last")
	must(c.Revoke(limited(t), lease.ID))(t)
	has("app/last")
}
