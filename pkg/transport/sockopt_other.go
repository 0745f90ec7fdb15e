//go:build !unix

package transport

import (
	"errors"
	"syscall"
)

// control refuses the socket options, which this system does not have; nil if none is wanted.
func (o options) control() func(network, address string, c syscall.RawConn) error {
	if !o.reusePort && !o.reuseAddr {
		return nil
	}
	return func(string, string, syscall.RawConn) error {
		return errors.New("this system does not know SO_REUSEPORT and SO_REUSEADDR: switch the options off")
	}
}
