package store

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// BenchmarkClaims is a node's stream with so many owners, each of which acquires and releases a
// resource of its own again and again, with every commit fsynced. An operation is such a pair.
func BenchmarkClaims(b *testing.B) {
	for name, db := range map[string]func(b *testing.B) string{
		"sqlite":   func(b *testing.B) string { return "sqlite:" + filepath.Join(b.TempDir(), "store.db") },
		"postgres": func(b *testing.B) string { return pgtest.URL(b) },
	} {
		for _, owners := range []int{1, 64, 512} {
			b.Run(fmt.Sprintf("%s/owners=%d", name, owners), func(b *testing.B) {
				st := serving(b, Settings{ID: "s1", DB: db(b), Standalone: true, LogLevel: "error"})
				desks(b, dial(b, st.Addr()))
				benchClaims(b, newClaimNode(b, dial(b, st.Addr()), "edge:1"), owners)
			})
		}
	}
}

func benchClaims(b *testing.B, n *claimNode, owners int) {
	var left atomic.Int64
	left.Store(int64(b.N))
	took := make([][]time.Duration, owners)
	var all sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for i := range owners {
		all.Go(func() {
			name := fmt.Sprint("desk/", i)
			for left.Add(-1) >= 0 {
				begun := time.Now()
				r := <-n.begin(claimOp(meshv1.ClaimOp_KIND_ACQUIRE, name, "ann", 0))[0]
				took[i] = append(took[i], time.Since(begun))
				begun = time.Now()
				if r = <-n.begin(claimOp(meshv1.ClaimOp_KIND_RELEASE, name, "ann", r.GetState().GetToken()))[0]; r.GetState().GetState() != claimFreed {
					b.Errorf("%v", r)
					return
				}
				took[i] = append(took[i], time.Since(begun))
			}
		})
	}
	all.Wait()
	b.StopTimer()
	each := slices.Concat(took...)
	slices.Sort(each)
	if len(each) > 0 {
		b.ReportMetric(float64(each[len(each)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(each[len(each)*99/100].Microseconds()), "p99-µs")
	}
}

// BenchmarkClaimExpiry has 100,000 resources held, every one of which ends by itself within 20 s,
// and says how late those who held them are told, by the clock of the database's machine.
func BenchmarkClaimExpiry(b *testing.B) {
	st := serving(b, Settings{ID: "s1", DB: pgtest.URL(b), Standalone: true, LogLevel: "error"})
	desks(b, dial(b, st.Addr()))
	n := newClaimNode(b, dial(b, st.Addr()), "edge:1")
	const holds, perMessage = 100_000, 1000
	random := rand.New(rand.NewPCG(1, 2))
	for round := range b.N {
		ends := make(map[string]uint64, holds)
		for i := 0; i < holds; i += perMessage {
			ops := make([]*meshv1.ClaimOp, perMessage)
			for k := range ops {
				ops[k] = acquireTold(fmt.Sprint("desk/", round, "/", i+k), "ann", 1)
				ops[k].TtlMs = 30_000 + random.Uint32N(20_000)
			}
			for _, c := range n.begin(ops...) {
				st := claimIs(b, <-c, claimGranted)
				ends[st.GetResource()] = st.GetExpiresAt()
			}
		}
		late := make([]time.Duration, 0, holds)
		for range holds {
			st := n.next("ann", claimLost)
			late = append(late, time.Since(time.UnixMicro(int64(ends[st.GetResource()]))))
		}
		slices.Sort(late)
		b.ReportMetric(float64(late[0].Microseconds())/1000, "least-ms")
		b.ReportMetric(float64(late[holds/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(late[holds*99/100].Microseconds())/1000, "p99-ms")
		b.ReportMetric(float64(late[holds-1].Microseconds())/1000, "most-ms")
	}
}
