//go:build unix

package transport

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// control returns the hook that sets the wanted options on the socket before it is bound; nil for
// none.
func (o options) control() func(network, address string, c syscall.RawConn) error {
	if !o.reusePort && !o.reuseAddr {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			if o.reusePort {
				set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			}
			if o.reuseAddr && set == nil {
				set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
			}
		})
		if err != nil {
			return err
		}
		return set
	}
}
