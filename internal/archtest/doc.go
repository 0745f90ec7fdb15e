// Package archtest holds the repository to its own rules. Its tests read every source file and
// fail, with file, line, rule, reason and remedy, where a rule is broken. Nothing is built for
// that: files are only parsed, so the rules also speak while the code does not compile.
//
// The rules, each a function that goes over a [Tree] and reports [Finding]s:
//
//	layers    a package imports only packages of lower layers (layers.go has the table, with reasons)
//	pure      the replicated state machine reads no clock, no random source and no network
//	library   nothing below a command touches a global registry, logger, flag set, or the process
//	init      no init functions
//	globals   no package variables that wait to be assigned
//	docs      every package and every exported identifier is documented
//	size      files up to 600 lines, functions up to 70
//	names     no Manager, no Helper, no Util
//	sleep     tests wait for conditions, not for time to pass
//	marks     no work left behind in a comment
//	paths     no path that exists only on somebody's machine
//
// A rule that is wrong in one place gets an exception in the table beside it, with a reason; an
// exception that is not needed any more is reported too. Folders that the tables name need not
// exist yet.
//
// The rules are tested themselves: each file in testdata is a small tree in txtar form, whose head
// lists the findings that it must give, no more and no fewer.
package archtest
