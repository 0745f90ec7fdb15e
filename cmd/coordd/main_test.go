package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coordd/coordd/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output takes what a program writes, and tells when a text has come.
type output struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	more chan struct{}
}

func newOutput() *output { return &output{more: make(chan struct{}, 1)} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.more <- struct{}{}:
	default:
	}
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// wait waits until text has been written n times, or done is closed.
func (o *output) wait(t *testing.T, text string, n int, done <-chan int) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for strings.Count(o.String(), text) < n {
		select {
		case <-o.more:
		case code := <-done:
			t.Fatalf("ended with %d before %q:\n%s", code, text, o)
		case <-limit:
			t.Fatalf("no %q in:\n%s", text, o)
		}
	}
}

// exec runs the program until it ends.
func exec(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out, errs bytes.Buffer
	code = run(ctx, append([]string{"coordd"}, args...), env, &out, &errs)
	return code, out.String(), errs.String()
}

// background runs the program until stop is called, which gives the exit code.
func background(t *testing.T, args ...string) (out *output, done chan int, stop func() int) {
	ctx, cancel := context.WithCancelCause(context.Background())
	out, done = newOutput(), make(chan int, 1)
	go func() { done <- run(ctx, append([]string{"coordd"}, args...), nil, out, out) }()
	stop = sync.OnceValue(func() int {
		cancel(&signalError{syscall.SIGTERM})
		return <-done
	})
	return out, done, stop
}

// freePort gives the first of count ports that are free.
func freePort(t *testing.T, count int) int {
	t.Helper()
	for range 100 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		open := []net.Listener{ln}
		base := ln.Addr().(*net.TCPAddr).Port
		for i := 1; i < count; i++ {
			if ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+i)); err == nil {
				open = append(open, ln)
			}
		}
		for _, ln := range open {
			_ = ln.Close()
		}
		if len(open) == count {
			return base
		}
	}
	t.Fatal("no free ports")
	return 0
}

func serverFlags(t *testing.T) (args []string, url string) {
	base := freePort(t, 2)
	url = fmt.Sprintf("http://127.0.0.1:%d", base)
	peer := fmt.Sprintf("http://127.0.0.1:%d", base+1)
	return []string{
		"--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer, "--unsafe-no-fsync",
		"--data-dir", filepath.Join(t.TempDir(), "data"), "--heartbeat-interval", "10", "--election-timeout", "100",
	}, url
}

