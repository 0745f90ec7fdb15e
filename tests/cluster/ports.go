package cluster

import (
	"os"
	"sync/atomic"
)

// stride is prime, so that counting in it comes by all ports, and test binaries that run at once seldom meet.
const stride = 7919

// portOf counts the ports tried, from a start that differs by process.
var portOf = func() *atomic.Int64 {
	n := &atomic.Int64{}
	n.Store(int64(os.Getpid()))
	return n
}()
