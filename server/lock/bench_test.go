package lock

import (
	"fmt"
	"sync"
	"testing"

	"github.com/coordd/coordd/api/lockpb"
)

// BenchmarkHandOver measures one lock going round among 32 contenders: lock and unlock of each.
func BenchmarkHandOver(b *testing.B) {
	for _, members := range []int{1, 3} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			ms := cluster(b, members)
			const contenders = 32
			leases := make([]int64, contenders)
			for i := range leases {
				leases[i] = ms[0].lease(600)
			}
			before := ms[0].applied()
			b.ResetTimer()
			var wg sync.WaitGroup
			for i := range contenders {
				m := ms[i%members]
				wg.Go(func() {
					for j := i; j < b.N; j += contenders {
						r, err := m.Lock(b.Context(), Connection{}, ask1("l", leases[i]))
						if err == nil {
							_, err = m.Unlock(b.Context(), &lockpb.UnlockRequest{Key: r.Key})
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(ms[0].applied()-before)/float64(b.N), "entries/op")
		})
	}
}
