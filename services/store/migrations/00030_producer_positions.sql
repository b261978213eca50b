-- Positions of ordered producers are forgotten shard by shard, the longest unused first, where there are too many: each shard has the time from which on
-- none was. Pages of checkpoints carry it like what they cover; checkpoint.forget, one time for all shards, is not used any more.

-- +goose Up
ALTER TABLE pushmesh.shard ADD COLUMN forgot bigint NOT NULL DEFAULT 0;
ALTER TABLE pushmesh.checkpoint ADD COLUMN forgot bigint[] NOT NULL DEFAULT '{}';

CREATE OR REPLACE VIEW pushmesh.checkpoint_shard AS
SELECT e.shard, e.epoch, e.covered, c.id, coalesce(e.forgot, 0) AS forgot
FROM pushmesh.checkpoint_folded AS f JOIN pushmesh.checkpoint AS c ON c.id >= f.through
CROSS JOIN LATERAL unnest(c.shards, c.shard_epochs, c.covered, c.forgot) AS e (shard, epoch, covered, forgot);

-- +goose Down
DROP VIEW pushmesh.checkpoint_shard;
CREATE VIEW pushmesh.checkpoint_shard AS
SELECT e.shard, e.epoch, e.covered, c.id
FROM pushmesh.checkpoint_folded AS f JOIN pushmesh.checkpoint AS c ON c.id >= f.through
CROSS JOIN LATERAL unnest(c.shards, c.shard_epochs, c.covered) AS e (shard, epoch, covered);
ALTER TABLE pushmesh.checkpoint DROP COLUMN forgot;
ALTER TABLE pushmesh.shard DROP COLUMN forgot;
