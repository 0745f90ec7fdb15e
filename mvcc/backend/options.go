package backend

import (
	"strconv"
	"time"

	"go.uber.org/zap"
)

// Defaults of [Options].
const (
	DefaultBatchInterval = 100 * time.Millisecond
	DefaultBatchOps      = 10000
	DefaultBatchBytes    = 8 << 20
	DefaultMaxTailBytes  = 64 << 20
	DefaultInitialMmap   = 10 << 30
	DefaultLockTimeout   = time.Second
)

// Options of [Open]. The zero value of each field means its default.
type Options struct {
	// BatchInterval is how long a change may wait until a commit is due. Default 100 ms.
	BatchInterval time.Duration
	// BatchOps is the number of changes that makes a commit due. Default 10000.
	BatchOps int
	// BatchBytes is the size of changes, in bytes, that makes a commit due. Default 8 MiB.
	BatchBytes int
	// MaxTailBytes bounds the memory of what is not in the file yet: at half of it in the active batch the writer
	// waits for the sealed one. Default 64 MiB. One larger transaction may exceed it by itself.
	MaxTailBytes int
	// InitialMmap is the least size of the memory map, in bytes; address space, not memory. Default 10 GiB, or 256
	// MiB where pointers have 32 bits.
	InitialMmap int
	// LockTimeout is how long Open waits for another process that has the file open. Default 1 s.
	LockTimeout time.Duration
	// NoSync leaves the flushing to the operating system. A power cut then damages the file.
	NoSync bool
	// Mlock keeps the file's pages in memory.
	Mlock bool
	// OnCommit, if set, is called on the committer's goroutine after each successful commit with the time it took.
	OnCommit func(took time.Duration)
	// OnPhases, if set, is told likewise how long the parts of bbolt's work took.
	OnPhases func(rebalance, spill, write time.Duration)
	// OnSnapshot, if set, is told how long a Snapshot was open, on the goroutine that closes it.
	OnSnapshot func(took time.Duration)
	// Logger gets warnings. Nil is none.
	Logger *zap.Logger
}

func (o Options) withDefaults() Options {
	if o.BatchInterval <= 0 {
		o.BatchInterval = DefaultBatchInterval
	}
	if o.BatchOps <= 0 {
		o.BatchOps = DefaultBatchOps
	}
	if o.BatchBytes <= 0 {
		o.BatchBytes = DefaultBatchBytes
	}
	if o.MaxTailBytes <= 0 {
		o.MaxTailBytes = DefaultMaxTailBytes
	}
	if o.InitialMmap <= 0 {
		o.InitialMmap = 256 << 20
		if strconv.IntSize == 64 {
			o.InitialMmap = int(int64(DefaultInitialMmap))
		}
	}
	if o.LockTimeout <= 0 {
		o.LockTimeout = DefaultLockTimeout
	}
	if o.OnCommit == nil {
		o.OnCommit = func(time.Duration) {}
	}
	if o.OnPhases == nil {
		o.OnPhases = func(_, _, _ time.Duration) {}
	}
	if o.OnSnapshot == nil {
		o.OnSnapshot = func(time.Duration) {}
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}
