//go:build !unix

package ctl

import "os/exec"

// separate does nothing: there are no process groups.
func separate(*exec.Cmd) {}

// end kills a command, whether or not it should only be asked to end: there is no way to ask.
func end(c *exec.Cmd, _ bool) error { return c.Process.Kill() }
