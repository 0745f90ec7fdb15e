package ctl

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/embed"
)

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// tool runs commands against a member in this process.
type tool struct {
	t    *testing.T
	node *embed.Node
	env  map[string]string
	dir  string
}

func newTool(t *testing.T) *tool {
	dir := t.TempDir()
	cfg := embed.NewTestConfig(filepath.Join(dir, "data"))
	node, err := embed.Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := node.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return &tool{t: t, node: node, env: map[string]string{}, dir: dir}
}

// run runs a command line and gives what it wrote and its exit code.
func (tl *tool) run(ctx context.Context, stdin string, args ...string) (stdout, stderr string, code int) {
	var out, errOut bytes.Buffer
	root := &cobra.Command{Use: "coordd"}
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.SetIn(strings.NewReader(stdin))
	root.AddCommand(commands(&settings{
		lookup: func(name string) (string, bool) { v, ok := tl.env[name]; return v, ok },
		extra:  []client.Option{client.WithDialer(tl.dial)},
	})...)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetArgs(args)
	code = Report(&errOut, root.ExecuteContext(ctx))
	return out.String(), errOut.String(), code
}

// dial reaches the member under every name but "down".
func (tl *tool) dial(ctx context.Context, _, address string) (net.Conn, error) {
	if strings.HasPrefix(address, "down:") {
		return nil, fmt.Errorf("connection refused")
	}
	return tl.node.Dialer()(ctx, address)
}

// masks replace what differs from run to run.
var masks = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`("(?:ClusterID|MemberID|Leader)" : )[1-9]\d*`), "${1}ID"},
	{regexp.MustCompile(`("(?:cluster_id|member_id|leader|ID)":)[1-9]\d{8,}`), "${1}0"},
	{regexp.MustCompile(`\b[0-9a-f]{13,16}\b`), "HEX"},
	{regexp.MustCompile(`took = [0-9.]+.?s`), "took = TIME"},
	{regexp.MustCompile(`"took":"[^"]+"`), `"took":"TIME"`},
	{regexp.MustCompile(`("Took" : )"[^"]+"`), `${1}"TIME"`},
	{regexp.MustCompile(`("RaftTerm" : )\d+`), "${1}N"},
	{regexp.MustCompile(`"(raft_term|raftTerm|raftIndex|raftAppliedIndex|dbSize|dbSizeInUse)":\d+`), `"${1}":1`},
	{regexp.MustCompile(`remaining\(\d+s\)`), "remaining(Ns)"},
	{regexp.MustCompile(`, \d+ kB, \d+ kB, \d+%, 2.1 GB, (\w+), (\w+), \d+, \d+, \d+,`), ", SIZE, SIZE, N%, 2.1 GB, $1, $2, TERM, INDEX, INDEX,"},
}

func mask(s, dir string) string {
	s = strings.ReplaceAll(s, dir, "DIR")
	for _, m := range masks {
		s = m.pattern.ReplaceAllString(s, m.with)
	}
	return s
}

// The outputs of all commands, against a member. Run with -rewrite to write them anew, and read the difference.
func TestCommands(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		tl := newTool(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "env":
				name, value, _ := strings.Cut(d.Input, "=")
				tl.env[name] = value
				return ""
			case "run":
			default:
				t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
			}
			line, stdin, _ := strings.Cut(d.Input, "\n")
			line = strings.ReplaceAll(line, "DIR", tl.dir)
			words, err := splitWords(line)
			if err != nil {
				t.Fatalf("%s: %v", d.Pos, err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			out, errOut, code := tl.run(ctx, strings.ReplaceAll(stdin, "<empty>", "")+"\n", words...)
			if errOut != "" {
				errOut = "stderr:\n" + errOut
			}
			if code != 0 {
				errOut += fmt.Sprintf("exit %d\n", code)
			}
			return mask(out+errOut, tl.dir)
		})
	})
}

