package router

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// delayed is a proxy to an address, by which each byte takes so long, either way.
func delayed(tb testing.TB, to string, delay time.Duration) string {
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	type piece struct {
		b  []byte
		at time.Time
	}
	pipe := func(from, to net.Conn) {
		ch := make(chan piece, 1<<16)
		go func() {
			defer close(ch)
			for {
				b := make([]byte, 32<<10)
				n, err := from.Read(b)
				if err != nil {
					return
				}
				ch <- piece{b[:n], time.Now().Add(delay)}
			}
		}()
		defer func() { _ = to.Close() }()
		for p := range ch {
			<-time.After(time.Until(p.at)) // the line's own delay
			if _, err := to.Write(p.b); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := (&net.Dialer{}).DialContext(tb.Context(), "tcp", to)
			if err != nil {
				return
			}
			go pipe(c, s)
			go pipe(s, c)
		}
	}()
	return l.Addr().String()
}

// BenchmarkPublishStreamFar is BenchmarkPublishStream with live messages over a line with a
// round trip, one stream, 32,768 unanswered.
func BenchmarkPublishStreamFar(b *testing.B) {
	for _, rtt := range []time.Duration{0, 10 * time.Millisecond, 40 * time.Millisecond, 100 * time.Millisecond} {
		b.Run(rtt.String(), func(b *testing.B) {
			m := startMesh(b, func(s *Settings) { s.ProducerRate, s.ProducerInFlight = 100_000_000, 1_000_000 })
			conn, err := grpc.NewClient(delayed(b, m.router.Addr(), rtt/2), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			stream, err := pushmeshv1.NewPublishServiceClient(conn).PublishStream(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			payload := make([]byte, 256)
			topics := make([]string, 100)
			for i := range topics {
				topics[i] = fmt.Sprintf("live/%d", i)
			}
			const batch, window = 64, 32768
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
		})
	}
}
