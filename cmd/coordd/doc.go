// Command coordd is the server, and the client for people and scripts, in one program.
//
//	coordd [flags]          runs one member, with etcd's flags (package embed has them all)
//	coordd cluster          runs three members on loopback, to try things out
//	coordd get, put, …      are the client (package ctl)
//	coordd version, sample-config, help
//
// The first argument decides: none, or a flag, is the server; anything else a sub-command. Invoked by the name
// etcd, through a link for instance, it is always the server.
//
// # Structure
//
// main does what belongs to the process: it turns the first SIGINT or SIGTERM into the end of a context,
// gives the second its usual effect, and exits. Everything else is run, which takes arguments, environment and
// streams, and can be tested.
//
// # Exit codes of the server
//
// 0 after --help and --version; 2 for flags that cannot be parsed; 1 for every other error, with one
// line on stderr that says what to do. Ended by a signal, the server first closes in an orderly way, and then
// dies by that signal, so that whoever started it sees what happened.
//
// # Garbage collection
//
// See gc.go: small heaps are collected less often than Go would, by setting the percentage after each collection.
// GOGC or GOMEMLIMIT in the environment turn that off.
package main
