package cluster

import (
	"os"
	"sync/atomic"
)

// stride is prime, so that counting in it comes by all ports.
const stride = 7919

// share is how many ports a test binary can try before it comes to those of the process with the next number, which may well be
// another test binary that was started at the same time.
const share = 257

// portOf counts the ports tried, from a start that differs by process.
var portOf = func() *atomic.Int64 {
	n := &atomic.Int64{}
	n.Store(int64(os.Getpid()) * share)
	return n
}()