func TestVersion(t *testing.T) {
	code, out, _ := exec(t, nil, "--version")
	want := regexp.MustCompile(`^etcd Version: 3\.\d+\.\d+\nGit SHA: .*\(coordd Version: \d+\.\d+\.\d+\)\nGo Version: go.*\nGo OS/Arch: ` + runtime.GOOS + "/" + runtime.GOARCH + "\n$")
	if code != 0 || !want.MatchString(out) {
		t.Errorf("exit %d\n%s", code, out)
	}
	code, out, _ = exec(t, nil, "version")
	if code != 0 || !regexp.MustCompile(`^coordd Version: \d+\.\d+\.\d+\netcd Version: 3`).MatchString(out) || strings.Count(out, "\n") != 5 {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestHelp(t *testing.T) {
	for _, flag := range []string{"--help", "-h", "-help"} {
		code, out, errs := exec(t, nil, flag)
		if code != 0 || !strings.Contains(out, "--listen-client-urls") || !strings.Contains(out, "coordd cluster") || errs != "" {
			t.Errorf("%s: exit %d\n%s%s", flag, code, out, errs)
		}
	}
	code, out, _ := exec(t, nil, "help")
	for _, want := range []string{"cluster", "sample-config", "get", "put", "watch", "version"} {
		if code != 0 || !strings.Contains(out, "  "+want) {
			t.Errorf("help: exit %d, no %s in\n%s", code, want, out)
		}
	}
	if code, out, _ := exec(t, nil, "sample-config"); code != 0 || !strings.Contains(out, "# name: 'default'") {
		t.Errorf("sample-config: exit %d\n%s", code, out)
	}
	if code, out, _ := exec(t, nil, "cluster", "--help"); code != 0 || !strings.Contains(out, "--base-port") {
		t.Errorf("cluster --help: exit %d\n%s", code, out)
	}
}

// Every failure is one line on stderr with the thing and the next step, and an exit code.
func TestFailures(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	takenURL := "http://" + taken.Addr().String()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	inFile := filepath.Join(file, "data")
	t.Chdir(t.TempDir())
	for _, x := range []struct {
		code  int
		texts []string
		args  []string
	}{
		{2, []string{"flag provided but not defined: -no-such-flag", "coordd --help"}, []string{"--no-such-flag"}},
		{1, []string{`"positional" is not a valid flag`, "coordd help"}, []string{"positional"}},
		{1, []string{"--advertise-client-urls is required"}, []string{"--listen-client-urls", "http://127.0.0.1:1"}},
		{1, []string{"not there yet"}, []string{"--auto-tls"}},
		{1, []string{"address already in use", taken.Addr().String()}, []string{"--listen-client-urls", takenURL, "--advertise-client-urls", takenURL, "--log-level", "fatal"}},
		{1, []string{file, "--data-dir"}, []string{"--data-dir", inFile, "--listen-peer-urls", "http://127.0.0.1:0", "--listen-client-urls", "http://127.0.0.1:0", "--advertise-client-urls", "http://127.0.0.1:1", "--log-level", "fatal"}},
		{1, []string{"log file", "--log-outputs"}, []string{"--log-outputs", inFile}},
		{1, []string{"--size is 0"}, []string{"cluster", "--size", "0"}},
		{1, []string{"--base-port is 70000"}, []string{"cluster", "--base-port", "70000"}},
		{1, []string{file, "--data-dir"}, []string{"cluster", "--data-dir", file}},
	} {
		code, _, errs := exec(t, nil, x.args...)
		if code != x.code || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "coordd: ") {
			t.Errorf("%q: exit %d, want %d\n%s", x.args, code, x.code, errs)
		}
		for _, text := range x.texts {
			if !strings.Contains(errs, text) {
				t.Errorf("%q: no %q in %s", x.args, text, errs)
			}
		}
	}
	if code, _, errs := exec(t, []string{"ETCD_NAME=a"}, "--name", "b"); code != 1 || !strings.Contains(errs, "conflicting environment variable ETCD_NAME") {
		t.Errorf("exit %d\n%s", code, errs)
	}
}

func TestOneLine(t *testing.T) {
	full := fmt.Errorf("write f: %w", syscall.ENOSPC)
	for _, x := range []struct {
		err  error
		want string
	}{
		{errors.Join(errors.New("a"), errors.New("b")), "a; b"},
		{full, "write f: no space left on device; make room on the disk, then start again"},
		{fmt.Errorf("%w; make room", full), "write f: no space left on device; make room"},
	} {
		if got := oneLine(x.err); got != x.want {
			t.Errorf("%q, want %q", got, x.want)
		}
	}
}

// Called etcd, it is a server only.
func TestCalledEtcd(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"/usr/bin/etcd", "get", "k"}, nil, &out, &errs); code != 1 || !strings.Contains(errs.String(), `"get" is not a valid flag`) {
		t.Errorf("exit %d\n%s", code, &errs)
	}
	out.Reset()
	if code := run(t.Context(), []string{"/usr/bin/etcd", "--version"}, nil, &out, &errs); code != 0 || !strings.HasPrefix(out.String(), "etcd Version: 3.") {
		t.Errorf("exit %d\n%s", code, &out)
	}
}

func TestServe(t *testing.T) {
	args, url := serverFlags(t)
	out, done, stop := background(t, args...)
	out.wait(t, `"msg":"ready to serve client requests"`, 1, done)
	c, err := client.New([]string{url})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	if code, got, errs := exec(t, nil, "get", "k", "--endpoints", url); code != 0 || got != "k\nv\n" {
		t.Errorf("get: exit %d\n%s%s", code, got, errs)
	}
	// A second server on the same directory is told so.
	other, _ := serverFlags(t)
	for i, a := range other {
		if a == "--data-dir" {
			other[i+1] = args[i+1]
		}
	}
	if code, _, errs := exec(t, nil, append(other, "--log-level", "fatal")...); code != 1 || !strings.Contains(errs, "in use") || strings.Count(errs, "\n") != 1 {
		t.Errorf("the second server: exit %d\n%s", code, errs)
	}
	if code := stop(); code != endedBySignal {
		t.Errorf("ended with %d", code)
	}
	for _, want := range []string{"Running: ", "published local member to cluster through raft", "received signal; shutting down", "NOT_SERVING"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in the log", want)
		}
	}
	// It comes back with its data.
	out, done, stop = background(t, args...)
	out.wait(t, `"msg":"ready to serve client requests"`, 1, done)
	if r, err := c.Get(t.Context(), "k"); err != nil || len(r.Kvs) != 1 {
		t.Errorf("%v %v", r, err)
	}
	stop()
}

