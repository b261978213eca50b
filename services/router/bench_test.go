package router

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"testing"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// BenchmarkPublishStream is durable publishing of 256 B through one PublishStream in batches of 64,
// a window of 4,096 unanswered, a store in memory behind real gRPC, and one edge that gets
// everything; without TLS, with certificates of both sides, and with a key and without TLS.
func BenchmarkPublishStream(b *testing.B) {
	b.Run("key", func(b *testing.B) {
		path := filepath.Join(b.TempDir(), "backends.yaml")
		key := keyed(b, path, "bench", "publisher:room/#")
		publishStream(b, startMesh(b, func(s *Settings) {
			s.ProducerRate, s.ProducerInFlight, s.Open, s.Backends = 100_000_000, 1_000_000, false, path
		}), perRPC(key))
	})
	for name, start := range ways {
		b.Run(name, func(b *testing.B) {
			publishStream(b, start(b, func(s *Settings) { s.ProducerRate, s.ProducerInFlight = 100_000_000, 1_000_000 }))
		})
	}
}

func publishStream(b *testing.B, m *mesh, with ...grpc.CallOption) {
	e := startEdge(b, m.nats.ClientURL(), "a", "r1")
	e.want("room/#")
	e.read(func(e *fakeEdge) { e.discard = true })
	stream, err := m.pub.PublishStream(b.Context(), with...)
	if err != nil {
		b.Fatal(err)
	}
	payload := make([]byte, 256)
	topics := make([]string, 100)
	for i := range topics {
		topics[i] = fmt.Sprintf("room/%d", i)
	}
	const batch, window = 64, 4096
	tokens := make(chan struct{}, window/batch)
	done := make(chan error, 1)
	b.ResetTimer()
	go func() {
		answered := 0
		for answered < b.N {
			resp, err := stream.Recv()
			if err != nil {
				done <- err
				return
			}
			for range resp.GetResults() {
				if answered++; answered%batch == 0 {
					<-tokens
				}
			}
		}
		done <- nil
	}()
	for ref := 0; ref < b.N; {
		tokens <- struct{}{}
		req := &pushmeshv1.PublishStreamRequest{}
		for ; len(req.Batch) < batch && ref < b.N; ref++ {
			req.Batch = append(req.Batch, &pushmeshv1.PublishStreamRequest_Item{
				Ref: uint64(ref), Message: &pushmeshv1.PublishRequest{Topic: topics[ref%len(topics)], Payload: payload},
			})
		}
		if err := stream.Send(req); err != nil && !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

// BenchmarkPublishCalls is publishing of 256 B to a live topic, a call for each message, 64 under
// way on one connection; without TLS, and with certificates of both sides.
func BenchmarkPublishCalls(b *testing.B) {
	for name, start := range ways {
		b.Run(name, func(b *testing.B) {
			m := start(b, func(s *Settings) { s.ProducerRate, s.ProducerInFlight = 100_000_000, 1_000_000 })
			req := &pushmeshv1.PublishRequest{Topic: "live/1", Payload: make([]byte, 256)}
			b.SetParallelism(64 / runtime.GOMAXPROCS(0))
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := m.pub.Publish(b.Context(), req); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
