//go:build unix

package ctl

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// separate has a command run in a process group of its own, so that it can be ended with all it has started; not if its input is a
// terminal, since there it would be cut off from the keyboard.
func separate(c *exec.Cmd) {
	if f, ok := c.Stdin.(*os.File); ok {
		if _, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP); err == nil {
			return
		}
	}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// end kills a command that was prepared by separate, or asks it to end.
func end(c *exec.Cmd, kill bool) error {
	signal := syscall.SIGTERM
	if kill {
		signal = syscall.SIGKILL
	}
	if c.SysProcAttr != nil {
		return syscall.Kill(-c.Process.Pid, signal)
	}
	return c.Process.Signal(signal)
}
