// Package cluster starts clusters for tests: of real processes of the program, which can be killed and paused, and of
// nodes embedded in the test.
//
// # Processes
//
// [New] starts members as processes on free ports of the loopback interface, with a data directory and a log file
// each, and waits until they are ready, which is when the line for it stands in the log. A [Member] can be ended by
// SIGKILL ([Member.Kill]) or SIGTERM ([Member.Stop]), started again on its data and ports ([Member.Start]), and
// held by SIGSTOP ([Member.Pause], [Member.Resume]). The kernel kills the processes if the test dies first. When a test fails,
// the end of each log is printed and the logs are kept (see [Artifacts]). [Run] runs the program to its end, for what must fail.
//
// The program is built once for each test binary, by [Main], from the module in the parent directory; or it is the
// one that the environment variable COORDD_BINARY names.
//
// # Embedded nodes
//
// [Embed] starts nodes in the test's process that reach each other in memory, and clients through node.Dialer.
//
// # Clients
//
// Both kinds give etcd's own client ([Cluster.Etcd]) and that of package client ([Cluster.Native]), so
// one test can run on both.
//
// # Goroutines
//
// Each process has one goroutine, which waits for its end and closes Member.exited. Nothing else runs in the background.
// A Member's methods may be called from any goroutine; Member.mu guards which process runs.
package cluster
