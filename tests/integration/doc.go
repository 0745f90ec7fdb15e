// Package integration tests coordd from outside: as processes and embedded in the test, through etcd's official client and through package client,
// which are both linked into the test's program.
//
// The cases of behaviour_test.go run on both kinds of clusters. Those of the other files need processes: what comes after kills
// and pauses (faults_test.go), hostile requests (requests_test.go), and starts that must fail (start_test.go, disk_test.go).
// What a case expects is what the API promises, in many cases because some user of such a store once got something else.
package integration
