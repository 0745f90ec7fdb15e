// Package idutil makes 64-bit ids that are unique over all members of a cluster and over their
// restarts, without asking anybody. Requests carry them through Raft so that a result finds its
// proposer.
//
// An id is built of three parts, high to low:
//
//	2 bytes   low bits of the member id
//	5 bytes   milliseconds since 1970 when the generator was made, low 40 bits
//	1 byte    counter
//
// The counter starts at 1 and may overflow into the time, so a member that has run for t
// milliseconds may have handed out up to 256·t ids before it could repeat one after a restart: that
// is 256,000 a second, all the time. The time wraps after 34.8 years; by then the ids of the first
// run are long forgotten.
//
// Uniqueness between members rests on different low 16 bits of their member ids. If two members
// share them and started within the same stretch of time, one could take the other's result for its
// own, so whoever gives out member ids should avoid that.
package idutil

import (
	"sync/atomic"
	"time"
)

const (
	suffixBits  = 48 // time and counter together
	counterBits = 8
	suffixMask  = 1<<suffixBits - 1
)

// Generator hands out ids. Make one with [New]. Its methods may be called from any goroutine.
type Generator struct {
	prefix uint64        // the member, already in its place
	suffix atomic.Uint64 // time and counter of the id handed out last; bits above suffixBits are noise
}

// New makes the generator of one run of a member. memberID is the low 16 bits of the member's id;
// now is the time of the start, by which the ids of this run differ from those of earlier ones.
func New(memberID uint16, now time.Time) *Generator {
	g := &Generator{prefix: uint64(memberID) << suffixBits}
	g.suffix.Store(uint64(now.UnixMilli()) << counterBits)
	return g
}

// Next returns an id that this generator has not returned before. It takes no lock and does not
// allocate.
func (g *Generator) Next() uint64 {
	return g.prefix | g.suffix.Add(1)&suffixMask
}
