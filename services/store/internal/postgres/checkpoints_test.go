package postgres

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/migrations"
)

// checkpointOf topics of a shard.
func checkpointOf(shard int, epoch, head uint64, topics int) *backend.Checkpoint {
	c := &backend.Checkpoint{Shards: []backend.Shard{{Shard: shard, Epoch: epoch, Commit: head}}}
	for i := range topics {
		topic := fmt.Sprint("t", i)
		c.Topics = append(c.Topics, backend.Topic{Shard: shard, Topic: topic, Epoch: epoch, Head: head, Oldest: 1})
		c.Producers = append(c.Producers, backend.Producer{Shard: shard, Topic: topic, ID: [16]byte{1}, ProducerSeq: head, Epoch: epoch, Seq: head, At: now()})
	}
	return c
}

// While an old snapshot keeps the dead, checkpoints kill no rows.
func TestCheckpointsKillNoRows(t *testing.T) {
	url := pgtest.URL(t)
	d := open(t, url)
	w, h, err := writerOf(t.Context(), d, "a", 3)
	need(t, err)
	need(t, w.Checkpoint(t.Context(), checkpointOf(3, h.epoch[3], 1, 200)))
	need(t, d.FoldCheckpoints(t.Context(), backend.FoldAll))
	reader, err := pgx.Connect(t.Context(), url)
	need(t, err)
	defer func() { need(t, reader.Close(context.Background())) }()
	_, err = reader.Exec(t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ`)
	need(t, err)
	size := func() (bytes int64) {
		t.Helper()
		need(t, reader.QueryRow(t.Context(), `SELECT sum(pg_relation_size(c.oid))::bigint FROM pg_class AS c WHERE c.relnamespace = 'pushmesh'::regnamespace
			AND c.relkind = 'r' AND c.relname IN ('topic', 'producer', 'shard', 'checkpoint_folded')`).Scan(&bytes))
		return bytes
	}
	before := size()
	const rounds = 30
	for head := uint64(2); head < 2+rounds; head++ {
		need(t, w.Checkpoint(t.Context(), checkpointOf(3, h.epoch[3], head, 200)))
		if head%10 == 0 {
			need(t, d.FoldCheckpoints(t.Context(), backend.FoldPack))
		}
	}
	if after := size(); after > before {
		t.Errorf("%d checkpoints grew their tables from %d to %d bytes", rounds, before, after)
	}
	need(t, w.Close())
	_, h, err = writerOf(t.Context(), d, "b", 3)
	need(t, err)
	if got := h.commit[3]; got != 1+rounds {
		t.Errorf("the checkpoint covers commit %d, want %d", got, 1+rounds)
	}
}

// What was checkpointed is the same before and after a step back and forth.
func TestCheckpointsMigrateUpAndDown(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	d := open(t, url)
	w, h, err := writerOf(t.Context(), d, "a", 3)
	need(t, err)
	need(t, w.Checkpoint(t.Context(), checkpointOf(3, h.epoch[3], 5, 2)))
	need(t, d.FoldCheckpoints(t.Context(), backend.FoldAll))
	need(t, w.Checkpoint(t.Context(), checkpointOf(3, h.epoch[3], 9, 1)))
	need(t, w.Checkpoint(t.Context(), checkpointOf(3, h.epoch[3], 7, 3)))
	need(t, d.Close())
	conn, err := pgx.Connect(t.Context(), url)
	need(t, err)
	defer func() { need(t, conn.Close(t.Context())) }()
	db := stdlib.OpenDB(*conn.Config().Copy())
	defer func() { need(t, db.Close()) }()
	steps, err := goose.NewProvider(goose.DialectPostgres, db, migrations.Files, goose.WithTableName("pushmesh_migration"), goose.WithDisableGlobalRegistry(true))
	need(t, err)
	_, err = steps.DownTo(t.Context(), 21)
	need(t, err)
	const want = `t0 9 9, t1 7 7, t2 7 7; 9`
	table := func() (all string) {
		t.Helper()
		need(t, conn.QueryRow(t.Context(), `SELECT (SELECT string_agg(concat_ws(' ', t.topic, t.head, p.producer_seq), ', ' ORDER BY t.topic)
			FROM pushmesh.topic AS t JOIN pushmesh.producer AS p USING (shard, topic)) || '; ' || (SELECT covered FROM pushmesh.shard WHERE shard = 3)`).Scan(&all))
		return all
	}
	if got := table(); got != want {
		t.Errorf("after the way back: %s, want %s", got, want)
	}
	_, h, err = writerOf(t.Context(), open(t, url), "b", 3)
	need(t, err)
	if got := h.commit[3]; got != 9 {
		t.Errorf("the checkpoint covers commit %d after all, want 9", got)
	}
}
