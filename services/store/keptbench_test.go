package store

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// BenchmarkKept is what a wildcard costs that finds ten of a million topics that keep a message
// (PUSHMESH_KEPT_TOPICS: so many): asked of the store over gRPC, with the messages read from the
// log.
func BenchmarkKept(b *testing.B) {
	topics, err := strconv.Atoi(cmp.Or(os.Getenv("PUSHMESH_KEPT_TOPICS"), "1000000"))
	need(b, err)
	for name, db := range map[string]func(b *testing.B) string{
		"sqlite":   func(b *testing.B) string { return "sqlite:" + filepath.Join(b.TempDir(), "store.db") },
		"postgres": func(b *testing.B) string { return pgtest.URL(b) },
	} {
		b.Run(name, func(b *testing.B) {
			_, c := alone(b, db(b))
			keepLast(b, c, "state")
			began := time.Now()
			fillKept(b, c, topics)
			b.Logf("%d topics keep a message after %v, %.0f a second", topics, time.Since(began).Round(time.Millisecond), float64(topics)/time.Since(began).Seconds())
			for filter, want := range map[string]int{"state/471/+": 10, "state/471/#": 10, "state/+/none": 0, "+/471/+": 10} {
				b.Run(filter, func(b *testing.B) {
					for b.Loop() {
						resp, err := c.Heads(b.Context(), &meshv1.HeadsRequest{Filters: []string{filter}, Limit: 1000})
						if need(b, err); len(resp.GetHeads()) != want {
							b.Fatalf("%d matches", len(resp.GetHeads()))
						}
					}
					b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/op")
				})
			}
			b.Run("state/471/+, read", func(b *testing.B) {
				for b.Loop() {
					resp, err := c.Heads(b.Context(), &meshv1.HeadsRequest{Filters: []string{"state/471/+"}, Limit: 1000})
					need(b, err)
					for _, h := range resp.GetHeads() {
						if all, _, _ := readAll(b, c, &meshv1.ReadLogRequest{Topic: h.GetTopic(), FromSeq: h.GetKept()}); len(all) != 1 {
							b.Fatalf("%d records", len(all))
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/op")
			})
		})
	}
}

// BenchmarkAppendKept is BenchmarkAppend beside the same where each topic keeps its last message.
func BenchmarkAppendKept(b *testing.B) {
	for name, db := range map[string]func(b *testing.B) string{
		"sqlite":   func(b *testing.B) string { return "sqlite:" + filepath.Join(b.TempDir(), "store.db") },
		"postgres": func(b *testing.B) string { return pgtest.URL(b) },
	} {
		for _, topics := range []int{100, 10_000} {
			for _, keeps := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/topics=%d/keeps=%t", name, topics, keeps), func(b *testing.B) {
					_, c := alone(b, db(b))
					if keeps {
						keepLast(b, c, "room")
					}
					benchAppend(b, c, topics)
				})
			}
		}
	}
}

// BenchmarkAppendWhileKeptGoes is how long appends to another namespace take, one after the other,
// while what 50,000 topics kept is deleted because their namespace keeps nothing any more.
func BenchmarkAppendWhileKeptGoes(b *testing.B) {
	for name, db := range map[string]func(b *testing.B) string{
		"sqlite":   func(b *testing.B) string { return "sqlite:" + filepath.Join(b.TempDir(), "store.db") },
		"postgres": func(b *testing.B) string { return pgtest.URL(b) },
	} {
		b.Run(name, func(b *testing.B) {
			_, c := alone(b, db(b))
			keepLast(b, c, "state")
			fillKept(b, c, 50_000)
			_, err := c.DeleteNamespace(within(b), &meshv1.DeleteNamespaceRequest{Prefix: "state"})
			need(b, err)
			stream, err := c.Append(b.Context())
			need(b, err)
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				need(b, stream.Send(&meshv1.AppendRequest{Items: []*meshv1.AppendItem{item(uint64(len(took)), fmt.Sprint("room/", len(took)%100), "x")}}))
				_, err := stream.Recv()
				need(b, err)
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)*99/100].Seconds()*1e3, "p99-ms")
			b.ReportMetric(took[len(took)-1].Seconds()*1e3, "max-ms")
		})
	}
}

// keepLast has topics under a prefix keep their last message.
func keepLast(t testing.TB, c meshv1.StoreServiceClient, prefix string) {
	t.Helper()
	_, err := c.PutNamespace(within(t), &meshv1.PutNamespaceRequest{Namespace: &pushmeshv1.Namespace{
		Prefix: prefix, Policy: &pushmeshv1.Policy{Durable: true, Keep: pushmeshv1.Keep_KEEP_LAST, MaxKept: 2_000_000},
	}})
	need(t, err)
}

// fillKept publishes one message each to so many topics.
func fillKept(b *testing.B, c meshv1.StoreServiceClient, topics int) {
	b.Helper()
	body, err := wire.Body(&wirev1.Message{Payload: make([]byte, 64)})
	need(b, err)
	appendPipelined(b, c, topics, func(ref int) *meshv1.AppendItem {
		return item(uint64(ref), fmt.Sprintf("state/%d/%d", ref/10, ref%10), string(body))
	})
}
