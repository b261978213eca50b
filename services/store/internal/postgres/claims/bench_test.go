package claims

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// backendCPU is how long a process on this machine has had a processor, in steps of 10 ms.
func backendCPU(b *testing.B, pid int32) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// BenchmarkClaimCommit commits n changed places at a time, in turn: n places begin to wait, are
// granted, and end. 100 commits between two looks at the server's clock would be too few.
func BenchmarkClaimCommit(b *testing.B) {
	for _, n := range []int{0, 1, 32, 256} {
		b.Run(fmt.Sprintf("places=%d", n), func(b *testing.B) {
			s, err := server.Open(b.Context(), server.Config{URL: pgtest.URL(b)})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			run, err := New(s).OpenClaims(b.Context(), owner("a"))
			if err != nil {
				b.Fatal(err)
			}
			taken, _, err := run.Take(b.Context(), []int{1}, false, func(backend.ClaimPlace) {})
			if err != nil {
				b.Fatal(err)
			}
			seq := taken[0].Next
			r, _ := run.(*writer)
			pid, _ := r.conn.Backend()
			began := backendCPU(b, pid)
			var took []time.Duration
			places := make([]backend.ClaimPlace, n)
			for i := 0; b.Loop(); i++ {
				var c backend.ClaimChanges
				for k := range places {
					switch i % 3 {
					case 0:
						places[k] = waiting(seq)
						seq++
					case 1:
						places[k].Token, places[k].TTL, places[k].GrantedAt, places[k].ExpiresAt = seq, 30e6, now(), now()+30e6
						seq++
					default:
						c.Delete = append(c.Delete, places[k].ClaimKey)
					}
				}
				if i%3 != 2 {
					c.Put = places
				}
				begun := time.Now()
				if _, err := run.Commit(b.Context(), &c); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begun))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(float64((backendCPU(b, pid)-began).Microseconds())/float64(len(took)*max(n, 1)), "server-µs/place")
		})
	}
}

// waiting is a place as edges make it.
func waiting(seq uint64) backend.ClaimPlace {
	return backend.ClaimPlace{
		ClaimKey: backend.ClaimKey{Shard: 1, Seq: seq}, Resource: fmt.Sprintf("seats/hall-7/row-%d", seq%1000), Owner: fmt.Sprintf("user-%08d", seq),
		JoinedAt: now(), ExpiresAt: now() + 60e6, Node: "edge:edge-7f9c", Incarnation: now(), Conn: seq << 20, Bound: true,
	}
}
