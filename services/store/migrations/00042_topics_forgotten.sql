-- Topics of which nothing is retained are forgotten after a while. born is the epoch of topics of a shard that begin from then on (0: epoch is). A checkpoint
-- forgets: it has the topic with head 0 under that epoch, and the shard with it. at is when a row's state was folded last, in microseconds; that of rows which
-- are there already is this step's time, which costs no rewrite.

-- +goose Up
ALTER TABLE pushmesh.shard ADD COLUMN IF NOT EXISTS born bigint NOT NULL DEFAULT 0;
ALTER TABLE pushmesh.checkpoint ADD COLUMN IF NOT EXISTS born bigint[] NOT NULL DEFAULT '{}';
ALTER TABLE pushmesh.topic ADD COLUMN IF NOT EXISTS at bigint NOT NULL DEFAULT (extract(epoch FROM now()) * 1000000)::bigint;

CREATE OR REPLACE VIEW pushmesh.checkpoint_shard AS
SELECT e.shard, e.epoch, e.covered, c.id, coalesce(e.forgot, 0) AS forgot, coalesce(e.born, 0) AS born
FROM pushmesh.checkpoint_folded AS f JOIN pushmesh.checkpoint AS c ON c.id >= f.through
CROSS JOIN LATERAL unnest(c.shards, c.shard_epochs, c.covered, c.forgot, c.born) AS e (shard, epoch, covered, forgot, born);

-- The step that a store has to know; the first store that forgets a topic writes it.
CREATE TABLE IF NOT EXISTS pushmesh.oldest_store (
    step bigint NOT NULL
);

-- +goose Down
DROP TABLE pushmesh.oldest_store;
DROP VIEW pushmesh.checkpoint_shard;
CREATE VIEW pushmesh.checkpoint_shard AS
SELECT e.shard, e.epoch, e.covered, c.id, coalesce(e.forgot, 0) AS forgot
FROM pushmesh.checkpoint_folded AS f JOIN pushmesh.checkpoint AS c ON c.id >= f.through
CROSS JOIN LATERAL unnest(c.shards, c.shard_epochs, c.covered, c.forgot) AS e (shard, epoch, covered, forgot);
ALTER TABLE pushmesh.topic DROP COLUMN at;
ALTER TABLE pushmesh.checkpoint DROP COLUMN born;
ALTER TABLE pushmesh.shard DROP COLUMN born;
