//go:build race

package lock

// raceEnabled tells that the race detector, which needs memory of its own, is on.
const raceEnabled = true
