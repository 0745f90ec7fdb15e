// Package ctl is the sub-commands of coordd that talk to a running cluster: get, put, del, txn, watch, lease,
// member, endpoint, compaction, alarm, move-leader, snapshot, lock, elect and make-mirror. They take the flags and
// environment of etcdctl, and print what it prints, so that scripts for it go on working.
//
// The program calls [Commands] once, adds the result to its root command, executes that with a context that ends
// at SIGINT, and gives the error to [Report], which writes it for a person and gives the exit code.
//
// # How a command works
//
// Each command makes a client for its own run, sends one request within --command-timeout (watch, lease keep-alive, lock, elect and make-mirror
// go on until they are interrupted), and gives the answer to a printer as a view: the answer as a message, and functions for the
// lines, fields and tables of it. The printer chooses by --write-out; a view without a form is refused with exit
// code 4. Nothing here writes to the process's own stdout: all goes through the command's writers.
//
// # Exit codes
//
// 0 done, 1 the request failed, 2 no connection could be set up, 3 the input is invalid, 4 the format or feature is not there,
// 5 interrupted, 6 a file or a pipe failed, 128 the arguments are wrong.
package ctl
