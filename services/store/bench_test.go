package store

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// BenchmarkAppend is one router's stream, pipelined, with every commit fsynced: 256 B messages on
// as many topics as named, 64 to a request, at most 8,192 unanswered.
func BenchmarkAppend(b *testing.B) {
	for name, db := range map[string]func(b *testing.B) string{
		"sqlite":   func(b *testing.B) string { return "sqlite:" + filepath.Join(b.TempDir(), "store.db") },
		"postgres": func(b *testing.B) string { return pgtest.URL(b) },
	} {
		for _, topics := range []int{1, 100, 10_000} {
			b.Run(fmt.Sprintf("%s/topics=%d", name, topics), func(b *testing.B) {
				_, c := alone(b, db(b))
				benchAppend(b, c, topics)
			})
		}
	}
}

func benchAppend(b *testing.B, c meshv1.StoreServiceClient, topics int) {
	body, err := wire.Body(&wirev1.Message{Payload: []byte(strings.Repeat("x", 256-3))})
	need(b, err)
	b.ReportAllocs()
	b.ResetTimer()
	appendPipelined(b, c, b.N, func(ref int) *meshv1.AppendItem {
		return item(uint64(ref), fmt.Sprintf("room/%d", ref%topics), string(body))
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

// appendPipelined appends n messages over one stream: 64 to a request, 8,192 unanswered.
func appendPipelined(b *testing.B, c meshv1.StoreServiceClient, n int, message func(ref int) *meshv1.AppendItem) {
	b.Helper()
	stream, err := c.Append(b.Context())
	need(b, err)
	const perRequest, window = 64, 8192
	room := make(chan struct{}, window/perRequest)
	go func() {
		for ref := 0; ref < n; {
			req := &meshv1.AppendRequest{}
			for ; ref < n && len(req.Items) < perRequest; ref++ {
				req.Items = append(req.Items, message(ref))
			}
			room <- struct{}{}
			if err := stream.Send(req); err != nil {
				b.Error(err)
				return
			}
		}
	}()
	for answered, freed := 0, 0; answered < n; {
		resp, err := stream.Recv()
		need(b, err)
		for _, r := range resp.GetResults() {
			if r.GetCode() != wirev1.Code_CODE_OK {
				b.Fatalf("%v", r)
			}
		}
		answered += len(resp.GetResults())
		for ; freed < answered/perRequest; freed++ {
			<-room
		}
	}
}

// BenchmarkReadLog is what a repair costs: one message of a topic, over gRPC, from SQLite.
func BenchmarkReadLog(b *testing.B) {
	_, c := standalone(b, filepath.Join(b.TempDir(), "store.db"))
	for batch := range uint64(20) {
		var items []*meshv1.AppendItem
		for ref := range uint64(100) {
			items = append(items, item(batch*100+ref, fmt.Sprintf("room/%d", ref%10), "x"))
		}
		appendAll(b, c, items...)
	}
	for n := uint64(0); b.Loop(); n++ {
		seq := n%200 + 1
		if all, _, _ := readAll(b, c, &meshv1.ReadLogRequest{Topic: "room/7", FromSeq: seq, ToSeq: seq}); len(all) != 1 {
			b.Fatalf("%d records", len(all))
		}
	}
}

// BenchmarkAppendOne is one message at a time: what a publish waits for.
func BenchmarkAppendOne(b *testing.B) {
	_, c := standalone(b, filepath.Join(b.TempDir(), "store.db"))
	stream, err := c.Append(b.Context())
	need(b, err)
	for ref := uint64(1); b.Loop(); ref++ {
		need(b, stream.Send(&meshv1.AppendRequest{Items: []*meshv1.AppendItem{item(ref, "room/1", "x")}}))
		resp, err := stream.Recv()
		need(b, err)
		if resp.GetResults()[0].GetSeq() != ref {
			b.Fatalf("%v", resp)
		}
	}
}
