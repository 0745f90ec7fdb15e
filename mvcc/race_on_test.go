//go:build race

package mvcc_test

// raceDetector: sync.Pool then drops what it is given at random.
const raceDetector = true
