package lease

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestOtherClock times a lease by a clock that runs twice as fast as the process's.
func TestOtherClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		table, e := openTable(t), NewExpirerOn(func() time.Duration { return 2 * time.Since(start) })
		e.Promote(1, table, 0)
		grant(t, table, e, 1, 10)
		pass(5*time.Second - 1)
		wantExpired(t, e)
		pass(1)
		wantExpired(t, e, 1)
	})
}
