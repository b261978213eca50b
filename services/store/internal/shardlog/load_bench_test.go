package shardlog

import (
	"fmt"
	"testing"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// BenchmarkLoad takes topics as a backend tells them: of all shards, in no order.
func BenchmarkLoad(b *testing.B) {
	b.ReportAllocs()
	l := newLoader(1)
	for n := range topic.Shards {
		l.LoadShard(backend.Shard{Shard: n, Epoch: 9})
	}
	for i := range b.N {
		name := fmt.Sprintf("room/%d/chat", i)
		l.LoadTopic(backend.Topic{Shard: topic.Shard(name), Topic: name, Epoch: 9, Head: 10, Oldest: 1})
	}
	l.index()
}
