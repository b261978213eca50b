-- Positions of ordered producers are forgotten shard by shard, the longest unused first, where there are too many: each shard has the time from which on
-- none was.

-- +goose Up
ALTER TABLE shard ADD COLUMN forgot INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE shard DROP COLUMN forgot;