// A watch prints what happens, runs a command for each change, and ends as interrupted.
func TestWatchCommand(t *testing.T) {
	tl := newTool(t)
	put := func(k, v string) {
		t.Helper()
		if _, errOut, code := tl.run(context.Background(), "", "put", k, v); code != 0 {
			t.Fatal(errOut)
		}
	}
	put("k", "1")
	put("k", "2")
	put("l", "3")
	del := func() {
		t.Helper()
		if _, errOut, code := tl.run(context.Background(), "", "del", "k"); code != 0 {
			t.Fatal(errOut)
		}
	}
	del()
	for _, tt := range []struct {
		args []string
		env  map[string]string
		want string
	}{
		{[]string{"watch", "k", "--rev", "2"}, nil, "PUT\nk\n1\nPUT\nk\n2\nDELETE\nk\n\n"},
		{[]string{"watch", "--rev", "2"}, map[string]string{"ETCDCTL_WATCH_KEY": "k", "ETCDCTL_WATCH_RANGE_END": "z"}, "PUT\nk\n1\nPUT\nk\n2\nPUT\nl\n3\nDELETE\nk\n\n"},
		{[]string{"watch", "", "--prefix", "--rev", "3", "--prev-kv"}, nil, "PUT\nk\n1\nk\n2\nPUT\nl\n3\nDELETE\nk\n2\nk\n\n"},
		{[]string{"watch", "k", "--rev", "5", "--", "sh", "-c", "echo $ETCD_WATCH_REVISION $ETCD_WATCH_EVENT_TYPE $ETCD_WATCH_KEY $ETCD_WATCH_VALUE"}, nil,
			"DELETE\nk\n\n5 \"DELETE\" \"k\" \"\"\n"},
	} {
		tl.env = tt.env
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		got, errOut, code := tl.runUntil(ctx, cancel, tt.want, tt.args...)
		cancel()
		if got != tt.want || code != exitInterrupted || errOut != "" {
			t.Errorf("%v: got %q, %q, exit %d; want %q", tt.args, got, errOut, code, tt.want)
		}
	}
}

// stopAfter is a writer that stops the command when everything wanted was written.
type stopAfter struct {
	got  bytes.Buffer
	want int
	stop func()
}

func (w *stopAfter) Write(p []byte) (int, error) {
	n, err := w.got.Write(p)
	if w.got.Len() >= w.want {
		w.stop()
	}
	return n, err
}

// runUntil runs a command until it has written as much as want.
func (tl *tool) runUntil(ctx context.Context, stop func(), want string, args ...string) (stdout, stderr string, code int) {
	out := &stopAfter{want: len(want), stop: stop}
	var errOut bytes.Buffer
	root := &cobra.Command{Use: "coordd", SilenceErrors: true, SilenceUsage: true}
	root.SetOut(out)
	root.SetErr(&errOut)
	root.AddCommand(commands(&settings{
		lookup: func(name string) (string, bool) { v, ok := tl.env[name]; return v, ok },
		extra:  []client.Option{client.WithDialer(tl.dial)},
	})...)
	root.SetArgs(args)
	code = Report(&errOut, root.ExecuteContext(ctx))
	return out.got.String(), errOut.String(), code
}

// A lease that is kept alive is renewed and reported until it is revoked.
func TestKeepAliveCommand(t *testing.T) {
	tl := newTool(t)
	out, _, _ := tl.run(context.Background(), "", "lease", "grant", "2")
	id := strings.Fields(out)[1]
	renewed := make(chan struct{})
	done := make(chan struct{})
	var got string
	var code int
	go func() {
		defer close(done)
		got, _, code = tl.runUntil(context.Background(), func() {
			select {
			case <-renewed:
			default:
				close(renewed)
			}
		}, fmt.Sprintf("lease %s keepalived with TTL(2)\n", id), "lease", "keep-alive", id)
	}()
	<-renewed
	if _, errOut, code := tl.run(context.Background(), "", "lease", "revoke", id); code != 0 {
		t.Fatal(errOut)
	}
	<-done
	if want := fmt.Sprintf("lease %s expired or revoked.\n", id); !strings.HasSuffix(got, want) || code != 0 {
		t.Fatalf("exit %d, got %q", code, got)
	}
}

// A snapshot that cannot be finished leaves no file, and one that is saved starts with the file of the member.
func TestSnapshotCommand(t *testing.T) {
	tl := newTool(t)
	path := filepath.Join(tl.dir, "backup.db")
	if _, errOut, code := tl.run(context.Background(), "", "snapshot", "save", path); code != 0 {
		t.Fatal(errOut)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size()%512 != 32 || info.Mode().Perm() != 0o600 {
		t.Fatalf("saved %v, %v", info, err)
	}
	broken := filepath.Join(tl.dir, "broken.db")
	_, errOut, code := tl.run(context.Background(), "", "snapshot", "save", broken, "--endpoints", "down:1", "--command-timeout", "200ms")
	if code == 0 {
		t.Fatal("saved from a member that is down")
	}
	left, err := filepath.Glob(broken + "*")
	if err != nil || len(left) > 0 {
		t.Fatalf("left %v, %v; said %s", left, err, errOut)
	}
}
