package faults

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/coordd/coordd/tests/cluster"
)

// owner finds which member has the socket with a local address on the loopback interface.
func owner(members []*cluster.Member, local net.Addr) (string, error) {
	tcp, ok := local.(*net.TCPAddr)
	if !ok {
		return "", fmt.Errorf("%v is not an address of TCP", local)
	}
	inode, err := inodeOf(tcp.Port)
	if err != nil {
		return "", err
	}
	for _, m := range members {
		if pid := m.Pid(); pid != 0 && has(pid, "socket:["+inode+"]") {
			return m.Name, nil
		}
	}
	return "", fmt.Errorf("no member has the port %d", tcp.Port)
}

// inodeOf gives the number by which the kernel knows the connected socket with a local port of 127.0.0.1.
func inodeOf(port int) (string, error) {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return "", err
	}
	const established = "01"
	want := fmt.Sprintf("0100007F:%04X", port)
	for line := range strings.Lines(string(table)) {
		// number, local, remote, state, queues, timer, retransmits, user, timeout, inode
		if f := strings.Fields(line); len(f) > 9 && f[1] == want && f[3] == established && f[9] != "0" {
			return f[9], nil
		}
	}
	return "", fmt.Errorf("the kernel knows no socket with port %d", port)
}

// has tells whether a process has a file open whose name in /proc is target.
func has(pid int, target string) bool {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return false
	}
	for _, f := range files {
		if name, err := os.Readlink(f); err == nil && name == target {
			return true
		}
	}
	return false
}
