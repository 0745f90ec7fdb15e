package cluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// StartLimit is how long a member may take to be ready on a busy machine.
const StartLimit = 60 * time.Second

// readyText stands in the log once a member serves.
const readyText = "ready to serve client requests"

// Member is one process of a cluster.
type Member struct {
	Name      string
	Dir       string // of its data
	ClientURL string
	PeerURL   string // on which it listens for other members
	// Advertised is the URL that the other members are told, if it is not PeerURL.
	Advertised string
	// Launch, if there is one, may change the command before each start. What it gives is called after the start.
	Launch func(cmd *exec.Cmd) (started func(), err error)

	program string
	args    []string
	logPath string

	mu      sync.Mutex
	cmd     *exec.Cmd     // nil when none runs
	exited  chan struct{} // closed at the end of cmd
	begin   int64         // where the log of cmd begins
	stopped bool          // by SIGSTOP
}

// NewMember gives a member that has not been started, the only one of its cluster unless the arguments say otherwise. It ends with the test.
func NewMember(t testing.TB, name string, args ...string) *Member {
	t.Helper()
	ports := freePorts(t, 2)
	dir := t.TempDir()
	m := &Member{
		Name: name, Dir: filepath.Join(dir, "data"), logPath: filepath.Join(dir, "log"), program: Program(t),
		ClientURL: fmt.Sprintf("http://127.0.0.1:%d", ports[0]), PeerURL: fmt.Sprintf("http://127.0.0.1:%d", ports[1]),
	}
	m.args = args
	t.Cleanup(func() {
		m.Kill()
		if t.Failed() {
			m.report(t)
		}
	})
	return m
}

// Args are the arguments it is started with.
func (m *Member) Args() []string {
	return append([]string{
		"--name", m.Name, "--data-dir", m.Dir,
		"--listen-client-urls", m.ClientURL, "--advertise-client-urls", m.ClientURL,
		"--listen-peer-urls", m.PeerURL, "--initial-advertise-peer-urls", m.advertised(),
	}, m.args...)
}

func (m *Member) advertised() string {
	if m.Advertised != "" {
		return m.Advertised
	}
	return m.PeerURL
}

// Start starts the process, which must not run, and does not wait for it to be ready.
func (m *Member) Start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd != nil {
		return fmt.Errorf("member %s runs already", m.Name)
	}
	file, err := os.OpenFile(m.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close() // the process has it
	if m.begin, err = file.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	cmd := exec.Command(m.program, m.Args()...)
	cmd.Stdout, cmd.Stderr, cmd.Env = file, file, environment()
	// The signal comes when the thread that started the process ends; the runtime ends none that no goroutine is
	// locked to.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.launch(cmd); err != nil {
		return err
	}
	exited := make(chan struct{})
	m.cmd, m.exited, m.stopped = cmd, exited, false
	go func() {
		_ = cmd.Wait() // how it ended stands in cmd.ProcessState
		close(exited)
	}()
	return nil
}

// launch starts a command, as Launch wants it.
func (m *Member) launch(cmd *exec.Cmd) error {
	if m.Launch == nil {
		return cmd.Start()
	}
	started, err := m.Launch(cmd)
	if err != nil {
		return err
	}
	err = cmd.Start()
	started()
	return err
}

// Pid is the number of the process, 0 if none was started since the last one ended.
func (m *Member) Pid() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd == nil {
		return 0
	}
	return m.cmd.Process.Pid
}

