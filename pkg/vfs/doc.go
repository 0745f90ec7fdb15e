// Package vfs is the seam through which the log ([wal]) and the snapshot store
// ([snap]) touch files. It is deliberately small: only the operations those two
// need, so that each of them has one obvious meaning that can be modelled and
// broken on purpose.
//
// There are three file systems:
//
//   - [OS] is the real one. Sync is fdatasync where the system has it, WriteSync of
//     whole blocks one write past the page cache (O_DIRECT and O_DSYNC, on a second handle of the file) where
//     system and file system can do that, Lock is an advisory lock that dies with the process.
//   - [NewMem] keeps everything in memory and remembers what has been made
//     durable. [Mem.Crash] returns the file system as a disk might show it
//     after a power cut at this moment; [Mem.Kill] as the next process sees it
//     after kill -9.
//   - [WithFaults] wraps any of them and fails, tears, shortens, delays or
//     corrupts the operations named by a [Plan].
//
// # What Mem promises about a power cut
//
// The model is that of a disk which honours a flush and writes sectors of
// [SectorSize] bytes atomically, under a file system that orders nothing on
// its own:
//
//   - Bytes written before the last Sync of their file survive.
//   - Every sector written since then holds, independently of the others, its
//     content from before or after any one of those writes.
//   - A length changed since the last Sync may be the old or the new one.
//   - A name created, renamed or removed since the last SyncDir of its
//     directory may or may not have been; some of these changes may have
//     happened without the earlier ones. A rename within a directory is atomic.
//   - A directory whose parent was not synced may be gone with all it holds.
//
// Randomness comes from the caller, time is not used, and nothing is global, so
// a simulation that gives the same source gets the same disk.
//
// All types of this package may be used from several goroutines at once. Paths
// are ordinary slash or platform paths; Mem cleans them and takes relative paths
// as relative to its root.
//
// [wal]: https://pkg.go.dev/github.com/coordd/coordd/wal
// [snap]: https://pkg.go.dev/github.com/coordd/coordd/snap
package vfs
