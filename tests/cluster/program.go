package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// binaryVariable names the program to test; without it, Main builds one.
const binaryVariable = "COORDD_BINARY"

// Main is the TestMain of a package that starts processes: it sees to it that there is a program, runs the tests, and
// fails if they leave goroutines behind.
func Main(m *testing.M) {
	remove, err := provide()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		remove()
		os.Exit(code)
	}))
}

// provide builds the program if none is named, and names it.
func provide() (remove func(), err error) {
	if os.Getenv(binaryVariable) != "" {
		return func() {}, nil
	}
	dir, err := os.MkdirTemp("", "coordd-tests-")
	if err != nil {
		return nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) } // in the system's folder for such files
	file := filepath.Join(dir, "coordd")
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/coordd/coordd").Output()
	if err != nil {
		remove()
		return nil, fmt.Errorf("looking for the module of the program: %w", err)
	}
	build := exec.Command("go", "build", "-o", file, "./cmd/coordd")
	build.Dir = strings.TrimSpace(string(module)) // its go.mod counts, not that of the tests
	if out, err := build.CombinedOutput(); err != nil {
		remove()
		return nil, fmt.Errorf("building the program: %w\n%s", err, out)
	}
	return remove, os.Setenv(binaryVariable, file)
}

// Program is the path of the program under test.
func Program(t testing.TB) string {
	t.Helper()
	file := os.Getenv(binaryVariable)
	if file == "" {
		t.Fatalf("no program: call cluster.Main in TestMain, or set %s", binaryVariable)
	}
	file, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// ended is how a program ended.
type ended struct {
	Code           int // -1: by a signal
	Stdout, Stderr string
}

// Run runs the program until it ends, which it must do within limit.
func Run(t testing.TB, limit time.Duration, args ...string) ended {
	t.Helper()
	return RunCommand(t, limit, Program(t), args...)
}

// RunCommand is Run for a command that starts the program, such as prlimit.
func RunCommand(t testing.TB, limit time.Duration, name string, args ...string) ended {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = &stdout, &stderr, environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s %q still ran after %v\n%s%s", name, args, limit, &stdout, &stderr)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return ended{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// environment is the test's without what would configure the program.
func environment() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "ETCD_") && !strings.HasPrefix(e, "COORDD_") {
			env = append(env, e)
		}
	}
	return env
}

// artifactsVariable names the folder for what a failed test leaves behind.
const artifactsVariable = "COORDD_TEST_ARTIFACTS"

// kept are the folders made for artifacts, by the name of the test.
var kept = struct {
	sync.Mutex
	of map[string]string
}{of: map[string]string{}}

// Artifacts makes a folder for what a failed test leaves behind, in the one that COORDD_TEST_ARTIFACTS names or else in the
// system's for temporary files, and prints its path. A test has one.
func Artifacts(t testing.TB) string {
	t.Helper()
	kept.Lock()
	defer kept.Unlock()
	if dir := kept.of[t.Name()]; dir != "" {
		return dir
	}
	top := os.Getenv(artifactsVariable)
	if top != "" {
		if err := os.MkdirAll(top, 0o755); err != nil {
			t.Error(err)
		}
	}
	dir, err := os.MkdirTemp(top, strings.ReplaceAll(t.Name(), "/", "-")+"-")
	if err != nil {
		t.Errorf("no folder for artifacts: %v", err)
		return ""
	}
	t.Logf("artifacts: %s", dir)
	kept.of[t.Name()] = dir
	return dir
}

// Eventually asks until the answer is nil, and fails the test with the last answer when the time is up.
func Eventually(t testing.TB, limit time.Duration, ask func() error) {
	t.Helper()
	if err := Poll(t.Context(), limit, ask); err != nil {
		t.Fatal(err)
	}
}

// Poll asks until the answer is nil, and gives the last answer when the time is up.
func Poll(ctx context.Context, limit time.Duration, ask func() error) error {
	end := time.Now().Add(limit)
	for {
		err := ask()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		case time.Now().After(end):
			return fmt.Errorf("after %v: %w", limit, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
