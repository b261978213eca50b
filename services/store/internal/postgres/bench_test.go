package postgres

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/run"
)

// BenchmarkCommit commits groups of 1,024 messages of 256 bytes, in runs of different lengths; one
// writer.
func BenchmarkCommit(b *testing.B) {
	for _, perRun := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("run=%d", perRun), func(b *testing.B) {
			d, err := Open(b.Context(), Config{URL: pgtest.URL(b), Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = d.Close() }()
			w, h, err := writerOf(b.Context(), d, "a", 3)
			if err != nil {
				b.Fatal(err)
			}
			records := make([]run.Record, perRun)
			for i := range records {
				records[i] = run.Record{PublishedAt: now(), Body: make([]byte, 256)}
			}
			packed := run.Pack(nil, records)
			const messages = 1024
			n := uint64(0)
			for b.Loop() {
				n++
				at := now()
				batch := &backend.Batch{ID: batchID(), At: at, Commits: []backend.Commit{{Shard: 3, Number: n}}}
				for i := range messages / perRun {
					batch.Runs = append(batch.Runs, backend.Run{
						Shard: 3, Commit: n, Topic: fmt.Sprint("room/", i), Epoch: h.epoch[3], First: (n-1)*uint64(perRun) + 1, N: perRun, At: at,
						Class: backend.Day, Packed: packed,
					})
				}
				if err := w.Commit(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n*messages)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// BenchmarkLoad loads half of the shards, with half of a million topics.
func BenchmarkLoad(b *testing.B) {
	const topics = 1_000_000
	url := pgtest.URL(b)
	d, err := Open(b.Context(), Config{URL: url, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	pgtest.Exec(b, url, `INSERT INTO pushmesh.topic SELECT i % 1024, 'room/' || i || '/chat', s.epoch, 10, 1 FROM generate_series(1, $1) AS i JOIN pushmesh.shard AS s ON s.shard = i % 1024`, topics)
	pgtest.Exec(b, url, `ANALYZE pushmesh.topic`)
	var shards []int
	for n := range topic.Shards / 2 {
		shards = append(shards, 2*n)
	}
	w, err := d.OpenWriter(b.Context(), owner("a"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	if got, err := w.TakeShards(b.Context(), shards); err != nil || len(got) != len(shards) {
		b.Fatal(got, err)
	}
	for b.Loop() {
		l := &topicsCounted{}
		if err := w.Load(b.Context(), shards, l); err != nil || l.n != topics/2 {
			b.Fatal(l.n, err)
		}
	}
	b.ReportMetric(float64(b.N)*topics/2/b.Elapsed().Seconds(), "topics/s")
}

// topicsCounted is a Loader that counts topics.
type topicsCounted struct {
	loaded
	n int
}

func (c *topicsCounted) LoadShard(backend.Shard) {}
func (c *topicsCounted) LoadTopic(backend.Topic) { c.n++ }
