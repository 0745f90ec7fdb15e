//go:build !race

package mvcc_test

const raceDetector = false
