package upstream

import (
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// What an edge takes in: a router's batches of 64 messages of 256 B in 16 topics, over NATS,
// ordered, and posted to two loops. Router and NATS server share the machine.
func BenchmarkFrames(b *testing.B) {
	w := newWorld(b)
	m, loops := w.edge("e1", 2)
	topics := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"}
	ahead := make(chan struct{}, 64) // batches under way
	got := 0
	for i, l := range loops {
		for _, t := range topics {
			m.Join(conn(uint16(i), 1), 1, "room/"+t, true, 0)
			if j := next[exchange.Joined](b, l); j.Err != nil {
				b.Fatal(j.Err)
			}
		}
	}
	loops[1].onPost = func(e exchange.Event) {
		if live, ok := e.(exchange.Live); ok {
			for got += len(live.Messages); got >= 64; got -= 64 {
				<-ahead
			}
		}
	}
	for _, l := range loops {
		l.forget = true
	}
	body, seq := plainBody(b, 256), uint64(0)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		ahead <- struct{}{}
		batch := make([]*meshv1.Delivery, 64)
		for i := range batch {
			if i%len(topics) == 0 {
				seq++
			}
			batch[i] = &meshv1.Delivery{Topic: "room/" + topics[i%len(topics)], Epoch: 1000, Seq: seq, Body: body}
		}
		w.router.Send(batch...)
	}
	for range cap(ahead) {
		ahead <- struct{}{}
	}
	b.ReportMetric(float64(b.N*64)/b.Elapsed().Seconds(), "messages/s")
}

// plainBody is the body of a message with a payload of so many bytes.
func plainBody(t testing.TB, n int) []byte {
	t.Helper()
	body, err := wire.Body(&wirev1.Message{Payload: make([]byte, n)})
	if err != nil {
		t.Fatal(err)
	}
	return body
}
