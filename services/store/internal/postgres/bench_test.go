package postgres

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgtest"
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
