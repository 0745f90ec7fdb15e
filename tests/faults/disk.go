package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// becomeVariable tells the test binary to become the program that its arguments name.
const becomeVariable = "FAULTS_BECOME"

// Disk delays or fails the flushes of the processes that are started through it.
type Disk struct {
	delay   atomic.Int64
	fail    atomic.Bool // the next flush
	flushes atomic.Int64
	busy    sync.WaitGroup
}

// Slow has each flush take longer, from now on; 0: no longer.
func (d *Disk) Slow(by time.Duration) { d.delay.Store(int64(by)) }

// FailNext has the next flush fail.
func (d *Disk) FailNext() { d.fail.Store(true) }

// Heal takes FailNext back, and tells whether that was too late since a flush has failed.
func (d *Disk) Heal() (failed bool) { return !d.fail.Swap(false) }

// Flushes is how many there were.
func (d *Disk) Flushes() int64 { return d.flushes.Load() }

// Wait waits until all processes have ended.
func (d *Disk) Wait() { d.busy.Wait() }

// Launch changes a command so that its flushes pass the Disk. It is for cluster.Member.Launch.
func (d *Disk) Launch(cmd *exec.Cmd) (started func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	child := os.NewFile(uintptr(pair[1]), "filter")
	cmd.Path = self // Args[0] stays the program's
	cmd.Env = append(cmd.Env, becomeVariable+"=1")
	cmd.ExtraFiles = []*os.File{child}
	return func() {
		_ = child.Close()
		d.busy.Go(func() {
			defer unix.Close(pair[0])
			if fd, err := receive(pair[0]); err == nil {
				defer unix.Close(fd)
				d.serve(fd)
			}
		})
	}, nil
}

// receive takes the filter's file from the process, which has ended without one if there is an error.
func receive(socket int) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, make([]byte, 1), oob, 0)
	if err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) == 0 {
		return 0, errors.Join(err, errors.New("no file came"))
	}
	files, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(files) == 0 {
		return 0, errors.Join(err, errors.New("no file came"))
	}
	return files[0], nil
}

// notification and answer are struct seccomp_notif and struct seccomp_notif_resp.
type notification struct {
	ID         uint64
	PID, Flags uint32
	Nr         int32
	Arch       uint32
	IP         uint64
	Args       [6]uint64
}

type answer struct {
	ID    uint64
	Val   int64
	Error int32
	Flags uint32
}

// serve answers what the filter asks, until the process has ended. One flush is served after the other, as a disk does.
func (d *Disk) serve(fd int) {
	for {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil && err != unix.EINTR {
			return
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			if poll[0].Revents != 0 {
				return
			}
			continue
		}
		var n notification
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n))); e != 0 {
			continue // the caller was killed or interrupted meanwhile
		}
		d.flushes.Add(1)
		if wait := time.Duration(d.delay.Load()); wait > 0 {
			time.Sleep(wait)
		}
		a := answer{ID: n.ID, Flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if d.fail.CompareAndSwap(true, false) {
			a.Flags, a.Error = 0, -int32(unix.EIO)
		}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&a)))
	}
}

// Become makes this process the program it was started for by Launch, and returns only if it was started for something else.
// TestMain calls it before anything else.
func Become() {
	if os.Getenv(becomeVariable) == "" {
		return
	}
	runtime.LockOSThread() // the filter is this thread's, and what it executes inherits it
	err := install(3)
	if err == nil {
		var env []string
		for _, e := range os.Environ() {
			if !strings.HasPrefix(e, becomeVariable+"=") {
				env = append(env, e)
			}
		}
		err = syscall.Exec(os.Args[0], os.Args, env)
	}
	fmt.Fprintln(os.Stderr, "cannot run behind a filter:", err)
	os.Exit(1)
}

// install makes the filter and sends its file to a socket.
func install(socket int) error {
	unix.CloseOnExec(socket)
	const load, jumpIfEqual, give = 0x20, 0x15, 0x06 // BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET|BPF_K
	filter := []unix.SockFilter{
		{Code: load, K: 0}, // the number of the system call
		{Code: jumpIfEqual, Jt: 1, K: unix.SYS_FSYNC},
		{Code: jumpIfEqual, Jf: 1, K: unix.SYS_FDATASYNC},
		{Code: give, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: give, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	fd, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if e != 0 {
		return e
	}
	return unix.Sendmsg(socket, []byte{1}, unix.UnixRights(int(fd)), nil, 0)
}

// CanSlow tells whether the kernel lets a process be started behind a filter.
func CanSlow() error {
	d := &Disk{}
	path, err := exec.LookPath("true")
	if err != nil {
		return err
	}
	cmd := exec.Command(path)
	cmd.Env = os.Environ()
	started, err := d.Launch(cmd)
	if err != nil {
		return err
	}
	out := &strings.Builder{}
	cmd.Stderr = out
	err = cmd.Run()
	started()
	d.Wait()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
