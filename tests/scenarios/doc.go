// Package scenarios plays what users of such stores have reported as bugs, on the real binary (or embedded, where the report is of
// embedding), with etcd's own client. The number in the comment of a test is that of the report in the catalogue of user
// reports; these are the ones, and where each is held:
//
//	 2  overlaps in transactions          tests/integration, TxnOverlap
//	 4  cancelled read-only transaction   TestCancelledReadsLeaveTheServerAlive
//	 5  failed call, committed            tests/integration, CreateOnce
//	 8  count with filters                tests/integration, CountIgnoresFilters
//	 9  malformed requests                TestMalformedRequestsAreAnswered; tests/integration, requests_test.go
//	10  paged lists                       TestPagesAreTheList
//	11  event lost by compaction          TestDeleteEventSurvivesCompaction
//	14  watch from revision -1            tests/integration, WatchOddities
//	16  progress of a quiet watcher       tests/integration, WatchProgress
//	21  starved watchers                  TestManyWatchersBesideLargeReads, without TLS; tests/integration, ManyWatchers
//	22  deposed leader revokes            tests/integration, TestHeldLeaderRevokesNothing
//	24  leader changes and time to live   tests/integration, LeaseAge
//	26  fresh lease at another member     tests/integration, LeaseEverywhere
//	28  negative lease ids                tests/integration, TestNegativeLeaseOverRestart, NegativeLease
//	50  acknowledged and lost             tests/integration, TestKillAfterEachWrite
//	52  out of NOSPACE                    TestNoSpaceHealsItself
//	57  embedding                         TestEmbeddedFailuresAreErrors; embed, TestCloseInEveryState, TestFailedStarts
//	58  lease compare in txn              TestTxnComparesLeaseOfMissingKey, with the program's own txn
//	59  make-mirror from a revision       TestMirrorFromRevisionKeepsPrefix, with the program's own make-mirror
//
// It also holds the list of metrics that dashboards for etcd ask for: TestMetricsAreThere.
package scenarios