func TestCluster(t *testing.T) {
	dir, base := filepath.Join(t.TempDir(), "data"), freePort(t, 22)
	args := []string{"cluster", "--data-dir", dir, "--base-port", fmt.Sprint(base)}
	out, done, stop := background(t, args...)
	out.wait(t, "Interrupt with ^C", 1, done)
	endpoints := fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", base, base+10, base+20)
	for _, want := range []string{"etcdctl --endpoints " + endpoints + " put greeting hello", "coordd get greeting --endpoints " + endpoints, dir, fmt.Sprintf("m3  clients http://127.0.0.1:%d  peers http://127.0.0.1:%d", base+20, base+21)} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if code, got, errs := exec(t, nil, "put", "greeting", "hello", "--endpoints", endpoints); code != 0 || got != "OK\n" {
		t.Errorf("put: exit %d\n%s%s", code, got, errs)
	}
	if code := stop(); code != 0 {
		t.Errorf("ended with %d\n%s", code, out)
	}
	if code, _, errs := exec(t, nil, append(args, "--size", "5")...); code != 1 || !strings.Contains(errs, "holds a cluster of 3 members") {
		t.Errorf("another size: exit %d\n%s", code, errs)
	}
	out, done, stop = background(t, "cluster", "--data-dir", dir) // remembers its ports
	out.wait(t, "Interrupt with ^C", 1, done)
	if code, got, errs := exec(t, nil, "get", "greeting", "--endpoints", endpoints); code != 0 || got != "greeting\nhello\n" {
		t.Errorf("get: exit %d\n%s%s", code, got, errs)
	}
	// The ports are taken now.
	code, _, errs := exec(t, nil, "cluster", "--data-dir", dir+"2", "--base-port", fmt.Sprint(base))
	if code != 1 || !strings.Contains(errs, "address already in use") || !strings.Contains(errs, "--base-port") {
		t.Errorf("taken ports: exit %d\n%s", code, errs)
	}
	if code := stop(); code != 0 {
		t.Errorf("ended with %d\n%s", code, out)
	}
}

func TestPorts(t *testing.T) {
	for _, x := range []struct {
		p    plan
		want string
	}{
		{plan{3, 2379}, "[2379 2380 22379 22380 32379 32380]"},
		{plan{2, 5000}, "[5000 5001 5010 5011]"},
	} {
		var got []int
		for i := range x.p.Size {
			c, p := x.p.ports(i)
			got = append(got, c, p)
		}
		if fmt.Sprint(got) != x.want {
			t.Errorf("%v: %v", x.p, got)
		}
	}
	seen := map[int]bool{}
	for i := range maxSize {
		c, p := plan{maxSize, defaultBasePort}.ports(i)
		if seen[c] || seen[p] || p > 65535 {
			t.Errorf("member %d has the ports %d and %d", i, c, p)
		}
		seen[c], seen[p] = true, true
	}
}

func TestGCPercent(t *testing.T) {
	for _, x := range []struct {
		live uint64
		want int
	}{{0, 1600}, {1 << 20, 1600}, {8 << 20, 400}, {20 << 20, 150}, {64 << 20, 100}, {1 << 40, 100}} {
		if got := percentFor(x.live); got != x.want {
			t.Errorf("%d bytes: %d %%, want %d", x.live, got, x.want)
		}
	}
}

// The tuner follows collections, keeps away when the environment decides, and ends.
func TestGCTuner(t *testing.T) {
	for _, env := range []string{"GOGC=100", "GOMEMLIMIT=1GiB"} {
		if tuner := tuneGC([]string{env}); !tuner.stopped {
			t.Errorf("%s is not heeded", env)
		}
	}
	tuner := tuneGC(nil)
	tuner.mu.Lock()
	tuner.current = 0 // as if the heap had been another
	tuner.mu.Unlock()
	current := func() int {
		tuner.mu.Lock()
		defer tuner.mu.Unlock()
		return tuner.current
	}
	for limit := time.Now().Add(10 * time.Second); current() == 0; runtime.GC() {
		if time.Now().After(limit) {
			t.Fatal("collections are not noticed")
		}
	}
	tuner.stop()
	runtime.GC()
	tuner.stop()
}
