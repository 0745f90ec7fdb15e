// Package embed runs a coordd member inside a program: the command coordd, a test, or a service that wants its
// coordination store built in.
//
//	cfg := embed.NewConfig()
//	cfg.Dir = dir
//	node, err := embed.Start(ctx, cfg)
//	if err != nil {
//		return err
//	}
//	defer node.Close()
//	if err := node.WaitReady(ctx); err != nil {
//		return err
//	}
//	_, err = node.Client().Put(ctx, "greeting", "hello")
//
// # Without sockets
//
// A node listens on what its configuration names and nothing else; [NewConfig] names nothing. [Node.Client] reaches
// it all the same: its calls go to the services directly (package inproc). Other gRPC clients, etcd's own
// for one, connect in memory through [Node.Dialer]. Several nodes of one program form a cluster over a
// [Network], which is in memory too, or over loopback. Nodes share nothing; but each needs its own
// data directory, and its own Registerer if one is given.
//
// # Configuration
//
// [Config] is a struct of option structs. One table (table.go) binds each field to a flag, an environment variable and a
// key of the file, all three etcd's, with one sentence of help; [Load], [WriteHelp] and [WriteSample] are made from
// that table. A setting whose feature is not built yet can be given: where it would be unsafe to go on without
// the feature, Validate refuses it, otherwise it is logged once as a warning.
//
// Files, variables and defaults follow etcd's rules, with these differences: durations in the file may also be texts
// such as 5s; an unknown key in the file is warned of, and refused where it concerns TLS; variables may begin with
// COORDD_ too; without --initial-cluster and --initial-advertise-peer-urls, what is advertised to other members
// follows --listen-peer-urls.
//
// # Tests of programs that embed a node
//
// [NewTestConfig] gives up durability for speed: a node is ready within some ten milliseconds, and a put takes
// microseconds.
//
// # Life of a node
//
// [Start] binds the listeners, so that a taken port is found at once and early clients wait in the backlog; opens
// the member (package server); and starts one goroutine, Node.run, which waits until the member is ready, begins
// to serve, and waits for the end. The end comes by [Node.Close], or by the member itself when its disk fails or it was
// removed. Then, in this order: the health service says NOT_SERVING; streams are ended, and the clients told that the
// server stops; the listeners close; calls under way get 2 s to finish; the member hands over leadership and
// closes; what calls are left are cut off. When Done is closed no goroutine, file or port of the node is left.
//
// Besides Node.run there is one goroutine for each listener and kind of traffic (front.go), which ends when its server is
// stopped. drain.mu guards the set of open streams, Network.mu that of listeners in memory; both are leaves.
package embed
