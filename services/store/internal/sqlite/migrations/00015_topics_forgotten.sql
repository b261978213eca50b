-- Topics of which nothing is retained are forgotten after a while. born is the epoch of topics that begin from then on (0: epoch is). at is when a topic's
-- state was stored, in microseconds; of those that were stored before this step it is not known, and they count as stored at its time.

-- +goose Up
ALTER TABLE shard ADD COLUMN born INTEGER NOT NULL DEFAULT 0;
ALTER TABLE topic_head ADD COLUMN at INTEGER NOT NULL DEFAULT 0;

CREATE TABLE topic_head_since (
  at INTEGER NOT NULL,
  id INTEGER PRIMARY KEY CHECK (id = 1)
);
INSERT INTO topic_head_since (at, id) VALUES (CAST(strftime('%s', 'now') AS INTEGER) * 1000000, 1);

-- +goose Down
DROP TABLE topic_head_since;
ALTER TABLE topic_head DROP COLUMN at;
ALTER TABLE shard DROP COLUMN born;