// WaitReady waits until it serves.
func (m *Member) WaitReady(limit time.Duration) error {
	end := time.Now().Add(limit)
	for !strings.Contains(m.Log(), readyText) {
		switch {
		case !m.Running():
			return fmt.Errorf("member %s has ended before it was ready: %s", m.Name, Tail(m.Log(), 3))
		case time.Now().After(end):
			return fmt.Errorf("member %s is not ready after %v", m.Name, limit)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

// Restart is Start with the wait.
func (m *Member) Restart(t testing.TB) {
	t.Helper()
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	if err := m.WaitReady(StartLimit); err != nil {
		t.Fatal(err)
	}
}

// Running tells whether the process runs, which it does while it is paused too.
func (m *Member) Running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd == nil {
		return false
	}
	select {
	case <-m.exited:
		return false
	default:
		return true
	}
}

// Kill ends the process by SIGKILL and waits for that. It may have ended before.
func (m *Member) Kill() { m.end(syscall.SIGKILL) }

// Stop ends the process by SIGTERM and waits for that. It gives how it ended.
func (m *Member) Stop() *os.ProcessState {
	m.Resume()
	return m.end(syscall.SIGTERM)
}

// Wait waits for the process to end by itself, and gives its exit code.
func (m *Member) Wait(limit time.Duration) (int, error) {
	m.mu.Lock()
	exited := m.exited
	m.mu.Unlock()
	select {
	case <-exited:
		return m.end(syscall.SIGKILL).ExitCode(), nil
	case <-time.After(limit):
		return 0, fmt.Errorf("member %s still runs after %v", m.Name, limit)
	}
}

func (m *Member) end(s syscall.Signal) *os.ProcessState {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd == nil {
		return nil
	}
	_ = m.cmd.Process.Signal(s) // it may have ended already
	<-m.exited
	state := m.cmd.ProcessState
	m.cmd = nil
	return state
}

// Pause holds the process by SIGSTOP until Resume.
func (m *Member) Pause() { m.signal(syscall.SIGSTOP, true) }

// Resume ends a pause; without one it does nothing.
func (m *Member) Resume() { m.signal(syscall.SIGCONT, false) }

func (m *Member) signal(s syscall.Signal, stopped bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd == nil || m.stopped == stopped {
		return
	}
	if m.cmd.Process.Signal(s) == nil {
		m.stopped = stopped
	}
}

// Paused tells whether it is held.
func (m *Member) Paused() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cmd != nil && m.stopped
}

// Log is what the process has written since it was last started.
func (m *Member) Log() string {
	m.mu.Lock()
	begin := m.begin
	m.mu.Unlock()
	all, err := os.ReadFile(m.logPath)
	if err != nil || int64(len(all)) < begin {
		return ""
	}
	return string(all[begin:])
}

// Crashed gives an error if any process of this member has left the traces of a panic in its log.
func (m *Member) Crashed() error {
	all, err := os.ReadFile(m.logPath)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return Crash(string(all))
}

// Crash gives an error if what a program has written looks like a panic.
func Crash(output string) error {
	for _, mark := range []string{"goroutine ", "panic:", "fatal error:", "SIGSEGV"} {
		if i := strings.Index(output, mark); i >= 0 {
			return fmt.Errorf("the program has crashed: %s", output[i:min(i+2000, len(output))])
		}
	}
	return nil
}

// report prints the end of the log and keeps all of it.
func (m *Member) report(t testing.TB) {
	all, err := os.ReadFile(m.logPath)
	if err != nil {
		return // it was never started
	}
	t.Logf("the log of %s ends with:\n%s", m.Name, Tail(string(all), 25))
	if dir := Artifacts(t); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, m.Name+".log"), all, 0o600); err != nil {
			t.Log(err)
		}
	}
}

// Tail is the last n lines.
func Tail(text string, n int) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// freePorts gives ports of the loopback interface that nobody listens on. They lie below those the kernel gives to
// outgoing connections, so that they are still free when a member that was killed comes back.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	const low, high = 12000, 32000
	var ports []int
	var open []net.Listener
	for try := 0; len(ports) < n; try++ {
		if try > high-low {
			t.Fatal("no free ports")
		}
		port := low + int(portOf.Add(1)*stride)%(high-low)
		if ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			open, ports = append(open, ln), append(ports, port)
		}
	}
	for _, ln := range open {
		_ = ln.Close()
	}
	return ports
}
