package integration

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/tests/cluster"
)

// startLimit is how long a start that must fail may take.
const startLimit = 30 * time.Second

// refused runs a program that must end by itself with code 1 and one line for people on stderr, which has all the texts. It is run
// twice: with its log, where that line is the last one, and without.
func refused(t *testing.T, args []string, texts ...string) {
	t.Helper()
	quiet := cluster.Run(t, startLimit, append(slices.Clone(args), "--log-level", "fatal")...)
	checkRefusal(t, quiet.Code, quiet.Stderr, texts...)
	if strings.Count(quiet.Stderr, "\n") != 1 || quiet.Stdout != "" {
		t.Errorf("%q says more than one line:\n%s%s", args, quiet.Stdout, quiet.Stderr)
	}
	loud := cluster.Run(t, startLimit, args...)
	checkRefusal(t, loud.Code, loud.Stderr, texts...)
}

// checkRefusal looks at the last line and the exit code.
func checkRefusal(t *testing.T, code int, output string, texts ...string) {
	t.Helper()
	if err := cluster.Crash(output); err != nil {
		t.Error(err)
	}
	lines := strings.Split(strings.TrimSuffix(output, "\n"), "\n")
	last := lines[len(lines)-1]
	if code != 1 || !strings.HasPrefix(last, "coordd: ") {
		t.Errorf("exit code %d, the last line is: %s", code, last)
	}
	for _, text := range texts {
		if !strings.Contains(last, text) {
			t.Errorf("no %q in: %s", text, last)
		}
	}
}

// same replaces the value of a flag.
func same(args []string, flag, value string) []string {
	args = slices.Clone(args)
	args[slices.Index(args, flag)+1] = value
	return args
}

func TestSecondProcess(t *testing.T) {
	t.Parallel()
	m := cluster.NewMember(t, "m")
	m.Restart(t)
	must(memberClient(t, m).Put(limited(t), "k", "v"))(t)
	other := cluster.NewMember(t, "m")
	refused(t, same(other.Args(), "--data-dir", m.Dir), m.Dir, "in use by another process", "--data-dir")
	if got := must(memberClient(t, m).Get(limited(t), "k"))(t); len(got.Kvs) != 1 {
		t.Error("the first process has lost a key")
	}
	m.Kill()
	m.Restart(t) // nothing was harmed
	if got := must(memberClient(t, m).Get(limited(t), "k"))(t); len(got.Kvs) != 1 {
		t.Error("a key is lost")
	}
}

func TestTakenPort(t *testing.T) {
	t.Parallel()
	taken := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	url := "http://" + taken.Addr().String()
	m := cluster.NewMember(t, "m")
	refused(t, same(m.Args(), "--listen-client-urls", url), taken.Addr().String(), "address already in use")
	refused(t, same(m.Args(), "--listen-peer-urls", url), taken.Addr().String(), "address already in use")
	m.Restart(t) // it has the ports of its own, and the directory is not spoilt
}

func TestBadDataDir(t *testing.T) {
	t.Parallel()
	m := cluster.NewMember(t, "m")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, same(m.Args(), "--data-dir", file), file, "--data-dir")
	refused(t, same(m.Args(), "--data-dir", filepath.Join(file, "below")), file, "--data-dir")
}

// Files that were damaged are refused by name, and what is not damaged is not touched.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	m := cluster.NewMember(t, "m")
	m.Restart(t)
	must(memberClient(t, m).Put(limited(t), "k", "v"))(t)
	m.Stop()
	var files []string
	if err := filepath.WalkDir(m.Dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && d.Name() != "LOCK" {
			files = append(files, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if len(files) < 2 {
		t.Fatalf("the files are %v", files)
	}
	for _, file := range files {
		good := must(os.ReadFile(file))(t)
		if len(good) == 0 {
			continue
		}
		for name, bad := range map[string][]byte{"garbage": []byte(strings.Repeat("garbage!", 2000)), "empty": {}} {
			if err := os.WriteFile(file, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			got := cluster.Run(t, startLimit, append(m.Args(), "--log-level", "fatal")...)
			checkRefusal(t, got.Code, got.Stderr, filepath.Dir(file))
			if t.Failed() {
				t.Fatalf("with %s in %s", name, file)
			}
		}
		if err := os.WriteFile(file, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m.Restart(t)
	if got := must(memberClient(t, m).Get(limited(t), "k"))(t); len(got.Kvs) != 1 {
		t.Error("a key is lost")
	}
}

// A member that is started with the data of another cluster harms neither.
func TestDataOfAnotherCluster(t *testing.T) {
	t.Parallel()
	a, b := cluster.New(t, 3, append([]string{"--initial-cluster-token", "a"}, quick...)...), cluster.New(t, 3, append([]string{"--initial-cluster-token", "b"}, quick...)...)
	must(a.Etcd(t).Put(limited(t), "k", "a"))(t)
	put := must(b.Etcd(t).Put(limited(t), "k", "b"))(t)
	ids := []string{fmt.Sprintf("%x", must(a.Etcd(t).Get(limited(t), "k"))(t).Header.ClusterId), fmt.Sprintf("%x", put.Header.ClusterId)}
	for _, m := range a.Members {
		m.Stop()
	}
	mixed := b.Members[2]
	mixed.Stop()
	own := mixed.Dir
	mixed.Dir = a.Members[2].Dir
	if err := mixed.Start(); err != nil {
		t.Fatal(err)
	}
	// It may end, or go on and say what is wrong; what it must not do is serve.
	cluster.Eventually(t, startLimit, func() error {
		log := mixed.Log()
		switch {
		case !mixed.Running():
			code, err := mixed.Wait(startLimit)
			checkRefusal(t, code, log, mixed.Dir, "cluster")
			return err
		case strings.Contains(log, "of cluster "+ids[0]) && strings.Contains(log, "of cluster "+ids[1]):
			return nil
		default:
			return errors.New("it does not say that the other members are of another cluster")
		}
	})
	if strings.Contains(mixed.Log(), "ready to serve client requests") {
		t.Error("a member with the data of another cluster serves")
	}
	mixed.Kill()
	if got := must(b.Etcd(t, 0, 1).Get(limited(t), "k"))(t); string(got.Kvs[0].Value) != "b" {
		t.Errorf("the cluster has got %v", got.Kvs)
	}
	mixed.Dir = own
	mixed.Restart(t)
	b.SameHash(t, 20*time.Second)
	a.Start(t)
	if got := must(a.Etcd(t).Get(limited(t), "k"))(t); string(got.Kvs[0].Value) != "a" {
		t.Errorf("the other cluster has got %v", got.Kvs)
	}
	a.SameHash(t, 20*time.Second)
}
